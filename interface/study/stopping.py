"""[stopping]: which evaluations stop early, and what it needs of the rest of a study."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedbo.actors.stopping.stoppers import STOPPERS
from fedbo.actors.stopping.stopping import Stopping
from fedbo.algorithms.base import Overlapping
from fedbo.objectives.base import fidelity_of
from fedbo.study.invalid import InvalidSetting
from fedbo.study.tables import Named

if TYPE_CHECKING:
    from fedbo.study.study import Study


_RUNGS = 10_000  # of a bracket


class StoppingTable(Named):
    """[stopping]: a stopper by its kind, and its settings."""

    key = "kind"
    noun = "stopper"
    catalogue = staticmethod(lambda: STOPPERS)
    kind: str


def stopping_of(study: Study) -> Stopping | None:
    """Give the stopper of a study on the fidelity axis of its objectives; None where nothing stops early."""
    fidelity = fidelity_of(study.federation())
    if study.stopping is None or fidelity is None:
        return None
    return Stopping(study.stopping.make(), fidelity.smallest, fidelity.largest)


def stopping_combinations(study: Study) -> Iterator[InvalidSetting]:
    """List what does not go together with stopping early."""
    if study.stopping is None:
        return
    fidelity, stopper = fidelity_of(study.federation()), study.stopping.make()
    if fidelity is None:
        remedy = f"needs objectives with a fidelity axis, and '{study.objective.name}' has none; leave the table out"
        yield InvalidSetting(("stopping",), f"{remedy}, or take learning_curves")
        return
    key = "grace" if study.stopping.kind == "median" else "smallest"
    first = getattr(stopper, key)
    if first is not None and not fidelity.smallest <= first < fidelity.largest:
        words = f"must be at least {fidelity.smallest} and below {fidelity.largest}, the {fidelity.name}s of the objectives"
        yield InvalidSetting(("stopping", key), words)
    elif study.stopping.kind == "median" and (fidelity.largest - 1) // stopper.interval > _RUNGS:
        yield InvalidSetting(("stopping", "interval"), f"would have more than {_RUNGS:,} rungs; raise it")
    if study.timing.clock == "wall":
        yield InvalidSetting(("stopping",), 'is for virtual time; leave it out, or set [timing] clock = "virtual"')
    for number, table in enumerate(study.algorithm):
        made = table.make()
        if not (isinstance(made, Overlapping) and made.queries == 1):
            words = "cannot be told of points one by one, as [stopping] needs"
            yield InvalidSetting(
                ("algorithm", number, "name"), f"{words}; leave [stopping] out, or take ts, fts, gp_ei or gp_ucb"
            )
        elif table.centralised:
            remedy = "evaluates a mean, which does not stop early; leave [stopping] or centralised out"
            yield InvalidSetting(("algorithm", number, "centralised"), remedy)
