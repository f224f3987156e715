"""The state of an agent, as plain data: what a checkpoint of it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fedbo.actors.evaluation.step import StepResult
from fedbo.actors.stopping.rungs import RungState
from fedbo.actors.storage.evaluations import Query
from fedbo.actors.storage.rows import Row
from fedbo.actors.task import StepReport
from fedbo.algorithms.base import Array, Decision


class BestObservation(NamedTuple):
    """The best observation of an agent so far: its value, its score, and its step; its row leaves memory when it is written."""

    value: float
    score: float
    step: int


@dataclass(slots=True)
class AgentState:
    """The state of an agent; a step changes a copy of it, which becomes the agent's when the step ends.

    `algorithm` is its half of the method; `evaluated` counts the points it has evaluated, retries included, `pulled` how often
    it has evaluated, and `t_n` its observations; `best` is the best of them, `worst` the least value. `rows` have not been
    written yet. `step` was its last one; `decision` belongs to the next one, and `before_decision` is what `algorithm` was
    before it. `cut` says whether its last point is evaluated less often than the algorithm thinks, for which it is not told of
    it. `pending` are the evaluations that are under way, where they may overlap, and `rungs` what stopping early goes by.
    `failed (f, d)` are points of the unit cube that are not to be evaluated again, since they failed.
    """

    algorithm: Any
    evaluated: int = 0
    t_n: int = 0
    best: BestObservation | None = None
    worst: float | None = None
    rows: tuple[Row, ...] = ()
    step: int = -1
    decision: Decision | None = None
    before_decision: Any = None
    pulled: int = 0
    cut: bool = False
    pending: tuple[Query, ...] = ()
    rungs: RungState | None = None
    failed: Array | None = None


class UncommittedStep(NamedTuple):
    """A step done and not yet committed: the agent's state before it, its report, and its evaluations."""

    before: AgentState
    report: StepReport
    result: StepResult
