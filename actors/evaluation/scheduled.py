"""Evaluations of one agent whose beginnings and ends the coordinator schedules one by one, in virtual time.

What an agent is told of them is all that it knows of time: a step is a function of the state before it, of its messages and of
the list of what has ended, so that it can be computed again when the list has grown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedbo.actors.agent_state import AgentState
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.evaluation.pulls import pull_counts
from fedbo.actors.evaluation.step import StepResult, queries_of
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.task import EvaluationEnd, StepRequest, Task
from fedbo.algorithms.base import Decision

Key = tuple[int, int]


class TakenEvaluations(NamedTuple):
    """What ended in a step, which failed evaluations are made `again`, and whether the step is over."""

    result: StepResult
    again: tuple[Key, ...]
    is_over: bool


class ScheduledEvaluations:
    """The scheduled evaluations of one agent; `overlaps` says whether those of several steps may be pending at once."""

    def __init__(self, task: Task, agent: int, evaluate: Callable[[Query], EvaluationRecord]) -> None:
        self._task, self._agent, self._evaluate = task, agent, evaluate
        self.overlaps = task.overlaps
        self._known: dict[int, EvaluationRecord] = {}  # what was computed before it is due, or may be asked for again

    def step(
        self, state: AgentState, decision: Decision, request: StepRequest, ended: Sequence[EvaluationEnd]
    ) -> tuple[AgentState, TakenEvaluations]:
        """Take in what has ended, and compute what is pending meanwhile where the step is not over.

        Where evaluations overlap, the algorithm is told one by one, in the order of their ends; else the caller tells it.
        """
        queries = queries_of(self._task, self._agent, request.step, decision, state.evaluated)
        pending = {(query.step, query.point): query for query in (*state.pending, *queries)}
        decided, evaluated = len(pending), state.evaluated + len(queries)
        made, records = list[Query](), list[EvaluationRecord]()
        for end in ended:
            query = pending.pop((end.step, end.point))
            made.append(query)
            records.append(self._record(query, end))
            if records[-1].error is not None and query.tries < self._task.policy.retries:
                pending[end.step, end.point] = query._replace(number=evaluated, tries=query.tries + 1)
                evaluated += 1
            elif records[-1].error is not None and self._task.policy.failure == "stop":
                raise EvaluationError(records[-1].error.splitlines()[0])
            elif self.overlaps:
                state = tell_one(self._task, state, query, records[-1])
        seen = state.t_n + (0 if self.overlaps else sum(record.error is None for record in records))
        pulled = state.pulled + int(pull_counts(decision).sum()) if self._task.problem.pulls else 0
        is_over = len(pending) < self._task.least_pending(self._agent, request.step, decided, seen, pulled)
        left = tuple(pending.values())
        if is_over:
            self._known = {query.number: self._known[query.number] for query in left if query.number in self._known}
        for query in () if is_over else left:
            self._value(query)
        if self.overlaps:
            state = state._replace(pending=left, evaluated=evaluated, pulled=state.pulled + len(queries))
        again = tuple(key for key, query in pending.items() if query.tries)
        return state, TakenEvaluations(StepResult(tuple(made), tuple(records)), again, is_over)

    def _record(self, query: Query, end: EvaluationEnd) -> EvaluationRecord:
        """Give what an evaluation that has ended came to, with its times."""
        record = self._value(query) if end.in_time else self._evaluate(query._replace(length=math.inf))
        return record._replace(started=end.started, finished=end.finished)

    def _value(self, query: Query) -> EvaluationRecord:
        """Make an evaluation, once."""
        record = self._known.get(query.number)
        if record is None:
            record = self._known[query.number] = self._evaluate(query)
        return record


def tell_one(task: Task, state: AgentState, query: Query, record: EvaluationRecord) -> AgentState:
    """Tell the algorithm of one evaluation that has ended, or what the policy gives for one that failed."""
    told, worst, t_n = None, state.worst, state.t_n
    if record.error is None:
        told, t_n = record.value, state.t_n + 1
        worst = told if worst is None else min(worst, told)
    elif task.policy.failure == "worst":
        told = worst
    if told is None:
        return state
    algorithm = task.algorithm.tell(state.algorithm, np.array([query.u]), np.array([told]))
    return state._replace(algorithm=algorithm, t_n=t_n, worst=worst)
