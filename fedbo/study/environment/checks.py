"""Checks of a study's environment: groups, faults, exchange modes, real time and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from fedbo.algorithms.base import Starting, Useful, Waiting
from fedbo.coordinator.environment.availability import Daily
from fedbo.coordinator.environment.faults import MESSAGE_FAULTS, Crash, Hang, Slow, set_times
from fedbo.coordinator.environment.timing import Constant, DecisionTimeModel, LogLinear, SpeedClasses
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.selection import COINS
from fedbo.objectives.base import reports_costs
from fedbo.objectives.catalog import federations
from fedbo.settings.errors import SettingError, unknown
from fedbo.study.document import Loc
from fedbo.study.environment.groups import share_of
from fedbo.study.environment.measures import check_measure
from fedbo.study.environment.models import capacities
from fedbo.study.study_tables import StudyTables


def world_combinations(study: StudyTables, groups_are_right: bool) -> Iterator[SettingError]:
    """Yield the errors in the combination of the environment's valid tables."""
    yield from _real_time(study)
    yield from _costs(study)
    yield from _devices(study)
    yield from _short_days(study)
    if groups_are_right:
        yield from _plan(study)


def exchange_combinations(study: StudyTables) -> Iterator[SettingError]:
    """Yield the errors of an exchange mode with the agents of a study, whose targets must be valid."""
    exchange, targets = study.exchange.make(), len(study.targets)
    selection = exchange.selection
    if not exchange.is_synchronous and selection.who not in COINS and selection.concurrency is None:
        remedy = f"under '{exchange.mode}' there are no rounds to take a share of; use \"poisson\", or set concurrency"
        yield SettingError(("exchange", "selection", "who"), remedy)
    if selection.concurrency is not None:
        yield from _turns(study, exchange)
    if selection.who == "usefulness":
        if study.metric:
            remedy = "is of one value, and there is [[metric]]; use another selection"
            yield SettingError(("exchange", "selection", "who"), remedy)
        for table in study.algorithm:
            if not (isinstance(made := table.make(), Useful) and made.tells_usefulness):
                words = (
                    f"'{table.title}' does not tell how useful its messages are; use share_best with values = true, or pooled"
                )
                yield SettingError(("exchange", "selection", "who"), words)
    yield from _selected(study, exchange)
    if (getattr(exchange, "k", None) or 0) > targets:
        yield SettingError(("exchange", "k"), f"must be at most {targets}, the number of agents that optimise")


def _turns(study: StudyTables, exchange: Exchange) -> Iterator[SettingError]:
    """Yield errors for agents that take turns without rounds."""
    loc = ("exchange", "selection", "concurrency")
    if exchange.is_synchronous:
        yield SettingError(loc, f"is for modes without rounds, and '{exchange.mode}' has rounds; use who and share")
    if exchange.selection.who == "poisson":
        yield SettingError(loc, 'draws one agent at a time, and "poisson" flips a coin for each; set who = "all"')
    if exchange.selection.others == "idle":
        yield SettingError(loc, 'makes agents idle that have no turn; remove others = "idle"')
    if (exchange.selection.concurrency or 0) > (count := study.federation().n_agents):
        yield SettingError(loc, f"must be at most {count}, the number of agents")
    for table in study.algorithm:
        if (made := table.make()).queries is None or isinstance(made, Waiting):
            yield SettingError(loc, f"'{table.title}' may wait for an answer that only drawn agents get; remove it")


def _selected(study: StudyTables, exchange: Exchange) -> Iterator[SettingError]:
    """Yield errors for selections that skip agents which may wait for an answer that no round sends them.

    A method with decisions of varying size may decide on no point, and then waits. Whether it will is not known before.
    """
    selection = exchange.selection
    if selection.who == "all" or (exchange.is_synchronous and not selection.idles):
        return
    for table in study.algorithm:
        made = table.make()
        if made.queries is None and any(made.sends(step) for step in range(study.budget.decisions + 1)):
            if selection.idles:
                remedy = f"'{table.title}' may wait for an answer that only selected agents get; use \"work\""
                yield SettingError(("exchange", "selection", "others"), remedy)
                continue
            remedy = f"'{table.title}' may wait for an answer without being selected; use \"all\""
            yield SettingError(("exchange", "selection", "who"), f'{remedy}, or a mode with rounds, such as "barrier"')


def agents_remedy(given: Sequence[int], count: int) -> str | None:
    """Return the error in a list of agents, None when there is none."""
    if not given:
        return 'must contain at least one agent; use "all" for every agent'
    strange = next((agent for agent in given if not 0 <= agent < count), None)
    if strange is not None:
        return f"agent {strange} does not exist; this objective has agents 0 to {count - 1}"
    counts = Counter(given)
    twice = next((agent for agent in given if counts[agent] > 1), None)
    return None if twice is None else f"agent {twice} is listed twice; list each agent once"


def group_combinations(study: StudyTables) -> Iterator[SettingError]:
    """Yield the errors in the names and the agents of groups."""
    first: dict[str, int] = {}
    for number, table in enumerate(study.group):
        if table.name == "all":
            yield SettingError(("group", number, "name"), "is reserved for all agents; choose another name")
        elif table.name in first:
            remedy = f"is already the name of [[group]] {first[table.name] + 1}; choose another name"
            yield SettingError(("group", number, "name"), remedy)
        first.setdefault(table.name, number)
        if table.agents is None and table.share is None:
            yield SettingError(
                ("group", number), "has no agents; set agents = [0, 1], or a share of all agents, for example share = 0.2"
            )
        elif table.agents is not None and table.share is not None:
            yield SettingError(("group", number, "share"), "cannot be combined with a list of agents; set one of them")
    yield from _lists(study)
    yield from _shares(study)
    yield from _measures(study)


def _lists(study: StudyTables) -> Iterator[SettingError]:
    count, group_of = study.federation().n_agents, dict[int, int]()
    for number, table in enumerate(study.group):
        if table.agents is None:
            continue
        loc: Loc = ("group", number, "agents")
        if not table.agents:
            yield SettingError(loc, "must contain at least one agent")
        elif remedy := agents_remedy(table.agents, count):
            yield SettingError(loc, remedy)
        for agent in sorted(set(table.agents) & set(group_of)):
            other = study.group[group_of[agent]].name
            yield SettingError(loc, f"agent {agent} is already in group '{other}'; put it into one group only")
        group_of.update(dict.fromkeys(table.agents, number))


def _shares(study: StudyTables) -> Iterator[SettingError]:
    count = study.federation().n_agents
    left = count - len({agent for table in study.group for agent in table.agents or ()})
    for number, table in enumerate(study.group):
        if table.share is None or table.agents is not None:
            continue
        asked, loc = share_of(table.share, count), ("group", number, "share")
        if asked == 0:
            yield SettingError(loc, f"rounds to no agent of {count}; raise it above {0.5 / count:g}")
        elif asked > left:
            yield SettingError(loc, f"is {asked} of {count} agents, but only {left} are in no other group; lower it")
        left = max(0, left - asked)


def _measures(study: StudyTables) -> Iterator[SettingError]:
    for number, table in enumerate(study.group):
        if table.by is not None:
            try:
                check_measure(study, table.by)
            except SettingError as error:
                yield SettingError(("group", number, *error.path), error.remedy)


def _real_time(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for settings without effect in real time, and for those that need real time."""
    if study.timing.clock == "virtual":
        if study.evaluation.make().memory_limit is not None:
            yield SettingError(("evaluation", "memory_limit"), 'applies to real time only; remove it, or set clock = "wall"')
        return
    timing, remedy = study.timing, 'has no effect in real time; remove it, or set clock = "virtual"'
    if timing.evaluation.make() != Constant(1.0):
        yield SettingError(("timing", "evaluation", "model"), remedy)
    if timing.speed.make() != SpeedClasses((1.0,)):
        yield SettingError(("timing", "speed"), remedy)
    if timing.decision.make() != DecisionTimeModel():
        yield SettingError(("timing", "decision"), remedy)
    if study.detection is not None:
        yield SettingError(("detection", "heartbeat"), remedy)
    for number, table in enumerate(study.group):
        for key in ("evaluation", "speed", "decision"):
            if getattr(table, key) is not None:
                yield SettingError(("group", number, key), remedy)
    for number, fault in enumerate(study.fault):
        if study.hosting.kind == "packed" and isinstance(fault.make(), Crash | Hang | Slow):
            remedy = 'affects a real process and the other agents in it; set [hosting] kind = "dedicated"'
            yield SettingError(("fault", number, "kind"), remedy)


def _devices(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for settings of virtual time alone, an invalid file of devices, and settings that it duplicates."""
    timing, loc = study.timing, ("timing", "devices")
    for key in ("devices", "unit"):
        if timing.clock == "wall" and getattr(timing, key) is not None:
            yield SettingError(("timing", key), 'applies to virtual time only; remove it, or set clock = "virtual"')
    if timing.devices is None:
        return
    if timing.speed.make() != SpeedClasses((1.0,)):
        yield SettingError(("timing", "speed"), "cannot be combined with devices, which set speeds; remove one of them")
    if study.network.bandwidth is not None:
        yield SettingError(
            ("network", "bandwidth"), "cannot be combined with [timing] devices, which set it; remove one of them"
        )
    try:
        capacities(timing.devices)
    except SettingError as error:
        yield SettingError(loc, error.remedy)


def _costs(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for durations that depend on costs where the objective reports none."""
    owners: list[tuple[Loc, Any]] = [(("timing",), study.timing)]
    owners += [(("group", number), table) for number, table in enumerate(study.group)]
    for loc, owner in owners:
        model = None if owner.evaluation is None else owner.evaluation.make()
        if isinstance(model, LogLinear):
            yield from _slopes(study, model, loc)
        elif model is not None and model.costs and not reports_costs(study.federation()):
            remedy = (
                f"'{study.objective.name}' reports no costs; use another model, or an objective that reports them: {_costly()}"
            )
            yield SettingError((*loc, "evaluation", "model"), remedy)
        if owner.latency is not None and owner.latency.make().costs:
            yield SettingError((*loc, "latency", "model"), "only evaluations have costs; use another model for messages")


def _slopes(study: StudyTables, model: LogLinear, loc: Loc) -> Iterator[SettingError]:
    """Yield errors for slopes that do not match the parameters, or are set for a group."""
    count = len(study.federation().parameters)
    if loc != ("timing",):
        remedy = "has slopes that apply to all agents; set it in [timing], and set a speed for this group"
        yield SettingError((*loc, "evaluation", "model"), remedy)
    elif len(model.slopes) != count:
        yield SettingError((*loc, "evaluation", "slopes"), f"must be one number for each of the {count} parameters")


def _costly() -> str:
    known = {name: declared.costly for name, declared in federations().items() if hasattr(declared, "costly")}
    # A property: it has costs only if what it stands for has them.
    return ", ".join(f"{name} with a cost" if isinstance(costly, property) else name for name, costly in sorted(known.items()))


def _short_days(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for days too short for any step, where an absence loses the step each time."""
    if study.timing.clock == "wall" or study.budget.time is not None:
        return
    owners: list[tuple[Loc, Any]] = [(("availability",), study)]
    if study.agents.targets == "all":  # else a group may be of agents that evaluate nothing
        owners += [(("group", number, "availability"), table) for number, table in enumerate(study.group)]
    for loc, owner in owners:
        days = (owner.availability or study.availability).make()
        leaving = study.availability.leaving if owner is study else owner.leaving or study.availability.leaving
        if owner is study and study.group or not isinstance(days, Daily) or leaving == "resumed" or days.present >= days.day:
            continue
        step = _shortest(study, study.timing if owner is study else owner)
        if step > days.present:
            remedy = f"is shorter than a step of {step:g}, which every absence would interrupt; lengthen it, set leaving = "
            yield SettingError((*loc, "present"), f'{remedy}"resumed", or limit the study by [budget] time')


def _shortest(study: StudyTables, owner: Any) -> float:
    """Return a lower bound on the time of a step that every target makes: its initial points, or one point."""
    length = (owner.evaluation or study.timing.evaluation).make()
    if not isinstance(length, Constant) or study.timing.devices is not None:
        return 0.0
    factor = float(min((owner.speed or study.timing.speed).make().factors))
    limit = study.evaluation.make().time_limit
    one = length.mean * factor if limit is None else min(length.mean * factor, limit)
    begins = any(table.centralised or isinstance(table.make(), Starting) for table in study.algorithm)
    known = not begins and study.agents.initial_file is None
    own = getattr(owner, "initial", None)
    initial = study.agents.initial if own is None else own
    pulls = getattr(owner, "pulls", None) or study.budget.pulls
    return one * max(1, min(initial, pulls or initial) if known else 1)


def _plan(study: StudyTables) -> Iterator[SettingError]:
    groups, end = [table.name for table in study.group], study.budget.time
    for number, table in enumerate(study.fault):
        fault = table.make()
        remedy = _who(getattr(fault, "agents", "all"), groups, study.federation().n_agents)
        if remedy:
            yield SettingError(("fault", number, "agents"), remedy)
        key = "start" if isinstance(fault, MESSAGE_FAULTS) else "at"
        begins = (fault.start,) if isinstance(fault, MESSAGE_FAULTS) else set_times(fault)
        if end is not None and max(begins, default=0.0) >= end:
            yield SettingError(("fault", number, key), f"must be before the study's end; [budget] time = {end:g}")


def _who(agents: Any, groups: Collection[str], count: int) -> str | None:
    if not isinstance(agents, str):
        return agents_remedy(agents, count)
    return None if agents == "all" or agents in groups else unknown("group", agents, ("all", *groups))
