"""The environment of a study by agent: groups, models, and the agents that faults affect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from fedbo.coordinator.environment.availability import Within
from fedbo.coordinator.environment.environment import AgentModels, Environment, Ways
from fedbo.coordinator.environment.faults import Fault, Preemption, Restart
from fedbo.coordinator.environment.timing import SpeedClasses
from fedbo.coordinator.environment.traces import Capacity, not_there, read_capacities
from fedbo.settings.errors import SettingError
from fedbo.study.environment.groups import placed, share_of
from fedbo.study.environment.measures import measure
from fedbo.study.environment.tables import GroupTable
from fedbo.study.study_tables import StudyTables

_OWN = ("speed", "bandwidth")
_KBIT = 125.0  # bytes


def members_in(study: StudyTables, replicate: int) -> dict[str, tuple[int, ...]]:
    """Return the agents of each group in a replicate, ascending.

    A group with a measure takes the agents with the largest values among those in no earlier group; ties go to the higher
    number. Groups without a measure are filled first.
    """
    found, left = placed(study)
    count = study.federation().n_agents
    for table in study.group:
        if table.by is not None and table.share is not None:
            measured = measure(study, table.by, replicate)
            left = sorted(left, key=lambda agent: (measured[agent], agent))  # noqa: B023
            first = max(0, len(left) - share_of(table.share, count))
            found[table.name], left = tuple(sorted(left[first:])), left[:first]
    return found


def environment_of(study: StudyTables, replicate: int = 0) -> Environment:
    """Return the environment of one cell of a study in a replicate."""
    groups, network = members_in(study, replicate), study.network
    common = _common(study)
    own = {table.name: _models(common, table) for table in study.group}
    exceptions = {agent: own[table.name] for table in study.group for agent in groups[table.name]}
    everybody = tuple(range(study.federation().n_agents))
    if study.timing.devices is not None:
        exceptions = _on_devices(study, {agent: exceptions.get(agent, common) for agent in everybody}, groups)
    who = {"all": everybody, **groups}
    return Environment(
        common=common,
        exceptions=exceptions,
        link=network.link,
        retry=network.retry,
        attempts=network.attempts,
        plan=tuple(_resolved(table.make(), who) for table in study.fault),
        cluster=None if study.cluster is None else study.cluster.make(study.evaluation.make().resources, loaded=True),
        idle_rows=study.record.idle,
        detection=None if study.detection is None else study.detection.make(),
    )


def centralised(environment: Environment) -> Environment:
    """Return the environment of a single, centralised agent: the study's own models, without groups and faults of agents."""
    plan = tuple(fault for fault in environment.plan if isinstance(fault, Preemption))
    return replace(environment, exceptions={}, plan=plan)


def _common(study: StudyTables) -> AgentModels:
    timing = study.timing
    return AgentModels(
        evaluation=timing.evaluation.make() if timing.clock == "virtual" else None,
        speed=timing.speed.make(),
        decision=timing.decision.make(),
        latency=timing.latency.make(),
        bandwidth=_of_link(study.network.bandwidth),
        availability=study.availability.make(),
        leaving=study.availability.leaving,
    )


def _on_devices(
    study: StudyTables, models: Mapping[int, AgentModels], groups: Mapping[str, tuple[int, ...]]
) -> dict[int, AgentModels]:
    """Return each agent's models with the speed and bandwidth of its device, unless its group sets them."""
    found = capacities(str(study.timing.devices))
    typical = median(one.computation for one in found)
    own = {key: {agent for one in study.group if getattr(one, key) is not None for agent in groups[one.name]} for key in _OWN}
    made: dict[tuple[int, int, bool, bool], AgentModels] = {}
    placed: dict[int, AgentModels] = {}
    for agent, before in models.items():
        key = (agent % len(found), id(before), agent in own["speed"], agent in own["bandwidth"])
        if key not in made:
            device = found[agent % len(found)]
            speed = before.speed if key[2] else SpeedClasses((device.computation / typical,))
            made[key] = replace(before, speed=speed, bandwidth=before.bandwidth if key[3] else device.communication * _KBIT)
        placed[agent] = made[key]
    return placed


def capacities(path: str) -> tuple[Capacity, ...]:
    """Read the capacities of devices; SettingError for an invalid file. The result is cached until the file changes."""
    return _capacities(path, Path(path).stat().st_mtime_ns if Path(path).is_file() else 0)


@lru_cache(maxsize=4)
def _capacities(path: str, modified: int) -> tuple[Capacity, ...]:
    try:
        return read_capacities(path)
    except FileNotFoundError:
        raise SettingError("devices", not_there(path)) from None


def _models(common: AgentModels, table: GroupTable) -> AgentModels:
    """Return the models of a group, whose agents may join late and leave for good."""
    models = replace(common, **_differences(table))
    if table.from_ is None and table.until is None:
        return models
    within = Within(models.availability, table.from_ or 0.0, math.inf if table.until is None else table.until)
    return replace(models, availability=within)


def _differences(table: GroupTable) -> dict[str, Any]:
    named = {key: getattr(table, key) for key in ("evaluation", "speed", "decision", "latency", "availability")}
    made = {key: model.make() for key, model in named.items() if model is not None}
    plain = {key: getattr(table, key) for key in ("bandwidth", "leaving") if getattr(table, key) is not None}
    return {**made, **plain, **({"bandwidth": _of_link(table.bandwidth)} if "bandwidth" in plain else {})}


def _of_link(given: Any) -> float | Ways | None:
    return Ways(**given) if isinstance(given, dict) else given


def _resolved(fault: Fault, who: Mapping[str, tuple[int, ...]]) -> Fault:
    """Replace "all" and the name of a group by their agents; faults of the coordinator and of workers have none."""
    if isinstance(fault, Restart | Preemption):
        return fault
    agents = who[fault.agents] if isinstance(fault.agents, str) else tuple(sorted(fault.agents))
    return replace(fault, agents=agents)
