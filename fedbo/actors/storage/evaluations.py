"""Queries and the records of their evaluations, as used by agents, the evaluation log, its table and a replay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from fedbo.algorithms.base import Array
from fedbo.objectives.outcome import Outcome, read_metrics, written_metrics

NAN = float("nan")
_PLACE = re.compile(r"^agent \d+ at x = \[[^]]*\]: ")
VECTOR = pa.list_(pa.field("item", pa.float64(), nullable=False))


def column(name: str, kind: Any, nullable: bool = False) -> pa.Field:
    """Return a column of a schema, without nulls unless they have a meaning."""
    return pa.field(name, kind, nullable=nullable)


class Pulls(NamedTuple):
    """Repeated evaluation of a point: the outcome is the mean of `times` values, each clipped to `clip` if that is set.

    Normal noise of variance `noise` is added to each value before clipping.
    """

    times: int
    clip: tuple[float, float] | None = None
    noise: float = 0.0


class Span(NamedTuple):
    """A segment of an evaluation under early stopping: from fidelity `since` to `fidelity`, in one of the stopper's brackets.

    Its leg is the part of the evaluation without a pause, and starts at fidelity `leg`.
    """

    bracket: int
    since: int
    fidelity: int
    leg: int


@dataclass(slots=True)
class Query:
    """One evaluation to be made: number `number` of its agent, of point `point` of step `step`.

    - `x (d,)`: the point in native units; `u`: the point in the unit cube.
    - `tries`: how often the point has failed before.
    - `length`: duration, or that of each of its `pulls`, where time is virtual and may exceed the limit.
    - `known`: the outcome, if it was computed with those of the step's other points.
    - `span`: the present segment, where evaluations may stop early.
    """

    agent: int
    number: int
    point: int
    x: Array
    u: Sequence[float] = ()
    phase: str = "search"
    step: int = 0
    origin: str = "own"
    note: str | None = None
    tries: int = 0
    pulls: Pulls | None = None
    length: float | None = None
    known: Outcome | None = None
    span: Span | None = None

    @property
    def fidelity(self) -> int | None:
        """Return the fidelity of the evaluation; None for the largest, where nothing stops early."""
        return None if self.span is None else self.span.fidelity

    @property
    def times(self) -> int:
        """Return the number of pulls of the point."""
        return 1 if self.pulls is None else self.pulls.times

    def evaluated(self, outcome: Outcome) -> EvaluationRecord:
        """Return the record of a successful evaluation, without times."""
        record = EvaluationRecord(self.agent, self.number, self.x.tolist(), outcome)
        record.pulls, record.fidelity = self.times, self.fidelity
        return record

    def failed(self, why: str, seen: Outcome | None = None) -> EvaluationRecord:
        """Return the record of a failed evaluation, without times, with the metrics and reports that were `seen`."""
        kept = Outcome(NAN) if seen is None else Outcome(NAN, NAN, seen.metrics, seen.reports)
        record = self.evaluated(kept)
        record.error = f"agent {self.agent} at x = {self.x.tolist()}: {why}"
        return record


# A line of the evaluation log, and a row of `evaluations.parquet` but for the run's key.
EVALUATION_COLUMNS = (
    column("agent", pa.int32()),
    column("number", pa.int64()),
    column("x", VECTOR),
    column("value", pa.float64()),
    column("score", pa.float64()),
    column("started", pa.float64()),
    column("finished", pa.float64()),
    column("error", pa.string(), nullable=True),
    column("pulls", pa.int32()),
    column("metrics", pa.string(), nullable=True),
    column("fidelity", pa.int32(), nullable=True),
    column("stopped", pa.string(), nullable=True),
    column("rungs", VECTOR, nullable=True),
)


@dataclass(slots=True)
class EvaluationRecord:
    """The record of an evaluation, as the evaluation log and `evaluations.parquet` hold it.

    - `error`: reason of a failure; value and score of the `outcome` are NaN then.
    - `started`, `finished`: times of the study where time is real, else 0.
    - `fidelity`: fidelity reached, where evaluations may stop early.
    - `stopped`: "stopped" or "paused" if that is below the largest.
    - `rungs`: values at all rungs since its start or its last pause.
    - `copied`: time of its other copy on a worker of a simulated cluster; it is no column here.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = tuple(each.name for each in EVALUATION_COLUMNS)

    agent: int
    number: int
    x: list[float]
    outcome: Outcome
    started: float = 0.0
    finished: float = 0.0
    error: str | None = None
    pulls: int = 1
    fidelity: int | None = None
    stopped: str | None = None
    rungs: list[float] | None = None
    copied: float | None = None

    @classmethod
    def of_columns(cls, values: Mapping[str, Any]) -> Self:
        """Return a record with these entries of columns."""
        return cls(**with_outcome(values, cls.COLUMNS))


def with_outcome(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a record from entries of the columns `names`; those of the outcome become one field."""
    fields = {name: values[name] for name in names if name not in OUTCOME_COLUMNS}
    metrics, reports = read_metrics(values["metrics"])
    return {**fields, "outcome": Outcome(values["value"], values["score"], metrics, reports)}


# What the columns of an outcome hold; every other column is a field of its record.
OUTCOME_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "value": attrgetter("outcome.value"),
    "score": attrgetter("outcome.score"),
    "metrics": lambda record: written_metrics(record.outcome),
}


def reader(name: str) -> Callable[[Any], Any]:
    """Return the function that reads a record's entry of a column."""
    return OUTCOME_COLUMNS.get(name) or attrgetter(name)


def reason_of(error: str) -> str:
    """Return the first line of an error, without the agent and the point that `failed` puts before it."""
    return _PLACE.sub("", error.splitlines()[0]) if error else "no reason was recorded"
