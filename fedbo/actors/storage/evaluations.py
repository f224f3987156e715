"""Queries and the records of their evaluations, as agents, the evaluation log, its table and a replay have them."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import pyarrow as pa

from fedbo.algorithms.base import Array

NAN = float("nan")
_PLACE = re.compile(r"^agent \d+ at x = \[[^]]*\]: ")
VECTOR = pa.list_(pa.field("item", pa.float64(), nullable=False))


class Pulls(NamedTuple):
    """Repeated evaluation of a point: the mean of `times` values counts, each moved into `clip` where that is given.

    Normal noise of variance `noise` is added to each of them before.
    """

    times: int
    clip: tuple[float, float] | None = None
    noise: float = 0.0


class Span(NamedTuple):
    """A segment of an evaluation under early stopping: from fidelity `since` to `fidelity`, in one of the stopper's brackets.

    Its leg, which goes on without a pause, began at fidelity `leg`.
    """

    bracket: int
    since: int
    fidelity: int
    leg: int


class Query(NamedTuple):
    """One evaluation to be made: number `number` of its agent, at `x (d,)` in native units, which is `u` in the unit cube.

    It is of point `point` of step `step`; `tries` says how often that point has failed before. `length` is how long it will
    take, or each of its `pulls`, where time is virtual and it may take too long. `known` has the value and the score where
    they are known already, with those of the step's other points. `span` is its present segment, where evaluations may stop
    early.
    """

    agent: int
    number: int
    point: int
    x: Array
    u: list[float] = []
    phase: str = "search"
    step: int = 0
    origin: str = "own"
    note: str | None = None
    tries: int = 0
    pulls: Pulls | None = None
    length: float | None = None
    known: tuple[float, float] | None = None
    span: Span | None = None

    @property
    def fidelity(self) -> int | None:
        """Give the fidelity at which it is evaluated; None for the largest, where nothing stops early."""
        return None if self.span is None else self.span.fidelity

    @property
    def times(self) -> int:
        """Give how often the point is evaluated."""
        return 1 if self.pulls is None else self.pulls.times

    def evaluated(self, value: float, score: float, metrics: str | None = None) -> EvaluationRecord:
        """Give the record of an evaluation that succeeded, without times."""
        fidelity = None if self.span is None else self.span.fidelity
        rest = (None, self.times, metrics, fidelity, None, None)
        found = (self.agent, self.number, self.x.tolist(), value, score, 0.0, 0.0, *rest)
        return tuple.__new__(EvaluationRecord, found)

    def failed(self, why: str, metrics: str | None = None) -> EvaluationRecord:
        """Give the record of an evaluation that failed, without times."""
        error = f"agent {self.agent} at x = {self.x.tolist()}: {why}"
        return self.evaluated(NAN, NAN, metrics)._replace(error=error)


class EvaluationRecord(NamedTuple):
    """The record of an evaluation: a line of the evaluation log, and a row of `evaluations.parquet` but for the run's key.

    `score` is the noise-free counterpart of `value`; `error` says why it failed, and both are NaN then. `started` and
    `finished` are times of the study where time is real, else 0. `metrics` are others that were measured with the value, as
    JSON. `fidelity` is how far it came where evaluations may stop early, `stopped` says "stopped" or "paused" where that is
    below the largest, and `rungs` has the values at all rungs since it began or went on.
    """

    agent: Annotated[int, pa.int32()]
    number: Annotated[int, pa.int64()]
    x: Annotated[list[float], VECTOR]
    value: Annotated[float, pa.float64()]
    score: Annotated[float, pa.float64()]
    started: Annotated[float, pa.float64()]
    finished: Annotated[float, pa.float64()]
    error: Annotated[str | None, pa.string()]
    pulls: Annotated[int, pa.int32()]
    metrics: Annotated[str | None, pa.string()]
    fidelity: Annotated[int | None, pa.int32()] = None
    stopped: Annotated[str | None, pa.string()] = None
    rungs: Annotated[list[float] | None, VECTOR] = None


def reason_of(error: str) -> str:
    """Return the first line of an error without the agent and the point that `failed` writes before it."""
    return _PLACE.sub("", error.splitlines()[0]) if error else "no reason was given"
