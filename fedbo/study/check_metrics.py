"""Checks of the [[metric]] tables of a study, and of the settings that do not suit them."""

from __future__ import annotations

from collections.abc import Iterator

from fedbo.algorithms import catalog as algorithms
from fedbo.algorithms.base import Algorithm, Multiple, Problem
from fedbo.objectives.base import Federation, metrics_of
from fedbo.objectives.goals import MOST_OBJECTIVES, Goals
from fedbo.objectives.python_function import PythonFunction
from fedbo.objectives.sites import Sites
from fedbo.objectives.typed_function import TypedFunction
from fedbo.settings.errors import SettingError, unknown
from fedbo.study.problems import OF_GROUP, goals, goals_of_group, has_own, problem_of
from fedbo.study.study_tables import StudyTables

MODES = {1: "max", -1: "min"}
_MANY = 5  # methods that an error lists


def metric_combinations(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors in the [[metric]] tables of a study, and in the limits and weights of its groups."""
    if not study.metric:
        own = [(number, key) for number, table in enumerate(study.group) for key in OF_GROUP if getattr(table, key)]
        for number, key in own:
            yield SettingError(("group", number, key), "applies only to metrics of the study; add a [[metric]]")
        return
    faults = [*_names(study), *_objectives(study)]
    yield from faults
    if not faults:
        yield from _groups(study)


def _names(study: StudyTables) -> Iterator[SettingError]:
    federation = study.federation()
    known = list(dict.fromkeys((federation.metric.name, *(metrics_of(federation) or ()))))
    closed = len(known) > 1 or not _may_return_more(federation)
    names = [table.name for table in study.metric]
    for number, table in enumerate(study.metric):
        if names.index(table.name) < number:
            yield SettingError(("metric", number, "name"), "has two tables; join them")
        elif closed and table.name not in known:
            yield SettingError(("metric", number, "name"), unknown("metric", table.name, known))


def _may_return_more(federation: Federation) -> bool:
    """Return whether evaluations may return metrics that a federation does not name: those of the user's own code."""
    own_code = isinstance(federation, PythonFunction | TypedFunction | Sites)
    return own_code or not type(federation).__module__.startswith("fedbo.")


def _objectives(study: StudyTables) -> Iterator[SettingError]:
    own = study.federation().metric
    chosen = [(number, table) for number, table in enumerate(study.metric) if table.mode is not None]
    for place, (number, table) in enumerate(chosen):
        if place == 0 and table.name != own.name:
            remedy = f"is not the metric of the values, which comes first; put the metric '{own.name}' before it, with a mode"
            yield SettingError(("metric", number, "name"), remedy)
        elif table.name == own.name and table.mode != MODES[own.sign]:
            remedy = f"is not that of the objective's values, which are to be {own.direction}d; set '{MODES[own.sign]}'"
            yield SettingError(("metric", number, "mode"), remedy)
        if place >= MOST_OBJECTIVES:
            remedy = f"makes more than {MOST_OBJECTIVES} objectives; give it a limit instead"
            yield SettingError(("metric", number, "mode"), remedy)
        if len(chosen) > 1 and table.reference is None:
            yield SettingError(
                ("metric", number, "reference"),
                "is missing; set the worst value that is still of use, since several objectives are judged by hypervolume",
            )
        for key in ("reference", "weight"):
            if len(chosen) == 1 and getattr(table, key) is not None:
                yield SettingError(("metric", number, key), "has no effect with one objective; remove it")


def _groups(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for limits and weights of groups that the study does not have, or that contradict each other."""
    common = goals(study)
    assert common is not None
    limits = {limit.name: limit for limit in common.limits}
    there = {
        "at_most": [name for name, limit in limits.items() if limit.at_most is not None],
        "at_least": [name for name, limit in limits.items() if limit.at_least is not None],
        "weights": [goal.name for goal in common.objectives] if common.several else [],
    }
    for number, table in enumerate(study.group):
        for key, known in there.items():
            for name in getattr(table, key) or {}:
                if name not in known:
                    remedy = "no [[metric]] of the study has it as " + ("an objective of several" if key == "weights" else key)
                    yield SettingError(("group", number, key, name), f"{remedy}; available: {', '.join(known) or 'none'}")
        for limit in goals_of_group(common, table).limits if has_own(table) else ():
            if limit.at_most is not None and limit.at_least is not None and limit.at_least > limit.at_most:
                key = "at_least" if limit.name in (table.at_least or {}) else "at_most"
                other = f"at_most = {limit.at_most:g}" if key == "at_least" else f"at_least = {limit.at_least:g}"
                yield SettingError(("group", number, key, limit.name), f"contradicts {other}; change one of the two")


def metric_methods(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for methods and settings that do not suit the metrics of a study whose other tables are valid."""
    found = goals(study)
    if found is None:
        if study.evaluation.make().infeasible is not None:
            yield SettingError(("evaluation", "infeasible"), "has no effect without limits; remove it, or add a [[metric]]")
        return
    if found.several and study.budget.target is not None:
        yield SettingError(("budget", "target"), "is a value of one objective, and this study has several; remove it")
    for number, table in enumerate(study.algorithm):
        loc = ("algorithm", number)
        if table.centralised:
            words = "evaluates the mean of all agents' objectives, which has no other metrics; remove it, or [[metric]]"
            yield SettingError((*loc, "centralised"), words)
        elif why := _unsuited(table.make(), problem_of(study, table), found):
            yield SettingError((*loc, "name"), why)
    history = study.agents.history
    if history is not None and history.algorithm is not None:
        known = problem_of(study, study.algorithm[0])
        if why := _unsuited(history.algorithm.make(), known, found):
            yield SettingError(("agents", "history", "algorithm"), why)
    uses_policy = found.constraints > 0 and any(not isinstance(table.make(), Multiple) for table in study.algorithm)
    if study.evaluation.make().infeasible is not None and not uses_policy:
        why = "every algorithm learns the limits" if found.constraints else "the study has no limits"
        yield SettingError(("evaluation", "infeasible"), f"has no effect: {why}; remove it")


def stopping_note(study: StudyTables) -> str | None:
    """Return a line that says by what early stopping judges where there is more than one number; None elsewhere."""
    found = goals(study)
    if study.stopping is None or found is None or not (found.several or found.constraints):
        return None
    return f"[stopping] judges evaluations by '{found.own.name}' alone, not by other objectives or limits"


def _unsuited(algorithm: Algorithm, known: Problem, found: Goals) -> str:
    """Return why an algorithm cannot serve objectives and limits; empty where it can."""
    if algorithm.queries is None and found.names != (found.own.name,):
        return f"evaluates points several times, and only the mean of '{found.own.name}' is known; use {_learning()}"
    if isinstance(algorithm, Multiple):
        return algorithm.handles(known) if found.several or found.constraints else ""
    if found.several:
        return f"learns one objective, and this study has {len(found.objectives)}; use {_learning()}"
    return ""


def _learning() -> str:
    """Return the names of methods that learn several objectives, for an error."""
    names = [name for name, entry in algorithms.catalogue().usable() if issubclass(entry.settings, Multiple)]
    return " or ".join((", ".join(names[:_MANY])).rsplit(", ", 1)) or "another method"
