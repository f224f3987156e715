"""Private studies carried out in this process: what agents said, what was released, and what happened when."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import logged

import fedbo.actors.agent
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.hosts import InlineHosts
from fedbo.algorithms.base import Private
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.environment.lies import Lies
from fedbo.coordinator.errors import EndlessError
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.execution.jobs import learnings, runs
from fedbo.objectives.derived.federation import with_all_metrics
from fedbo.objectives.outcome import Outcome, outcome_of
from fedbo.privacy.aggregator import PrivateAggregator
from fedbo.privacy.ledger import LedgerEntry, accounted, table_of
from fedbo.study.study import Study

Array = np.ndarray[Any, Any]
Seen = tuple[Any, ...]  # of an event: its time, kind, agent and bytes, and the numbers of its step, answer, round or worker


@dataclass
class Released:
    """A release: its ledger entry, and by how much each agent's own data could be seen to move it, over the noise."""

    entry: LedgerEntry
    influence: dict[int, float]


@dataclass
class Lived:
    """A run as it happened."""

    run: Run
    seen: list[Seen] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    failed: bool = False

    def charged(self, n_agents: int) -> dict[int, list[float]]:
        """Return the epsilons of each agent at the study's deltas, as the ledger has them."""
        entries = [one.entry for one in self.released]
        _, spent = accounted(table_of(entries, self.run.key), self.run.budget.deltas, n_agents)
        return {row["agent"]: row["epsilon"] for row in spent.to_pylist()}


class Mirrored:
    """An objective with other values at every point, which fails nowhere else and takes as long."""

    best_value = None

    def __init__(self, objective: Any) -> None:
        self._objective = with_all_metrics(objective)

    def evaluate(self, x: Array, rng: np.random.Generator) -> Outcome:
        found = outcome_of(self._objective.evaluate(x, rng))
        return Outcome(_mirrored(found.value), metrics={name: _mirrored(value) for name, value in found.metrics.items()})

    def score(self, x: Array) -> float | None:
        return None


def _mirrored(value: float) -> float:
    return math.cos(7.0 * value) - 2.0 * value


class Silent:
    """A source of noise without noise; coins and secrets are as they were."""

    def __init__(self, source: Any) -> None:
        self.uniform, self.words = source.uniform, source.words

    def normal(self, purpose: str, number: int, hidden: Array) -> Array:
        return np.zeros(hidden.shape)


def live(study: Study, folder: Path, mirrored: Sequence[int] = (), make: Any = Mirrored) -> Iterator[Lived]:
    """Carry out the private runs of a study, with other values for the `mirrored` agents."""
    parts = folder / "parts"
    for job in learnings(study, parts):
        Coordinator().learn(job)
    for run in runs(study, parts):
        if isinstance(run.task.algorithm, Private):
            with pytest.MonkeyPatch.context() as patch:
                lived = _lived(run, patch, mirrored, make)
            yield lived  # when the patches are off again, since two of these may go on by turns


def _lived(run: Run, patch: pytest.MonkeyPatch, mirrored: Sequence[int], make: Any) -> Lived:
    origin, lived = dict[bytes, int](), Lived(run)
    objective_of, falsified, release = fedbo.actors.agent.objective_of, Lies.falsified, PrivateAggregator.release

    def other_objective(federation: Any, agent: int, world: Any) -> Any:
        objective = objective_of(federation, agent, world)
        return make(objective) if agent in mirrored else objective

    def lying(lies: Lies, message: Any, newest: Any, now: float) -> Any:
        payload, told = falsified(lies, message, newest, now)
        if payload is not message.payload and newest is not None and payload is newest.payload:
            origin[_bytes(payload)] = newest.sender
        return payload, told

    def releasing(aggregator: PrivateAggregator, state: Any, server: Any, staleness: Array, *rest: Any) -> Any:
        before, count = copy.deepcopy(state), len(aggregator.entries)
        after = release(aggregator, state, server, staleness, *rest)
        (entry,) = aggregator.entries[count:]
        moved = {} if entry.refused else _influence(aggregator, before, staleness, origin, rest)
        lived.released.append(Released(entry, moved))
        return after

    patch.setattr(fedbo.actors.agent, "objective_of", other_objective)
    patch.setattr(Lies, "falsified", lying)
    patch.setattr(PrivateAggregator, "release", releasing)

    def sink(lines: Sequence[EventLine]) -> None:
        for event in logged(lines):
            numbers = (event.step, event.answer, event.round, event.worker)
            lived.seen.append((event.time, event.kind, event.agent, event.bytes, *numbers))
            lived.failed |= event.kind in ("failed", "rejected")

    core = assembled(run.task, run.exchange, run.environment, run.budget)
    hosts = InlineHosts(run.task, range(run.task.problem.n_agents))
    try:
        run_virtual(core, hosts, RunHooks(sink), EventQueue(), run.until)
    except (EndlessError, EvaluationError):
        lived.failed = True  # what happened until then was seen all the same
    return lived


def _bytes(payload: Any) -> bytes:
    (array,) = payload.values()
    return np.asarray(array, dtype=float).tobytes()


def _influence(
    aggregator: PrivateAggregator, state: Any, staleness: Array, origin: dict[bytes, int], rest: Any
) -> dict[int, float]:
    """Measure by how much a release without its noise changes if all that follows one agent's data becomes zeros.

    In units of the noise, whose deviation is z phi_max S / q (Dai et al. 2021, Alg. 1 line 10).
    """
    mechanism, problem = aggregator.mechanism, aggregator._problem
    if not mechanism.noise:
        return {}
    weights = aggregator._algorithm.weights(problem, state.release)
    largest = weights.max(axis=1) if mechanism.per_block else np.full(len(weights), weights.max())
    counted = mechanism.quantile is not None
    z = (mechanism.noise**-2 - (2 * mechanism.count_noise) ** -2) ** -0.5 if counted else mechanism.noise
    sd = z * largest * state.clip / mechanism.share

    def released(held: Array) -> tuple[Array, float]:
        trial = copy.deepcopy(state)
        trial.held, trial.norms = held, np.sqrt((held**2).sum(axis=1))
        arrived = np.flatnonzero(trial.bases >= 0)
        vectors, _, _ = aggregator._vectors(trial, weights, staleness, arrived, *rest[1:])
        # The clipping norm follows the noisy count of messages that were not clipped: exp(-rate (count / (q N) - ...)).
        votes = -math.log(trial.clip / state.clip) / mechanism.rate * mechanism.share * problem.n_agents if counted else 0.0
        return vectors, votes

    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregator, "_source", Silent(aggregator._source))
        whole, votes = released(state.held.copy())
        found = {}
        arrived = np.flatnonzero(state.bases >= 0).tolist()
        owners = {row: origin.get(state.held[row].tobytes(), row) for row in arrived}
        for agent in sorted(set(owners.values())):
            held = state.held.copy()
            held[[row for row in arrived if owners[row] == agent]] = 0.0
            vectors, other = released(held)
            moved = float(np.square((whole - vectors) / sd[:, None]).sum())
            found[agent] = math.sqrt(moved + (((votes - other) / mechanism.count_noise) ** 2 if counted else 0.0))
    return found
