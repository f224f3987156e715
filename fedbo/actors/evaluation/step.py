"""The evaluations of one step of one agent: every decided point, and retries of failed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.evaluation.batches import MIN_BATCH, BatchEvaluation, evaluate_batch, pull_counts
from fedbo.actors.evaluation.evaluator import EvaluationError, Evaluator, NotMadeError
from fedbo.actors.storage.evaluations import EvaluationRecord, Pulls, Query
from fedbo.actors.storage.rows import Batch, Row
from fedbo.actors.task import StepRequest, Task
from fedbo.algorithms.base import Array, Decision
from fedbo.objectives.base import Objective
from fedbo.objectives.goals import Goals
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.space import from_unit
from fedbo.settings.records import changed


class StepResult(NamedTuple):
    """The evaluations of a step, in the order in which they were made.

    With `batch` there is one query and one record, whose entries are arrays over all points.
    """

    queries: tuple[Query, ...]
    records: tuple[EvaluationRecord, ...]
    batch: bool = False

    @property
    def size(self) -> int:
        """Return the number of evaluations."""
        return len(self.records[0].outcome.value) if self.batch else len(self.records)  # type: ignore[arg-type]

    @property
    def observed(self) -> tuple[npt.NDArray[np.int64], Array]:
        """Return the indices of the points that succeeded, in ascending order, and their values."""
        if self.batch:
            return np.arange(self.size), np.asarray(self.records[0].outcome.value)
        if len(self.records) == 1 and self.records[0].error is None:
            return np.array([self.queries[0].point]), np.array([self.records[0].outcome.value])
        pairs = zip(self.queries, self.records, strict=True)
        values = {query.point: record.outcome.value for query, record in pairs if record.error is None}
        points = sorted(values)
        return np.array(points, dtype=np.int64), np.array([values[point] for point in points])

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """Return the outcome of each point, by its index; of one that failed, what is known after its last try."""
        found = dict[int, Outcome]()
        for query, record in zip(self.queries, self.records, strict=True):
            found[query.point] = record.outcome
        return found

    def reaches(self, target: float, goals: Goals | None = None) -> bool:
        """Return whether some value is at least `target`, of a feasible point where there are limits."""
        good = [record.outcome for record in self.records if record.error is None]
        values = (outcome.value for outcome in good if goals is None or goals.feasible(outcome))
        return any(bool((np.asarray(value) >= target).any()) for value in values)

    @property
    def failed(self) -> tuple[str, ...]:
        """Return one line for each failed evaluation with the reason."""
        return tuple([record.error.splitlines()[0] for record in self.records if record.error])

    def spent(self, before: float) -> float:
        """Return the time of all evaluations up to and with these, where `before` is that of earlier ones.

        Records have no times where time is virtual and evaluations are made step by step.
        """
        for record in self.records:
            before += record.finished - record.started
        return before

    def rows(self, t_n: int, times: Sequence[float] = ()) -> tuple[Row, ...]:
        """Return the rows of these evaluations, for an agent that had `t_n` observations before.

        `times[0]` is the start of all evaluations, and each other entry the end of one. Without `times` the records have them.
        """
        if self.batch:
            return (self._batch(t_n, times),)
        spans: Iterable[tuple[float, float]] = zip(times[:-1], times[1:], strict=True)
        if not times:
            spans = [(record.started, record.finished) for record in self.records]
        rows = []
        for query, record, span in zip(self.queries, self.records, spans, strict=True):
            t_n += record.pulls if record.error is None else 0
            rows.append(Row.of(query, record, t_n, *span))
        return tuple(rows)

    def _batch(self, t_n: int, times: Sequence[float]) -> Batch:
        moments: Any = np.array(times) if times else np.zeros(self.size + 1)
        seen: Any = t_n + np.cumsum(self.records[0].pulls)
        return Batch.of(self.queries[0], self.records[0], seen, moments[:-1], moments[1:])


def queries_of(task: Task, agent: int, step: int, decision: Decision, first: int, natives: Array | None = None) -> list[Query]:
    """Return the queries of an agent's decision, numbered from `first`.

    `natives (q, d)` are the points in native units, where they are known.
    """
    units = decision.x.tolist()
    natives = from_unit(task.federation.parameters, decision.x) if natives is None else natives
    pulls: list[Pulls | None] = [None] * len(units)
    if decision.pulls is not None or decision.clip is not None:
        pulls = [Pulls(times, decision.clip, task.noise) for times in pull_counts(decision).tolist()]
    phase, origin, note = task.phase_of(step), decision.origin, decision.note
    queries = []
    for point, (x, u, times) in enumerate(zip(natives, units, pulls, strict=True)):
        query = Query(agent, first + point, point, x, u)
        query.phase, query.step, query.origin, query.note, query.pulls = phase, step, origin, note, times
        queries.append(query)
    return queries


class StepEvaluator:
    """Evaluates the decisions of one agent, in one call where the objective supports batches."""

    def __init__(self, task: Task, agent: int, objective: Objective, evaluator: Evaluator, clock: Callable[[], float]) -> None:
        self._task, self._agent, self._objective = task, agent, objective
        self._evaluator, self._clock = evaluator, clock
        self._streams = task.streams.of(agent)

    def __call__(self, request: StepRequest, decision: Decision, first: int) -> StepResult:
        """Evaluate every point, numbered from `first`; EvaluationError when the run must stop."""
        natives, batch = from_unit(self._task.federation.parameters, decision.x), None
        if self._evaluator.at_once and decision.pulls is not None and self._task.goals is None:
            batch = evaluate_batch(self._objective, decision, natives, self._task.noise, self._streams.at(first))
        if batch is None or request.tries is not None or len(natives) < MIN_BATCH:  # with `tries` some may take too long
            queries = queries_of(self._task, self._agent, request.step, decision, first, natives)
            return self._one_by_one(request, queries, batch)
        return self._at_once(request.step, decision, first, natives, batch)

    def _at_once(self, step: int, decision: Decision, first: int, x: Any, batch: BatchEvaluation) -> StepResult:
        """Return one query and one record for all points, whose entries are arrays over the points."""
        points: Any = np.arange(len(x))
        u: Any = decision.x
        pulls: Any = pull_counts(decision)
        query = Query(self._agent, first, points, x, u)
        query.phase, query.step = self._task.phase_of(step), step
        query.origin, query.note = decision.origin, decision.note
        record = EvaluationRecord(self._agent, first, x, batch.outcome, pulls=pulls)
        return StepResult((query,), (record,), batch=True)

    def _one_by_one(self, request: StepRequest, queries: list[Query], batch: BatchEvaluation | None) -> StepResult:
        """Evaluate every point, and then retry failed ones as often as the policy allows, in that order.

        Where no more evaluation begins, return those that were made.
        """
        policy = self._task.policy
        made: list[Query] = []  # `list[Query]()` takes ten times as long
        records: list[EvaluationRecord] = []
        left, first = queries, queries[0].number if queries else 0
        rounds = 1 + policy.retries
        if request.tries is not None:  # a fork may allow more retries than the order of a step under way has durations for
            rounds = min(rounds, len(request.tries) // max(1, len(queries)))
        for _ in range(rounds):
            failed: list[Query] = []
            for point in left:
                query = self._next(request, point, len(made), first + len(made))
                if batch is not None:
                    query.known = batch.of(query.point)
                try:
                    records.append(record := self.single(query))
                except NotMadeError:
                    return StepResult(tuple(made), tuple(records))
                made.append(query)
                if record.error is not None:
                    failed.append(point)
            left, batch = failed, None
            if not left:
                break
        if left and policy.failure == "stop":
            raise EvaluationError(next(record.error.splitlines()[0] for record in reversed(records) if record.error))
        return StepResult(tuple(made), tuple(records))

    def single(self, query: Query) -> EvaluationRecord:
        """Run one evaluation and add the study's noise, which a mean of pulls contains already."""
        record = self._evaluator(self._objective, query, self._streams.at(query.number), self._clock)
        if not self._task.noise or record.error is not None or query.pulls is not None:
            return record
        noise = self._streams.at(record.number + 1).rng("added noise").standard_normal()
        seen = record.outcome
        value = seen.value + float(np.sqrt(self._task.noise) * noise)
        # A copy: the log keeps the record without noise.
        return changed(record, outcome=Outcome(value, seen.score, seen.metrics, seen.reports))

    def _next(self, request: StepRequest, query: Query, place: int, number: int) -> Query:
        """Return the query with its present number and its duration."""
        if request.tries is None:
            return query if query.number == number else changed(query, number=number)
        length = request.tries[place]
        if request.costs is not None:
            length *= request.costs[query.point]
        return changed(query, number=number, length=length)
