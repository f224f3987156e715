"""Runs of a study with their messages and the truth: what each agent has evaluated, and what it observed."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import RunKey, read_table
from fedbo.actors.task import objective_of
from fedbo.algorithms.base import Algorithm, Array, Problem
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.execution.directory import joined
from fedbo.execution.jobs import learnings, runs
from fedbo.objectives.base import Batched, Federation
from fedbo.objectives.space import from_unit
from fedbo.settings.rooms import optional
from fedbo.study.document import StudyError
from fedbo.study.paths import DirectoryError
from fedbo.study.study import Study
from fedbo_leak.listening import Heard, listen, listening


@dataclass(frozen=True, slots=True)
class Truth:
    """What an agent has observed: points `x (n, d)` of the unit cube, values `y (n,)`, the `step (n,)` of each; `best` is
    the noise-free score of the point that it observed to be the best."""

    x: Array
    y: Array
    step: Array
    best: float

    def until(self, step: int) -> Truth:
        """Return what was known when the message of a step was written."""
        known = self.step <= step
        return Truth(self.x[known], self.y[known], self.step[known], self.best)

    @property
    def best_point(self) -> Array:
        """Return the point `(d,)` with the largest value."""
        return np.asarray(self.x[int(np.argmax(self.y))])


@dataclass(frozen=True)
class WatchedRun:
    """One run: its messages, the truth of each agent, and what everybody may know about the method."""

    key: RunKey
    algorithm: Algorithm
    problem: Problem
    streams: Streams
    federation: Federation | None
    heard: Heard
    agents: dict[int, Truth]
    epsilon: float = math.nan

    @cached_property
    def best_score(self) -> float:
        """Return the mean of the agents' best noise-free scores."""
        return float(np.mean([truth.best for truth in self.agents.values()]))

    def optimum(self, agent: int) -> Array | None:
        """Return the point `(d,)` where an agent's noise-free function is largest, nearly; None where that takes long."""
        federation: Any = self.federation
        return None if federation is None else _optimum(federation, agent, self.streams)


@lru_cache(maxsize=4096)
def _optimum(federation: Any, agent: int, streams: Streams) -> Array | None:
    objective = objective_of(federation, agent, streams)
    if not isinstance(objective, Batched):
        return None
    rng, space = np.random.default_rng(0), federation.parameters
    points = rng.random((4096, len(space)))
    for width in (0.03, 0.01, 0.003):
        best = points[int(np.argmax(objective.scores(from_unit(space, points))))]
        points = np.clip(best + width * rng.standard_normal((512, len(space))), 0.0, 1.0)
        points[0] = best
    return np.asarray(points[0])


def check_watchable(study: Study) -> None:
    """Check that a study can be run again with a listener; StudyError otherwise.

    Without its entry point fedbo would not call the listener, and every method would seem to send nothing.
    """
    if optional("listen") is not listen:
        raise StudyError("no message would be heard: install this plug-in (pip install --no-deps --editable plugins/leak)")
    if study.timing.clock == "wall" or study.hosting.kind == "sites" or study.has_secure_noise:
        raise StudyError("its messages cannot be heard again: it runs in real time, at sites or with secure noise")
    if study.metric:
        raise StudyError("attacks know one objective; remove [[metric]]")


def watch(study: Study, place: Path, label: str = "") -> Iterator[WatchedRun]:
    """Carry out the runs of a study, or of its method with a label, in this process and with a listener.

    `place` is for their files, which are removed.
    """
    check_watchable(study)
    coordinator, parts = Coordinator(), place / "parts"
    shutil.rmtree(parts, ignore_errors=True)
    atomic.make_folder(parts)
    try:
        for job in learnings(study, parts):
            coordinator.learn(job)
        for run in runs(study, parts):
            if label and run.key.algorithm != label:
                continue
            yield _watched(study, run, coordinator)
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _watched(study: Study, run: Run, coordinator: Coordinator) -> WatchedRun:
    run = replace(run, hosts=0, isolate=False, patience=None, seconds=math.inf, events=None)
    with listening() as heard:
        coordinator.run(run)
    tables = joined(study, run.folder, [run.key])
    task, agents = run.task, truths(tables["observations"])
    known = (task.algorithm, task.problem, task.streams, task.federation)
    return WatchedRun(run.key, *known, heard, agents, _epsilon(tables))


def truths(observations: pa.Table) -> dict[int, Truth]:
    """Return what each agent has observed, larger values being better; failed evaluations are no observations."""
    table = observations.filter(pc.is_null(observations["error"]))
    agents = table["agent"].to_numpy()
    x = np.array(table["u"].to_pylist(), dtype=np.float64)
    y, score, step = (table[name].to_numpy() for name in ("value", "score", "step"))
    found = {}
    for agent in np.unique(agents).tolist():
        own = agents == agent
        found[agent] = Truth(x[own], y[own], step[own], float(score[own][int(np.argmax(y[own]))]))
    return found


def _epsilon(tables: dict[str, Any]) -> float:
    """Return the epsilon of the agent that has spent most, at the first delta; NaN without a ledger."""
    spent = tables.get("privacy_agents")
    if spent is None or not len(spent):
        return math.nan
    return float(max(row[0] for row in spent["epsilon"].to_pylist()))


def check_same(directory: Path, heard: Sequence[WatchedRun]) -> None:
    """Check that runs are those of a directory, to the bit; DirectoryError otherwise."""
    table = read_table(directory / "observations.parquet")
    for run in heard:
        mine = [pc.equal(table[name], value) for name, value in zip(run.key._fields, run.key, strict=True)]
        there = truths(table.filter(pc.and_(pc.and_(mine[0], mine[1]), mine[2])))
        same = there.keys() == run.agents.keys() and all(
            np.array_equal(there[agent].x, truth.x) and np.array_equal(there[agent].y, truth.y)
            for agent, truth in run.agents.items()
        )
        if not same:
            words = "cannot be repeated here to the bit, so its messages are not known; attack its study.toml"
            raise DirectoryError(f"'{directory}': {words}")
