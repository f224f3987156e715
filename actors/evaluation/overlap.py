"""Evaluations of one agent that overlap in real time: up to so many are under way, and a step ends when one place is free.

Whatever ends is written to the log before anything else is made of it, and is taken in one by one in the order of the log, so
that a process that takes over, or a replay, takes them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedbo.actors.evaluation.evaluator import EvaluationError, EvaluationLog, Known, Outcome
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.memory import Flying, Memory
from fedbo.actors.task import StepRequest, Task
from fedbo.algorithms.base import Decision
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Objective
from fedbo.objectives.space import from_unit

_TICK = 1e-9  # seconds, less than which no two evaluations end apart


class Ran(NamedTuple):
    """What came of an evaluation elsewhere: its number, value and score, or the error; the seconds it took; other metrics."""

    number: int
    value: float
    score: float
    error: str | None
    seconds: float
    metrics: str | None = None


class Bench(Protocol):
    """Where evaluations of one agent run beside each other."""

    def start(self, known: Known, streams: Streams) -> None:
        """Begin an evaluation, unless it is under way already."""

    def wait(self) -> Ran | None:
        """Wait for the next evaluation that ends; None when it was told to wait no longer."""

    def close(self) -> None:
        """Give up what is under way."""


class Recorded:
    """In a replay nothing runs: all is in the log."""

    def start(self, known: Known, streams: Streams) -> None:
        """Begin nothing."""

    def wait(self) -> Ran | None:
        """Nothing ends here."""
        return None

    def close(self) -> None:
        """There is nothing to give up."""


def bench_of(
    objective: Objective, policy: Policy, agent: int, run: str | None, halted: Callable[[], bool], dispatcher: Any
) -> Bench:
    """Give the bench of one agent of a run on Ray, with its dispatcher if it has one, or of a replay, where there is no run."""
    if run is None:
        return Recorded()
    from fedbo.actors.evaluation.ray_pool import RayBench  # Ray is not imported where nothing runs on it

    return RayBench(objective, policy, agent, run, halted, dispatcher)


class Taken(NamedTuple):
    """What a step made of what ended meanwhile: what the agent knows now, the outcomes, and whether it was told to stop."""

    memory: Memory
    ended: tuple[tuple[Flying, Outcome], ...]
    halted: bool


class Overlap:
    """The evaluations of one agent that are under way."""

    def __init__(
        self, task: Task, streams: Streams, bench: Bench, log: EvaluationLog | None, clock: Callable[[], float], again: bool
    ) -> None:
        self._task, self._streams, self._bench, self._log, self._clock = task, streams, bench, log, clock
        self._again = again  # whether what failed before is tried again
        self._last = -np.inf

    def close(self) -> None:
        """Give up what is under way."""
        self._bench.close()

    def step(self, memory: Memory, decision: Decision, order: StepRequest, agent: int) -> Taken:
        """Begin what was decided, and take in what ends until a place is free; at a step that is the last, until all have."""
        flight = list(memory.flight)
        for query, u in enumerate(decision.x):
            number = memory.evaluated + query
            place = tuple(u.tolist())
            flight.append(Flying(agent, number, order.step, query, decision.origin, place, note=decision.note))
        memory = memory._replace(
            flight=tuple(flight), evaluated=memory.evaluated + len(decision.x), pulled=memory.pulled + len(decision.x)
        )
        drains = order.step == 0 or order.step >= self._task.problem.iterations
        ended: list[tuple[Flying, Outcome]] = []
        for flying in memory.flight:
            self._start(flying)
        while len(memory.flight) >= (1 if drains else self._task.policy.parallel):
            found = self._next(memory)
            if found is None:
                return Taken(memory, tuple(ended), True)
            ended.append(found)
            memory = self._took(memory, *found)
        return Taken(memory, tuple(ended), False)

    def _known(self, flying: Flying) -> Known:
        x = from_unit(self._task.federation.parameters, np.array(flying.u))
        return Known(flying.agent, flying.number, flying.query, x)

    def _start(self, flying: Flying) -> None:
        if self._logged(flying) is None:
            self._bench.start(self._known(flying), self._streams.at(flying.number))

    def _logged(self, flying: Flying) -> Outcome | None:
        found = self._log.find(self._known(flying)) if self._log is not None else None
        return None if found is None or (found.error is not None and self._again) else found

    def _next(self, memory: Memory) -> tuple[Flying, Outcome] | None:
        """Give what ended next: what stands in the log before all else, in its order."""
        logged = [(outcome, flying) for flying in memory.flight if (outcome := self._logged(flying)) is not None]
        if logged:
            outcome, flying = min(logged, key=lambda pair: pair[0].finished)
            return flying, outcome
        by_number = {flying.number: flying for flying in memory.flight}
        while True:
            ran = self._bench.wait()
            if ran is None:
                return None
            if ran.number in by_number:  # else it belongs to a step that was taken back
                flying = by_number[ran.number]
                return flying, self._ended(flying, ran)

    def _ended(self, flying: Flying, ran: Ran) -> Outcome:
        finished = self._last = max(self._clock(), self._last + _TICK)
        known = self._known(flying)
        error = None if ran.error is None else f"agent {flying.agent} at x = {known.x.tolist()}: {ran.error}"
        started = finished - ran.seconds
        outcome = Outcome(flying.number, flying.query, known.x, ran.value, ran.score, started, finished, error, 1, ran.metrics)
        if self._log is not None:
            self._log.append(flying.agent, outcome)
        return outcome

    def _took(self, memory: Memory, flying: Flying, outcome: Outcome) -> Memory:
        """Take in what ended: learn from it, or begin it again."""
        policy, algorithm = self._task.policy, self._task.algorithm
        flight = tuple(each for each in memory.flight if each.number != flying.number)
        if outcome.error is not None and flying.tries < policy.retries:
            again = flying._replace(number=memory.evaluated, tries=flying.tries + 1)
            self._start(again)
            return memory._replace(flight=(*flight, again), evaluated=memory.evaluated + 1)
        if outcome.error is not None and policy.failure == "stop":
            raise EvaluationError(outcome.error.splitlines()[0])
        told, worst, t_n = None, memory.worst, memory.t_n
        if outcome.error is None:
            told, t_n = outcome.value, memory.t_n + 1
            worst = told if worst is None else min(worst, told)
        elif policy.failure == "worst":
            told = worst
        state = memory.algorithm
        if told is not None:
            state = algorithm.tell(state, np.array([flying.u]), np.array([told]))
        return memory._replace(flight=flight, algorithm=state, t_n=t_n, worst=worst)
