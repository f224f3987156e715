"""Asynchronous evaluations of one agent in real time: several are pending, and a step ends when one of them ends.

The initial points are no barrier. Decisions start when the first of them has a value, and treat the others as pending. Each
finished evaluation is logged first and then learned from, one by one in the order of the log. A process that takes over, or a
replay, therefore learns from them in the same order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fedbo.actors.agent import HostedAgent
from fedbo.actors.agent_state import AgentState
from fedbo.actors.evaluation.evaluator import EvaluationError, with_metrics
from fedbo.actors.evaluation.failed_points import keeps_points, takes_worst, with_failures
from fedbo.actors.evaluation.learning import Learner, learned
from fedbo.actors.evaluation.step import StepResult, queries_of
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.task import BudgetUse, StepRequest, Task, reported_stopping
from fedbo.algorithms.base import Decision
from fedbo.algorithms.returned import updated
from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed, copied

_TICK = 1e-9  # seconds, less than which no two evaluations end apart


class EvaluationPool(Protocol):
    """A pool in which evaluations of one agent run concurrently."""

    def start(self, query: Query, streams: Streams) -> None:
        """Start an evaluation, unless it is running already."""

    def wait(self) -> EvaluationRecord | None:
        """Wait for the next evaluation to end and return its record; None after an interruption.

        Its times are those of `time.time`.
        """

    def close(self) -> None:
        """Cancel the running evaluations."""


class ReplayPool:
    """The pool of a replay, in which nothing runs because all evaluations are in the log."""

    def start(self, query: Query, streams: Streams) -> None:
        """Do nothing."""

    def wait(self) -> EvaluationRecord | None:
        """Return None, since nothing runs."""
        return None

    def close(self) -> None:
        """Do nothing, since nothing runs."""


def overlapping_evaluations(
    agent: HostedAgent, config: HostConfig, log: EvaluationLog | None, clock: Callable[[], float], halted: Callable[[], bool]
) -> AsyncEvaluations:
    """Return the overlapping evaluations of an agent in real time, or in a replay; `halted` returns whether to stop waiting."""
    task, folder = agent.task, config.folder.path
    pool: EvaluationPool = ReplayPool()
    policy, rules = task.policy, reported_stopping(task, folder)
    if not config.recorded:
        from fedbo.workers.ray_pool import Limits, RayPool  # Ray is not imported where nothing runs on it

        limits = Limits(str(folder), policy.time_limit, policy.memory_limit, rules)
        pool = RayPool(agent.objective, policy, agent.number, limits, halted, config.dispatcher, config.labels)
    return AsyncEvaluations(task, pool, log, clock, policy.failure == "stop" and not config.recorded, rules)


class AsyncEvaluations:
    """The overlapping evaluations of one agent.

    `again` states whether earlier failures are evaluated again; `rules` are the `ReportedStopping`, if any.
    """

    def __init__(
        self,
        task: Task,
        pool: EvaluationPool,
        log: EvaluationLog | None,
        clock: Callable[[], float],
        again: bool,
        rules: Any = None,
    ) -> None:
        self._task, self._pool, self._log, self._clock, self._again = task, pool, log, clock, again
        self._rules = rules
        self._last = -np.inf

    def close(self) -> None:
        """Cancel the running evaluations."""
        self._pool.close()

    def step(
        self, agent: int, state: AgentState, decision: Decision, request: StepRequest
    ) -> tuple[AgentState, StepResult, bool]:
        """Start the decided evaluations and learn from finished ones until a place is free; at the last step, until all end.

        Returns the agent's new state, the finished evaluations, and whether waiting was interrupted.
        """
        queries = queries_of(self._task, agent, request.step, decision, state.evaluated)
        if self._rules is not None:
            queries = [self._rules.begun(query, self._task.streams.of(agent)) for query in queries]
        state = copied(state)
        state.pending = (*state.pending, *queries)
        state.evaluated += len(queries)
        state.pulled += len(queries)
        state.spent = math.inf if decision.last else state.spent
        ended, records = list[Query](), list[EvaluationRecord]()
        for query in state.pending:
            self._start(query)
        decided = len(state.pending)
        while len(state.pending) >= self._task.least_pending(
            agent, request.step, decided, state.t_n, BudgetUse(time=state.spent)
        ):
            found = self._next(state)
            if found is None:
                break
            ended.append(found[0])
            records.append(found[1])
            state.spent += found[1].finished - found[1].started
            self._take_in(state, *found)
        else:
            return state, StepResult(tuple(ended), tuple(records)), False
        return state, StepResult(tuple(ended), tuple(records)), True

    def _start(self, query: Query) -> None:
        if self._logged(query) is None:
            self._pool.start(query, self._task.streams.of(query.agent).at(query.number))

    def _logged(self, query: Query) -> EvaluationRecord | None:
        found = self._log.find(query) if self._log is not None else None
        return None if found is None or (found.error is not None and self._again) else found

    def _next(self, state: AgentState) -> tuple[Query, EvaluationRecord] | None:
        """Return the next finished evaluation: those in the log first, in its order."""
        logged = [(query, record) for query in state.pending if (record := self._logged(query)) is not None]
        if logged:
            return min(logged, key=lambda pair: pair[1].finished)
        by_number = {query.number: query for query in state.pending}
        while True:
            record = self._pool.wait()
            if record is None:
                return None
            if record.number in by_number:  # else it belongs to a step that was taken back
                return by_number[record.number], self._logged_now(by_number[record.number], record)

    def _logged_now(self, query: Query, record: EvaluationRecord) -> EvaluationRecord:
        """Log a finished evaluation with times of the study. No time is in the future, whatever its machine's clock says."""
        ago = max(time.time() - record.finished, 0.0) if record.finished else 0.0
        if (goals := self._task.goals_of(record.agent)) is not None:
            record = with_metrics(goals, query, record)
        finished = self._last = max(self._clock() - ago, self._last + _TICK)
        record.started, record.finished = finished - (record.finished - record.started), finished
        if self._log is not None:
            self._log.append([record])
        return record

    def _take_in(self, state: AgentState, query: Query, record: EvaluationRecord) -> None:
        """Learn from a finished evaluation, or start it again if it failed."""
        policy = self._task.policy
        pending = tuple(other for other in state.pending if other.number != query.number)
        if record.error is not None and query.tries < policy.retries:
            again = changed(query, number=state.evaluated, tries=query.tries + 1)
            self._start(again)
            state.pending = (*pending, again)
            state.evaluated += 1
            return
        if record.error is not None and policy.failure == "stop":
            raise EvaluationError(record.error.splitlines()[0])
        tell_one(self._task, state, query, record)
        state.pending = pending
        if self._rules is not None:
            self._continue(state, query, record)

    def _continue(self, state: AgentState, query: Query, record: EvaluationRecord) -> None:
        """Continue the best paused evaluation, if any, in place of one that has ended; it gets the next number."""
        state.rungs, found = self._rules.ended(state.rungs, query, record, state.spent < self._task.cost)
        if found is not None:
            again = changed(found, number=state.evaluated, tries=0)
            self._start(again)
            state.pending, state.evaluated = (*state.pending, again), state.evaluated + 1


def tell_one(task: Task, state: AgentState, query: Query, record: EvaluationRecord) -> None:
    """Pass one ended evaluation to the algorithm and update `state`; with policy "avoid", pass a failure too.

    Under other policies a failure changes nothing.
    """
    told, x = None, np.array([query.u])
    if record.error is None:
        told = record.outcome.value
        state.t_n += 1
        state.worst = told if state.worst is None else min(state.worst, told)
    elif task.policy.failure == "avoid":
        if keeps_points(task.algorithm):
            state.algorithm, state.failed = with_failures(task.algorithm, state.algorithm, state.failed, x)
        told = state.worst if takes_worst(task.algorithm) else None
    if (goals := task.goals_of(query.agent)) is not None:
        seen = np.arange(told is not None, dtype=np.int64), np.array([] if told is None else [told])
        one = {0: record.outcome}
        state.algorithm = learned(Learner(task.algorithm, task.policy), goals, state.algorithm, x, seen, one, state.worst)
    elif told is not None:
        state.algorithm = updated(task.algorithm, "tell", state.algorithm, x, np.array([told]))
