"""One agent: its private objective, the state of its half of the algorithm, and the rows that it keeps for itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from fedbo.actors.rows import Row
from fedbo.algorithms.base import Algorithm, Array, Decision, Inbound, Payload, Problem
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Federation, Objective
from fedbo.objectives.space import from_unit


class Order(NamedTuple):
    """What an agent shall do: step number `step`, begun at time `started`, with the messages that came in before.

    `durations` has the length of each evaluation, or is None where that is measured.
    """

    agent: int
    step: int
    started: float
    inbox: tuple[Inbound, ...]
    durations: tuple[float, ...] | None


class Report(NamedTuple):
    """What the coordinator learns of a finished step: how many points there were, and the message. No observations.

    `failure` says why the step could not be carried out.
    """

    agent: int
    step: int
    queries: int
    payload: Payload | None
    failure: str | None = None


class EvaluationError(RuntimeError):
    """An objective raised, or gave a value that is not finite."""


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that the agents of one run are made from; it is the same in every process.

    `initial` maps an agent to its points `(n, d)` before the first decision; for one that it does not name uniform ones are
    drawn. `histories` is the folder where agents keep what they learned in an earlier task. A step that ends after `until`
    leaves no rows, for it lies beyond the study's end, whether or not its evaluations have been computed.
    """

    federation: Federation
    algorithm: Algorithm
    problem: Problem
    streams: Streams
    noise: float = 0.0
    initial: dict[int, Array] = field(default_factory=dict)
    histories: Path | None = None
    until: float = float("inf")
    phase: str = "search"


class Agent:
    """One agent of a run."""

    def __init__(self, task: Task, number: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.number, self.task, self._clock = number, task, clock
        self.streams = task.streams.of(number)
        self.rows: list[Row] = []
        self.best: Row | None = None
        self._count = 0
        self._decided: tuple[int, Decision] | None = None
        world = replace(task.streams, scope="")  # an agent's objective is the same in all its tasks
        objective = task.federation.objective(number, world.shared("objective"), world.of(number).rng("objective"))
        self._objective: Objective = objective
        x, y = _history(task, number)
        self._problem = replace(task.problem, agent=number, history_x=x, history_y=y)
        self._state: Any = task.algorithm.agent_init(self._problem, self.streams.at(0))

    @property
    def best_value(self) -> float | None:
        """Give the largest noise-free value over the box, where it is known."""
        return self._objective.best_value

    def decide(self, order: Order) -> int:
        """Choose the points of a step; give their number."""
        if self._decided is not None and self._decided[0] == order.step:
            return len(self._decided[1].x)
        if order.step == 0:
            decision = Decision(self._initial_points(), "initial")
        else:
            streams = self.streams.at(order.step)
            decision, self._state = self.task.algorithm.ask(self._state, order.inbox, streams)
        self._decided = order.step, decision
        return len(decision.x)

    def work(self, order: Order) -> Report:
        """Carry a step out: decide, evaluate, learn, and write the message; EvaluationError when that fails."""
        self.decide(order)
        assert self._decided is not None
        (_, decision), self._decided = self._decided, None
        algorithm, streams = self.task.algorithm, self.streams.at(order.step)
        if len(decision.x):
            values = self._evaluate(order, decision)
            self._state = algorithm.tell(self._state, decision.x, values)
        payload = None
        if algorithm.sends(order.step):
            payload, self._state = algorithm.outbox(self._state, streams)
        return Report(self.number, order.step, len(decision.x), payload)

    def _initial_points(self) -> Array:
        if self.number not in self.task.problem.targets:
            return np.empty((0, self._problem.dim))
        given = self.task.initial.get(self.number)
        if given is not None:
            return given
        return self.streams.at(0).rng("initial points").random((self._problem.initial, self._problem.dim))

    def _evaluate(self, order: Order, decision: Decision) -> Array:
        begun = self._clock() if order.durations is None else order.started
        natives = from_unit(self.task.federation.parameters, decision.x)
        values = np.empty(len(natives))
        phase = "initial" if order.step == 0 and self.task.phase == "search" else self.task.phase
        rows = []
        for query, native in enumerate(natives):
            clean = self._call(native)
            ended = self._clock() if order.durations is None else begun + order.durations[query]
            score = self._objective.score(native)
            values[query] = clean + self._noise()
            row = Row(
                agent=self.number,
                phase=phase,
                step=order.step,
                query=query,
                origin=decision.origin,
                x=native.tolist(),
                u=decision.x[query].tolist(),
                value=float(values[query]),
                score=clean if score is None else score,
                started=begun,
                finished=ended,
                t_n=self._count,
            )
            rows.append(row)
            begun = ended
        # The sum is taken as the engine takes it, so that both agree on the last bit about what is too late.
        if (begun if order.durations is None else order.started + sum(order.durations)) <= self.task.until:
            self._keep(rows)
        return values

    def _keep(self, rows: list[Row]) -> None:
        self.rows += rows
        for row in rows:
            if self.best is None or row.value > self.best.value:
                self.best = row

    def _noise(self) -> float:
        if not self.task.noise:
            return 0.0
        return float(np.sqrt(self.task.noise) * self.streams.at(self._count).rng("added noise").standard_normal())

    def _call(self, native: Array) -> float:
        rng = self.streams.at(self._count).rng("evaluation")
        self._count += 1
        try:
            value = float(self._objective.evaluate(native, rng))
        except Exception as error:
            raise EvaluationError(f"agent {self.number} at x = {native.tolist()}: {type(error).__name__}: {error}") from error
        if not np.isfinite(value):
            raise EvaluationError(
                f"agent {self.number} at x = {native.tolist()}: the objective gave {value}, not a finite number"
            )
        return value


def history_file(folder: Path, agent: int) -> Path:
    """Name the file in which an agent keeps what it learned in an earlier task."""
    return folder / f"agent-{agent:05d}.parquet"


def _history(task: Task, number: int) -> tuple[Array | None, Array | None]:
    if task.histories is None:
        return None, None
    table = pq.read_table(history_file(task.histories, number), columns=["u", "value"])
    x = np.array(table["u"].to_pylist(), dtype=np.float64).reshape(len(table), task.problem.dim)
    return x, table["value"].to_numpy()
