"""Runs of a study without computation: the same events, for decisions and messages of the same sizes.

The decisions of an algorithm do not change the times of events, except if durations depend on the point. So a stand-in
draws its points from a pool, sends zeros of the declared shapes, and learns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.storage.rows import OBSERVATIONS, read_table
from fedbo.algorithms.base import Algorithm, Decision, Declaration, Inbound, Overlapping, Payload, Private, Problem
from fedbo.algorithms.streams import Streams
from fedbo.analysis.grouping import by_run
from fedbo.analysis.manifest import STUDY
from fedbo.coordinator.logged.table import EVENTS
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.execution.directory import gather
from fedbo.execution.jobs import runs
from fedbo.lab.twins.families import Array
from fedbo.study.study import Study


@dataclass(frozen=True)
class StandIn:
    """A stand-in for an `original` algorithm, with points drawn from the `pool (n, d)`, or uniformly if that is empty."""

    original: Algorithm
    problem: Problem
    pool: Array

    @property
    def queries(self) -> int | None:
        """Return the number of points of every decision."""
        return self.original.queries

    def sends(self, step: int) -> bool:
        """Check whether agents send a message after a step."""
        return self.original.sends(step)

    def upload(self, problem: Problem) -> Declaration | None:
        """Return the declaration of an agent's message."""
        return self.original.upload(problem)

    def download(self, problem: Problem) -> Declaration | None:
        """Return the declaration of the coordinator's answer."""
        return self.original.download(problem)

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Return the empty state of an agent."""
        return ()

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Draw the next points."""
        rng, count = streams.rng("stand-in"), self.queries or 1
        drawn = self.pool[rng.integers(len(self.pool), size=count)] if len(self.pool) else rng.random((count, self.problem.dim))
        return Decision(drawn, "random"), state

    def tell(self, state: Any, x: Array, y: Array) -> Any:
        """Return the state unchanged."""
        return state

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Send zeros."""
        return _zeros(self.upload(self.problem)), state

    def server_init(self, problem: Problem) -> Any:
        """Return the empty state of the coordinator."""
        return ()

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        """Return the state unchanged."""
        return state

    def broadcast(
        self, state: Any, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Any]:
        """Answer with zeros."""
        answer = _zeros(self.download(self.problem))
        return ({} if answer is None else dict.fromkeys(recipients, answer)), state


@dataclass(frozen=True)
class OverlappingStandIn(StandIn):
    """A stand-in for an algorithm that can decide while evaluations are pending."""

    def pending(self, state: Any, x: Array) -> Any:
        """Return the state unchanged."""
        return state


def can_be_stood_in_for(algorithm: Algorithm) -> bool:
    """Check whether an algorithm's decisions and messages have fixed sizes and pass no mechanism."""
    return algorithm.queries is not None and not isinstance(algorithm, Private)


def dry_runs(study: Study, folder: Path, pool: Array) -> Iterator[tuple[Any, Any]]:
    """Run the runs of a study in virtual time with stand-ins, in this process; yield the observations and events of each."""
    coordinator, work = Coordinator(), [stood_in(run, pool) for run in runs(study, folder / "parts")]
    for run in work:
        coordinator.run(run)
    (folder / STUDY).write_text(study.to_toml(), encoding="utf-8")
    gather(study, folder, [run.key for run in work])
    observations = read_table(folder / "observations.parquet", OBSERVATIONS)
    events = read_table(folder / "events.parquet", EVENTS)
    evaluated = dict(by_run(observations))
    for key, happened in by_run(events):
        yield evaluated.get(key, observations.slice(0, 0)), happened


def stood_in(run: Run, pool: Array) -> Run:
    """Return a run with a stand-in for its algorithm."""
    task = run.task
    made = OverlappingStandIn if isinstance(task.algorithm, Overlapping) else StandIn
    return replace(run, hosts=0, task=replace(task, algorithm=made(task.algorithm, task.problem, pool), noise=0.0))


def _zeros(declared: Declaration | None) -> Payload | None:
    """Return arrays of zeros as declared, of length 1 where that varies; their bounds are not checked."""
    if declared is None:
        return None
    return {
        name: np.zeros([1 if length is None else length for length in field.shape], dtype=field.dtype)
        for name, field in declared.items()
    }
