"""Checks of a study as a whole: combinations of settings that are valid on their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedbo.actors.task import objective_of
from fedbo.algorithms.base import Anytime, CostAware, Overlapping, Private
from fedbo.algorithms.returned import check_declarations
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.faults import Preemption
from fedbo.objectives.base import reports_costs
from fedbo.objectives.derived.differences import DifferingFederation
from fedbo.objectives.derived.mean import BatchFunction
from fedbo.settings.errors import SettingError
from fedbo.settings.rooms import study_tables
from fedbo.study.agents.histories import HistorySource, has_history, history_sources, observed
from fedbo.study.check_metrics import metric_combinations, metric_methods
from fedbo.study.document import StudyError
from fedbo.study.environment.checks import agents_remedy, exchange_combinations, group_combinations, world_combinations
from fedbo.study.environment.groups import has_own, members
from fedbo.study.problems import problem_of, sends_once
from fedbo.study.settings import invalid_from
from fedbo.study.study_tables import StudyTables


def group_budgets(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for group budgets that do not match the study's, have no effect, or never start."""
    counted, other = ("pulls", "iterations") if study.budget.pulls else ("iterations", "pulls")
    groups = members(study) if any(map(has_own, study.group)) else {}
    for number, table in enumerate(study.group):
        loc = ("group", number)
        if getattr(table, other) is not None:
            yield SettingError((*loc, other), f"does not match [budget]; set {counted}")
        if table.initial is not None and study.agents.initial_file is not None:
            yield SettingError((*loc, "initial"), "cannot be combined with initial_file, which contains the points; remove it")
        if has_own(table) and not set(groups[table.name]) & set(study.targets):
            yield SettingError(
                loc, "has a budget, but none of its agents optimises; remove it, or list some of its agents as targets"
            )
        yield from _span(study, table, number)


def _span(study: StudyTables, table: Any, number: int) -> Iterator[SettingError]:
    end = study.budget.time
    if table.until is not None and table.until <= (table.from_ or 0.0):
        yield SettingError(("group", number, "until"), f"must be above from = {table.from_:g}")
    if end is not None and table.from_ is not None and table.from_ >= end:
        yield SettingError(("group", number, "from"), f"must be before the study's end; [budget] time = {end:g}")


def history_combinations(study: StudyTables) -> Iterator[SettingError]:
    """Yield the errors in the histories of a study whose agents and groups are valid."""
    for source in history_sources(study):
        table = source.table
        if table.algorithm is None:
            yield from _given(study, source)
            yield from _warm(study, source)
        elif table.fresh is False and study.study.replicates > 1 and study.federation().random_per_replicate:
            name = study.objective.name
            yield SettingError((*source.loc, "fresh"), f"'{name}' draws new functions for every replicate; set fresh = true")


def _warm(study: StudyTables, source: HistorySource) -> Iterator[SettingError]:
    """Yield errors for algorithms that cannot learn points that they did not choose."""
    for number, algorithm in enumerate(study.algorithm if source.table.warm_start else ()):
        if not isinstance(made := algorithm.make(), Overlapping) or made.queries != 1:
            remedy = "cannot start from observations that it did not choose; use ts, fts, gp_ei or gp_ucb"
            yield SettingError(("algorithm", number, "name"), remedy)


def _given(study: StudyTables, source: HistorySource) -> Iterator[SettingError]:
    """Yield the error of a file or an earlier run, if there is one."""
    for replicate in range(study.study.replicates):
        try:
            observed(study, source, replicate)
        except SettingError as error:
            yield SettingError((*source.loc, *error.path), error.remedy)
            return


def combinations(study: StudyTables) -> Iterator[SettingError]:
    """Yield the errors in the combination of a study's valid tables."""
    yield from _labels(study)
    yield from _differences(study)
    yield from _hosting(study)
    for table in study_tables().values():
        yield from table.combinations(study)
    yield from _single_evaluations(study)
    yield from _costs(study)
    yield from _one_message(study)
    yield from _open_budget(study)
    yield from _centralised(study)
    groups = list(group_combinations(study))
    yield from groups
    yield from world_combinations(study, not groups)
    targets = list(_targets(study))
    yield from targets
    if not targets and not groups:
        metrics = list(metric_combinations(study))
        yield from metrics
        yield from group_budgets(study)
        histories = list(history_combinations(study))
        yield from histories
        yield from exchange_combinations(study)
    if not targets and not groups and not histories and not metrics:
        yield from metric_methods(study)
        declarations = list(_declarations(study))
        yield from declarations
        for table in () if declarations else study_tables().values():
            yield from table.last_combinations(study)
        yield from _initial_file(study)


def _open_budget(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for methods that use the number of iterations, where there is none."""
    for number, table in enumerate(study.algorithm if study.budget.is_open else ()):
        made = table.make()
        use = made.horizon_use if isinstance(made, Anytime) else "does not declare that it uses no number of iterations"
        use = "has releases that are accounted for one by one" if isinstance(made, Private) else use
        if use:
            yield SettingError(
                ("algorithm", number, "name"), f"{use}; set [budget] iterations, the most that an agent may make"
            )


def _differences(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for differences between agents that the functions do not support; only the first agent's is checked."""
    federation = study.federation()
    if not isinstance(federation, DifferingFederation):
        return
    world, loc, name = Streams(study.study.seed, 0), ("objective", "differences"), study.objective.name
    if not isinstance(objective_of(federation.federation, 0, world), BatchFunction):
        yield SettingError(loc, f"'{name}' has no noise-free values at many points; use a synthetic objective")
    elif federation.differences.quantity and (study.objective.noise or not getattr(federation.federation, "noise", 0.0)):
        remedy = f"divides the variance of the objective's noise, but '{name}' has no noise"
        yield SettingError((*loc, "quantity"), f"{remedy}; remove it, or use an objective with noise")


def _labels(study: StudyTables) -> Iterator[SettingError]:
    first: dict[str, int] = {}
    for number, table in enumerate(study.algorithm):
        if table.title in first:
            key = "name" if table.label is None or table.label == table.name else "label"
            remedy = f"label '{table.title}' belongs to [[algorithm]] {first[table.title] + 1}; choose another label"
            yield SettingError(("algorithm", number, key), remedy)
        first.setdefault(table.title, number)
    labels = [fault.label for fault in study.fault]
    for number, label in enumerate(labels):
        if labels.index(label) < number:
            remedy = f"label '{label}' belongs to [[fault]] {labels.index(label) + 1}; choose another label"
            yield SettingError(("fault", number, "label"), remedy)


def _targets(study: StudyTables) -> Iterator[SettingError]:
    given, n_agents = study.agents.targets, study.federation().n_agents
    if given == "all":
        return
    if remedy := agents_remedy(given, n_agents):
        yield SettingError(("agents", "targets"), remedy)


def _hosting(study: StudyTables) -> Iterator[SettingError]:
    hosting = study.hosting
    if hosting.kind == "sites" and "sites" not in study_tables():
        yield SettingError(("hosting", "kind"), "needs a part of fedbo that is not installed here; set another kind")
    if study.timing.clock == "wall" and hosting.kind == "inline":
        yield SettingError(
            ("timing", "clock"), "requires one process per agent or host; set [hosting] kind to dedicated or packed"
        )
    if hosting.kind == "dedicated" and hosting.workers is not None:
        yield SettingError(("hosting", "workers"), "has no effect: dedicated hosting has one worker per agent; remove it")
    if hosting.kind == "packed" and hosting.workers == 0:
        yield SettingError(("hosting", "workers"), "must be at least 1 for packed hosting")
    if hosting.kind == "inline" and not hosting.workers and hosting.address is not None:
        yield SettingError(
            ("hosting", "address"),
            "has no effect: inline hosting without workers does not start Ray; set workers, or remove it",
        )
    if hosting.labels and hosting.address is None:
        yield SettingError(("hosting", "labels"), "have no effect: without an address Ray has one node; set it, or remove them")


def _single_evaluations(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for preemptions without workers, and for overlapping evaluations: all of these without their room."""
    for number, table in enumerate(study.fault):
        if isinstance(table.make(), Preemption) and study.cluster is None:
            yield SettingError(
                ("fault", number, "kind"),
                "affects the workers of a [cluster], but this study has none; add a [cluster], or remove the fault",
            )
    if "cluster" in study_tables():
        return
    words = "needs a part of fedbo that is not installed here; remove {}, or install all of fedbo"
    if study.evaluation.make().overlaps:
        yield SettingError(("evaluation",), words.format("parallel, prefetch and resources"))
    if study.stopping is not None and study.timing.clock != "wall":
        yield SettingError(("stopping",), words.format("the table"))


def _declarations(study: StudyTables) -> Iterator[SettingError]:
    """Yield the errors that algorithms raise when they declare their messages for this problem."""
    for number, table in enumerate(study.algorithm):
        try:
            made, problem = table.make(), problem_of(study, table)
            check_declarations(made, problem)
        except ValueError as error:
            yield from StudyError.of([invalid_from(error)]).under("algorithm", number).faults
        else:
            if "privacy" not in study_tables() and (isinstance(made, Private) or getattr(made, "hides", False)):
                words = "sends private messages, which needs a part of fedbo that is not installed here"
                yield SettingError(("algorithm", number, "name"), f"{words}; choose another algorithm")
            for room_table in study_tables().values():
                yield from room_table.method_combinations(study, number, made)


def _centralised(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for a centralised agent with histories, which are those of single agents."""
    for number, table in enumerate(study.algorithm):
        if table.centralised and has_history(study):
            remedy = (
                "does not support a history, because agents observed other functions than the mean; remove [agents.history]"
            )
            yield SettingError(("algorithm", number, "centralised"), remedy)


def _costs(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for algorithms that choose by costs where the objective reports none."""
    if reports_costs(study.federation()):
        return
    for number, table in enumerate(study.algorithm):
        made = table.make()
        if isinstance(made, CostAware) and made.needs_costs:
            words = (
                f"requires an objective that reports costs, and '{study.objective.name}' reports none; set cost = \"ignored\""
            )
            yield SettingError(("algorithm", number, "cost"), words)


def _one_message(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for algorithms that send once, before the start, in a mode that answers most agents too early."""
    if study.exchange.make().is_synchronous:
        return
    for number, table in enumerate(study.algorithm):
        made = table.make()
        if sends_once(study, made):
            remedy = f"sends one message, before the start, and '{study.exchange.mode}' rarely answers it in time"
            yield SettingError(
                ("algorithm", number, "name"), f'{remedy}; set [exchange] mode = "barrier", or make it send again'
            )


def _initial_file(study: StudyTables) -> Iterator[SettingError]:
    try:
        points = study.initial_points()
    except ValueError as error:
        yield SettingError(("agents", "initial_file"), str(error))
        return
    if points is None or "initial" not in study.agents.model_fields_set:
        return
    count = len(next(iter(points.values())))
    if study.agents.initial != count:
        yield SettingError(
            ("agents", "initial"), f"does not match initial_file, which has {count} points for each target; remove initial"
        )
