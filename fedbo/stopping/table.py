"""The table [stopping] of a study file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from fedbo.algorithms.base import Algorithm, Overlapping
from fedbo.objectives.base import Federation, Fidelity, fidelity_of, reported_fidelity_of
from fedbo.settings.errors import SettingError
from fedbo.stopping.stoppers import STOPPERS, Median
from fedbo.stopping.stopping import Stopping
from fedbo.study.base import Named, RoomTable


class StoppingTable(Named, RoomTable):
    """[stopping]: a stopper by its kind, and its settings."""

    key = "kind"
    noun = "stopper"
    catalogue = staticmethod(lambda: STOPPERS)
    kind: str
    """Name of a stopper."""

    @classmethod
    def filled(cls, given: Self | None, study: Any, fill: Callable[..., Any]) -> Self | None:
        """Return the table of a study with all settings of its stopper."""
        return None if given is None else fill(given, "stopping")

    @classmethod
    def combinations(cls, study: Any) -> Iterator[SettingError]:
        """Yield the errors in the combination of early stopping with other tables."""
        if study.stopping is None:
            return
        real, stopper = study.timing.clock == "wall", study.stopping.make()
        fidelity = (reported_fidelity_of if real else fidelity_of)(study.federation())
        if fidelity is None:
            words = f"requires objectives with a fidelity axis, but '{study.objective.name}' has none; remove the table"
            if real:
                words = "requires evaluations that report, in real time; remove it, or use typed_function and set its steps"
            yield SettingError(("stopping",), words if real else f"{words}, or use learning_curves")
            return
        yield from (SettingError(("stopping", *found.path), found.remedy) for found in invalid_rungs(stopper, fidelity))
        if real and not getattr(study.federation(), "takes_report", True):
            words = "has no effect: the objective has no parameter 'report'; remove it, or add the parameter and call it"
            yield SettingError(("stopping", "kind"), words)
        if real:
            found_errors = not_in_real_time(stopper, study)
            yield from (SettingError(("stopping", *found.path), found.remedy) for found in found_errors)
        for number, table in enumerate(study.algorithm):
            made: Algorithm = table.make()
            if not (real or (isinstance(made, Overlapping) and made.queries == 1)):
                words = "cannot receive points one by one, which [stopping] requires"
                yield SettingError(
                    ("algorithm", number, "name"), f"{words}; remove [stopping], or use ts, fts, gp_ei or gp_ucb"
                )
            elif table.centralised:
                remedy = "evaluates a mean, which cannot stop early; remove [stopping] or centralised"
                yield SettingError(("algorithm", number, "centralised"), remedy)

    def rules(self, federation: Federation, real: bool) -> Stopping | None:
        """Return the rules on the axis of reports in real time, else on the fidelity axis; None if there is no such axis."""
        axis = (reported_fidelity_of if real else fidelity_of)(federation)
        return None if axis is None else Stopping(self.make(), axis.smallest, axis.largest)


_RUNGS = 10_000  # of a bracket


def invalid_rungs(stopper: Any, fidelity: Fidelity) -> Iterator[SettingError]:
    """Yield the errors in the rungs of a stopper on a fidelity axis."""
    key = "grace" if isinstance(stopper, Median) else "smallest"
    first = getattr(stopper, key)
    if first is not None and not fidelity.smallest <= first < fidelity.largest:
        words = f"must be at least {fidelity.smallest} and below {fidelity.largest}, the {fidelity.name}s of the objectives"
        yield SettingError((key,), words)
    elif isinstance(stopper, Median) and (fidelity.largest - 1) // stopper.interval > _RUNGS:
        yield SettingError(("interval",), f"makes more than {_RUNGS:,} rungs; raise it")


def not_in_real_time(stopper: Any, study: Any) -> Iterator[SettingError]:
    """Yield errors for settings of a stopper that need virtual time, or in real time other settings of the study."""
    if stopper.checkpoint:
        yield SettingError(
            ("checkpoint",), "has no effect in real time, where resuming takes the time that it takes; remove it"
        )
    if stopper.variant != "promote":
        return
    if not getattr(study.federation(), "takes_restore", False):
        words = "requires an objective that continues from a checkpoint; add the parameter 'restore' and call it, or use 'stop'"
        yield SettingError(("variant",), words)
    if not study.evaluation.make().overlaps:
        words = "requires evaluations that are separate tasks; set [evaluation] resources, for example to one CPU"
        yield SettingError(("variant",), words)
