"""The state of an agent as plain data, which is what its checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fedbo.actors.evaluation.step import StepResult
from fedbo.actors.storage.evaluations import Query
from fedbo.actors.storage.rows import Row
from fedbo.actors.task import StepReport
from fedbo.algorithms.base import Array, Decision


class BestObservation(NamedTuple):
    """The best observation of an agent so far: its value, its score and its step.

    It outlives its row, which leaves memory once written.
    """

    value: float
    score: float
    step: int


@dataclass(slots=True)
class AgentState:
    """The state of an agent. A step changes a copy of it, which replaces it when the step ends.

    - `algorithm`: the algorithm's state of this agent.
    - `evaluated`: points evaluated, retries included; `pulled`: evaluations, repeated pulls included.
    - `t_n`: number of observations; `best`: the best of them; `worst`: the least value.
    - `rows`: rows that have not been written yet.
    - `step`: the last step; `decision`: that of the next step; `before_decision`: `algorithm` before that decision.
    - `cut`: the budget shortened the pulls of the last point, so the algorithm does not learn of that point.
    - `pending`: running evaluations, where they may overlap.
    - `rungs`: the `RungState` of early stopping.
    - `failed (f, d)`: points of the unit cube that failed and are not evaluated again.
    - `spent`: time of its evaluations, as far as it knows their times; infinite after its last decision.
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
    rungs: Any = None
    failed: Array | None = None
    spent: float = 0.0


class UncommittedStep(NamedTuple):
    """A finished step that is not committed yet: the agent's state before it, its report, and its evaluations."""

    before: AgentState
    report: StepReport
    result: StepResult
