"""Measures by which a group takes its share of agents: slowness or absence may depend on the objective or the data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from fedbo.actors.task import objective_of
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Array, Sized
from fedbo.objectives.derived.mean import BatchFunction, even_points
from fedbo.objectives.space import from_unit
from fedbo.settings.errors import SettingError, unknown
from fedbo.study.agents.histories import history_sources, observed
from fedbo.study.files import hash_files, source_hashes
from fedbo.study.study_tables import StudyTables
from fedbo.study.tables import ObjectiveTable

MEASURES = ("number", "difficulty", "distance", "data", "history")
POINTS = 1024  # of the unit cube, at which functions are looked at


def measure(study: StudyTables, by: str, replicate: int) -> Array:
    """Return a measure of each agent of a replicate, `(agents,)`; SettingError for an unknown one.

    - "number": the agent's number.
    - "difficulty": mean gap of a uniform point to the best one, as a share of the function's range.
    - "distance": distance of the agent's best point from the mean of all agents' best points, in the unit cube.
    - "data": number of training examples; "history": number of observations before the study.
    - name of a parameter: that coordinate of the agent's best point.
    """
    if by == "number":
        return np.arange(study.federation().n_agents, dtype=np.float64)
    if by == "history":
        return _observations(study, replicate)
    objective = {"objective": study.objective.model_dump(mode="json")}
    contents = repr(hash_files(objective, source_hashes(objective)))
    return _of_objectives((study.objective.model_dump_json(), contents), (study.study.seed, replicate), by)


def check_measure(study: StudyTables, by: str) -> None:
    """Raise SettingError for a measure that the agents do not have; only the first agent is checked."""
    federation = study.federation()
    names = [parameter.name for parameter in federation.parameters]
    if by not in (*MEASURES, *names):
        raise SettingError("by", unknown("measure", by, (*MEASURES, *names)))
    if by == "history" and not history_sources(study):
        raise SettingError("by", "orders by observations before the study, but there are none; add [agents.history]")
    if by not in ("number", "history"):
        _suits(study.objective.name, objective_of(federation, 0, Streams(study.study.seed, 0)), by)


def _suits(name: str, objective: Any, by: str) -> None:
    if by == "data":
        if not isinstance(objective, Sized):
            remedy = f"'{name}' has no data sizes; use difficulty or distance"
            raise SettingError("by", remedy)
    elif not isinstance(objective, BatchFunction):
        raise SettingError("by", f"'{name}' has no noise-free values at many points; use number, data or history")


def _observations(study: StudyTables, replicate: int) -> Array:
    counts = np.zeros(study.federation().n_agents)
    for source in history_sources(study):
        if source.table.algorithm is not None:
            counts[list(source.agents)] = source.table.observations or 0
            continue
        for agent, rows in observed(study, source, replicate).items():
            counts[agent] = len(rows)
    return counts


@lru_cache(maxsize=16)
def _of_objectives(objective: tuple[str, str], run: tuple[int, int], by: str) -> Array:
    """Return a measure of the objectives of a table and the contents of its files, for the seed and the replicate of a run."""
    (table, _), (seed, replicate) = objective, run
    federation, world = ObjectiveTable.model_validate_json(table).make(), Streams(seed, replicate)
    agents: Iterator[Any] = (objective_of(federation, agent, world) for agent in range(federation.n_agents))
    if by == "data":
        return np.array([agent.data_size for agent in agents], dtype=np.float64)
    names = [parameter.name for parameter in federation.parameters]
    units = even_points(len(names), POINTS)
    natives = from_unit(federation.parameters, units)
    if by == "difficulty":
        return np.array([_difficulty(agent.scores(natives)) for agent in agents])
    best = np.array([units[np.argmax(agent.scores(natives))] for agent in agents])
    if by == "distance":
        return np.asarray(np.linalg.norm(best - best.mean(axis=0), axis=1))
    return np.asarray(best[:, names.index(by)])


def _difficulty(values: Array) -> float:
    best, worst = values.max(), values.min()
    return float((best - values.mean()) / (best - worst)) if best > worst else 0.0
