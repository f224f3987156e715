"""Settings that have no effect in a study, because of other settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fedbo.coordinator.environment.faults import Lie
from fedbo.settings.errors import SettingError
from fedbo.settings.rooms import study_tables
from fedbo.study.document import Loc
from fedbo.study.problems import problem_of
from fedbo.study.study_tables import StudyTables

# Settings of a selection, and what uses them.
_USERS = {
    ("explore", "penalty"): ("speed", "usefulness"),
    ("age",): ("usefulness",),
    ("tiers",): ("tiers",),
}
_NO_MESSAGES = "no algorithm of this study sends messages; remove it, or add one that does, for example fts"


def settings_without_effect(cells: Iterable[StudyTables]) -> list[SettingError]:
    """Return the settings that have no effect in any cell of a study."""
    found: list[SettingError] | None = None
    for study in cells:
        here = list(_of_cell(study))
        found = here if found is None else [fault for fault in found if fault in here]
        if not found:
            return []
    return found or []


def _of_cell(study: StudyTables) -> Iterator[SettingError]:
    for loc, why in (*_choices(study), *_messages(study), *_absences(study)):
        yield SettingError(loc, f"has no effect: {why}")


def _choices(study: StudyTables) -> Iterator[tuple[Loc, str]]:
    """Yield the settings of alternatives that were not chosen."""
    exchange, unused = study.exchange.make(), tuple[str, ...]()
    selection, staleness = exchange.selection, exchange.staleness
    if study.record.idle and not selection.idles:
        yield ("record", "idle"), 'no agent is idle between rounds; remove it, or set exchange.selection.others = "idle"'
    given = study.objective.differences
    if given is not None and (differences := given.make()).likeness == 1.0:
        yield from _changed(differences, ("objective", "differences"), ("length_scale",), "set likeness below 1")
    if selection.who == "all" or selection.concurrency is not None:
        yield from _changed(selection, ("exchange", "selection"), ("share",), "choose a share by `who`, without concurrency")
    for names, users in _USERS.items():
        if selection.who not in users:
            yield from _changed(selection, ("exchange", "selection"), names, f"set who = {' or '.join(map(repr, users))}")
    if staleness.weight == "constant":
        unused, remedy = ("decay", "after"), 'set weight = "hinge"'
    else:
        unused, remedy = () if staleness.weight == "hinge" else ("after",), 'set weight = "hinge"'
    yield from _changed(staleness, ("exchange", "staleness"), unused, remedy)
    federation = study.federation()
    if getattr(federation, "steps", None) is not None and not getattr(federation, "takes_report", True):
        yield ("objective", "steps"), "the function has no parameter 'report'; remove it, or add that parameter"
    owners: list[tuple[Loc, Any]] = [(("timing",), study.timing)]
    owners += [(("group", number), table) for number, table in enumerate(study.group)]
    for loc, owner in owners:
        if owner.decision is not None and (decision := owner.decision.make()).coefficient == 0:
            yield from _changed(decision, (*loc, "decision"), ("power",), "set coefficient above 0")
    policy = study.evaluation.make()
    if policy.most_pending == 1:
        yield from _changed(policy, ("evaluation",), ("wait",), "set parallel or prefetch")
    if study.cluster is not None and study.cluster.rule == "priority" and len(set(study.cluster.priorities)) < 2:
        yield ("cluster", "rule"), "all agents have the same priority; set different priorities"


def _messages(study: StudyTables) -> Iterator[tuple[Loc, str]]:
    """Yield settings on messages where no algorithm sends any; other settings may serve a comparison with other methods."""
    lies = [number for number, table in enumerate(study.fault) if isinstance(table.make(), Lie)]
    places: list[Loc] = [("fault", number, "kind") for number in lies]
    places += [loc for table in study_tables().values() for loc in table.on_messages(study)]
    if places and not any(_sends(study, number) for number in range(len(study.algorithm))):
        yield from ((loc, _NO_MESSAGES) for loc in places)


def _sends(study: StudyTables, number: int) -> bool:
    table = study.algorithm[number]
    problem = problem_of(study, table)
    return table.centralised is True or table.make().upload(problem) is not None


def _absences(study: StudyTables) -> Iterator[tuple[Loc, str]]:
    """Yield settings on absences in virtual time where agents are never absent."""
    if study.timing.clock == "wall":
        return
    if study.availability.leaving == "lost" and study.availability.model == "always" and not study.group:
        yield ("availability", "leaving"), 'agents are always available; remove it, or set model = "markov"'


def _changed(made: Any, loc: Loc, names: tuple[str, ...], remedy: str) -> Iterator[tuple[Loc, str]]:
    """Yield those of some settings that differ from their defaults."""
    for name in names:
        field = type(made).__dataclass_fields__[name]
        if getattr(made, name) != field.default:
            yield (*loc, name), f"another setting disables it; remove it, or {remedy}"
