"""Evaluations that the coordinator schedules: what is computed before it is due is that of the decision that counts."""

from __future__ import annotations

import numpy as np

from fedbo.actors.agent_state import AgentState
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.task import EvaluationEnd, StepRequest, Task
from fedbo.algorithms.base import Decision, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.objectives.functions import Quadratic
from fedbo.objectives.outcome import Outcome
from fedbo.workers.scheduled import ScheduledEvaluations


def first_value(query: Query) -> EvaluationRecord:
    return query.evaluated(Outcome(float(query.u[0])))


def test_a_step_that_is_decided_again_is_evaluated_again() -> None:
    """A host may begin a step before a message has come that counts for it; the step is then given to it anew."""
    algorithm, problem = entry("random").make(), Problem(2, 1, (0,), 1, 5)
    task = Task(Quadratic(agents=1, dimensions=2), algorithm, problem, Streams(3))
    scheduled = ScheduledEvaluations(task, 0, first_value)
    state = AgentState(algorithm.agent_init(problem, task.streams.of(0)))
    for point in (0.25, 0.75):
        decision = Decision(np.full((1, 2), point), "own")
        _, found = scheduled.step(state, decision, StepRequest(0, 1, ended=()), ())
        assert not found.is_over
    _, found = scheduled.step(state, decision, StepRequest(0, 1), [EvaluationEnd(1, 0, 0.0, 1.0, True)])
    assert found.is_over and [record.outcome.value for record in found.result.records] == [0.75]
