"""Evaluations of one agent whose starts and ends the coordinator schedules one by one, in virtual time.

A step is a function of the state before it, of its messages and of the list of ended evaluations. An agent knows nothing else
about time. So a step can be computed again when the list has grown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedbo.actors.agent_state import AgentState
from fedbo.actors.evaluation.batches import pull_counts
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.evaluation.step import StepResult, queries_of
from fedbo.actors.storage.evaluations import EvaluationRecord, Query, Span
from fedbo.actors.task import BudgetUse, EvaluationEnd, RungVerdict, StepRequest, Task
from fedbo.algorithms.base import Decision
from fedbo.settings.records import changed, copied
from fedbo.workers.overlap import tell_one

Key = tuple[int, int]
Computed = tuple[int, int | None, tuple[float, ...]]  # the number of an evaluation, its fidelity, and its point


class TakenEvaluations(NamedTuple):
    """The ended evaluations of a step, the failed ones to repeat (`again`), and whether the step is over.

    Where evaluations may stop early, `verdicts` are those on evaluations that have reached a rung.
    """

    result: StepResult
    again: tuple[Key, ...]
    is_over: bool
    verdicts: tuple[RungVerdict, ...] = ()


class ScheduledEvaluations:
    """The scheduled evaluations of one agent; `overlaps` states whether evaluations of several steps may be pending at once."""

    def __init__(self, task: Task, agent: int, evaluate: Callable[[Query], EvaluationRecord]) -> None:
        self._task, self._agent, self._evaluate = task, agent, evaluate
        self.overlaps = task.overlaps
        self._known: dict[Computed, EvaluationRecord] = {}  # what was computed before it is due, or may be asked for again

    def step(
        self, state: AgentState, decision: Decision, request: StepRequest, ended: Sequence[EvaluationEnd]
    ) -> tuple[AgentState, TakenEvaluations]:
        """Process the ended evaluations, and compute the pending ones if the step is not over.

        Where evaluations overlap, the algorithm learns from them here, one by one in the order of their ends; else the
        caller passes them to it.
        """
        state = copied(state)
        state.spent = math.inf if decision.last else state.spent
        queries = self._segmented(queries_of(self._task, self._agent, request.step, decision, state.evaluated))
        pending = {(query.step, query.point): query for query in (*state.pending, *queries)}
        decided, evaluated, stopping = len(pending), state.evaluated + len(queries), self._task.stopping
        rungs = None if stopping is None else state.rungs or stopping.no_rungs()
        made, records, verdicts = list[Query](), list[EvaluationRecord](), list[RungVerdict]()
        for place, end in enumerate(ended):
            query = pending.pop((end.step, end.point))
            record = self._record(query, end)
            if query.span is not None and not end.in_time:
                record.fidelity, record.rungs = query.span.since, self._passed(rungs, query, query.span)
            if query.span is not None and record.error is None:
                rungs, verdict, query = self._at_rung(rungs, place, query, record)
                verdicts += [] if verdict is None else [verdict]
                if verdict is not None and verdict.what == "go":
                    pending[end.step, end.point] = query
                    continue
            made.append(query)
            records.append(record)
            state.spent += end.finished - end.started + end.copied
            if record.error is not None and query.tries < self._task.policy.retries:
                # A retry gets the next number, since its random stream depends on the number.
                (again,) = self._segmented([changed(query, number=evaluated, tries=query.tries + 1)])
                pending[end.step, end.point] = again
                evaluated += 1
                continue
            if record.error is not None and self._task.policy.failure == "stop":
                raise EvaluationError(record.error.splitlines()[0])
            if self.overlaps:
                tell_one(self._task, state, query, record)
            if state.spent < self._task.cost:
                rungs = self._promote(rungs, place, pending, verdicts)
        seen = state.t_n + (0 if self.overlaps else sum(record.error is None for record in records))
        pulled = state.pulled + int(pull_counts(decision).sum()) if self._task.problem.pulls else 0
        used = BudgetUse(pulled, state.spent)
        is_over = len(pending) < self._task.least_pending(self._agent, request.step, decided, seen, used)
        left = tuple(pending.values())
        # The coordinator needs these values when their ends are due; computing them now overlaps with other agents' work.
        self._foresee(left, is_over)
        if self.overlaps:
            state.pending, state.evaluated = left, evaluated
            state.pulled += len(queries)
        if self._task.stopping is not None:
            state.rungs = rungs
        again_keys = tuple(key for key, query in pending.items() if query.tries)
        return state, TakenEvaluations(StepResult(tuple(made), tuple(records)), again_keys, is_over, tuple(verdicts))

    def _foresee(self, left: Sequence[Query], is_over: bool) -> None:
        """Compute the pending evaluations; at the end of a step, forget all others."""
        if is_over:
            keys = (_computed(query) for query in left)
            self._known = {key: self._known[key] for key in keys if key in self._known}
        for query in () if is_over else left:
            self._value(query)

    def _segmented(self, queries: list[Query]) -> list[Query]:
        """Restrict evaluations to their first segments, where they may stop early."""
        stopping = self._task.stopping
        if stopping is None:
            return queries
        streams = self._task.streams.of(self._agent)
        return [changed(query, span=stopping.first(streams, query.step, query.point)) for query in queries]

    def _at_rung(self, rungs: Any, place: int, query: Query, record: EvaluationRecord) -> tuple[Any, RungVerdict | None, Query]:
        """Judge an evaluation at the end of a segment, and note the verdict in its record.

        Returns the rungs, the verdict and the query with which the evaluation continues.
        """
        stopping = self._task.stopping
        assert stopping is not None and query.span is not None
        rungs, what, after = stopping.judge(rungs, query, record.outcome)
        assert after.span is not None
        record.stopped = {"stop": "stopped", "pause": "paused"}.get(what or "")
        record.rungs = stopping.curve(rungs, query)
        fidelity = after.span.fidelity if what == "go" else 0
        verdict = None if what is None else RungVerdict(place, query.step, query.point, what, fidelity)
        return rungs, verdict, after

    def _passed(self, rungs: Any, query: Query, span: Span) -> list[float] | None:
        """Return the values at the rungs that an evaluation passed before its time limit cut it off; None without any."""
        assert self._task.stopping is not None
        curve: list[float] = self._task.stopping.curve(rungs, changed(query, span=span._replace(fidelity=span.since)))
        return curve or None

    def _promote(self, rungs: Any, place: int, pending: dict[Key, Query], verdicts: list[RungVerdict]) -> Any:
        """Resume the paused evaluation, if any, that the stopper promotes in place of an ended one."""
        if self._task.stopping is None:
            return rungs
        rungs, query = self._task.stopping.promoted(rungs)
        if query is not None and query.span is not None:
            pending[query.step, query.point] = query
            verdicts.append(RungVerdict(place, query.step, query.point, "promote", query.span.fidelity))
        return rungs

    def _record(self, query: Query, end: EvaluationEnd) -> EvaluationRecord:
        """Return the record of an ended evaluation, with its times."""
        record = self._value(query) if end.in_time else self._evaluate(changed(query, length=math.inf))
        return changed(record, started=end.started, finished=end.finished, copied=end.copied or None)

    def _value(self, query: Query) -> EvaluationRecord:
        """Return the record of an evaluation, which is computed at most once."""
        record = self._known.get(_computed(query))
        if record is None:
            record = self._known[_computed(query)] = self._evaluate(query)
        return record


def _computed(query: Query) -> Computed:
    # With the point: a step that is decided again, after what it was told has changed, gives the number to another one.
    return query.number, query.fidelity, tuple(query.u)
