"""What algorithms learn of outcomes: values and margins, or one number by the policy for infeasible points."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fedbo.actors.agent import HostedAgent
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.evaluation.step import StepResult
from fedbo.actors.storage.evaluations import Query
from fedbo.actors.task import StepRequest, Task
from fedbo.algorithms.base import Array, Decision, Problem
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Metric, Parameter
from fedbo.objectives.goals import Goal, Goals, Limit
from fedbo.objectives.outcome import Outcome

LIMITED = Goals((Goal("value", 1),), (Limit("memory", at_most=0.5),))
TWO = Goals((Goal("value", 1, 0.0), Goal("seconds", -1, 9.0, 2.0)), (Limit("memory", at_most=0.5),))


@dataclass(frozen=True)
class Listed(LocalOnly):
    """Evaluate given points in turn, `queries` at once, and record what is told."""

    points: tuple[float, ...] = ()
    queries: int = 1
    told: list[Any] = field(default_factory=list)
    known: list[Problem] = field(default_factory=list)

    def agent_init(self, problem: Problem, streams: Streams) -> int:
        """Begin with the first point."""
        self.known.append(problem)
        return 0

    def ask(self, state: int, inbox: Any, streams: Streams) -> tuple[Decision, int]:
        """Choose the next points."""
        after = state + self.queries
        return Decision(np.array(self.points[state:after])[:, None], "own"), after

    def tell(self, state: int, x: Array, y: Array) -> int:
        """Record values."""
        self.told.extend(zip(x[:, 0].tolist(), y.tolist(), strict=True))
        return state


class ListedAll(Listed):
    """The same, learning all outcomes."""

    def tell_outcomes(self, state: int, x: Array, values: Array, margins: Array) -> int:
        """Record outcomes."""
        self.told.extend(zip(x[:, 0].tolist(), values.tolist(), margins.tolist(), strict=True))
        return state

    def handles(self, problem: Problem) -> str:
        """Return an empty text: everything suits."""
        return ""


@dataclass(frozen=True)
class Line:
    """The value x, with memory x and 10 x seconds, of which some are not returned at some points."""

    best_value: float | None = None

    def evaluate(self, x: Array, rng: np.random.Generator) -> Outcome:
        """Return all metrics; the value is NaN at 0.9, and at 0.8 there is no memory."""
        at = float(x[0])
        metrics = {"memory": at, "seconds": 10.0 * at}
        if at == 0.8:
            del metrics["memory"]
        return Outcome(float("nan") if at == 0.9 else at, metrics=metrics)

    def score(self, x: Array) -> None:
        """Return None: there is no noise."""


@dataclass(frozen=True)
class Lines:
    """One agent with a line."""

    random_per_replicate = False
    n_agents = 1
    parameters = (Parameter("x", 0.0, 1.0),)
    metric = Metric()

    def objective(self, agent: int, shared_rng: Any, agent_rng: Any) -> Line:
        """Return the line."""
        return Line()


def ran(algorithm: Listed, goals: Goals | None, failure: str = "drop", infeasible: str | None = None) -> HostedAgent:
    """Run the agent through its points and return it."""
    steps = len(algorithm.points) // algorithm.queries
    task = Task(
        Lines(),
        algorithm,
        Problem(1, 1, (0,), 0, steps),
        Streams(3),
        policy=Policy(failure=failure, infeasible=infeasible),
        goals=goals,
    )
    agent = HostedAgent(task, 0)
    for step in range(1, steps + 1):
        agent.work(StepRequest(0, step))
        agent.commit(())
    return agent


def test_a_method_that_learns_outcomes_is_told_signed_values_and_margins() -> None:
    """A failed evaluation with some metrics known is told with these, and NaN for the others."""
    agent = ran(algorithm := ListedAll((0.25, 0.75, 0.9, 0.8)), TWO)
    nan = float("nan")
    expected = [
        (0.25, [0.25, -2.5], [0.25]),
        (0.75, [0.75, -7.5], [-0.25]),
        (0.9, [nan, -9.0], [0.5 - 0.9]),
        (0.8, [nan, -8.0], [nan]),
    ]
    for told, wanted in zip(algorithm.told, expected, strict=True):
        for one, other in zip(told, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    assert agent.state.t_n == 2
    assert algorithm.known[-1].weights == (1.0, 2.0)
    errors = [row.error or "" for row in agent.state.rows]
    assert "the objective returned no metric 'memory'" in errors[3] and "not a finite number" in errors[2]


@pytest.mark.parametrize("queries", [1, 4])
def test_other_methods_observe_the_worst_value_at_infeasible_points(queries: int) -> None:
    """The worst is that of all values so far, also of infeasible ones."""
    ran(algorithm := Listed((0.75, 0.25, 0.625, 0.5), queries), LIMITED)
    worst = 0.25 if queries == 4 else 0.75  # one by one, the first value is the worst so far
    assert algorithm.told == [(0.75, worst), (0.25, 0.25), (0.625, 0.25), (0.5, 0.5)]


@pytest.mark.parametrize("queries", [1, 4])
def test_infeasible_points_may_be_dropped(queries: int) -> None:
    """Nothing is told of them; a failed point that is avoided is told as before."""
    ran(algorithm := Listed((0.75, 0.25, 0.9, 0.5), queries), LIMITED, "avoid", "drop")
    worst = 0.25
    assert sorted(algorithm.told) == [(0.25, 0.25), (0.5, 0.5), (0.9, worst)]


def test_metrics_without_limits_change_nothing_that_is_told() -> None:
    """One objective and no bound: `tell` is called as without metrics, also of a method that learns outcomes."""
    points = (0.25, 0.75, 0.5)
    ran(plain := ListedAll(points), None)
    ran(named := ListedAll(points), Goals((Goal("value", 1),)))
    assert named.told == plain.told == [(point, point) for point in points]


def test_the_best_observation_is_feasible() -> None:
    """Progress shows no value that breaks a limit."""
    best = ran(Listed((0.25, 0.75, 0.375)), LIMITED).state.best
    assert best is not None and best.value == 0.375


def test_a_target_is_reached_by_a_feasible_value_alone() -> None:
    """0.75 is above the target, and breaks the limit."""
    outcomes = (Outcome(0.75, metrics={"memory": 0.75}), Outcome(0.25, metrics={"memory": 0.25}))
    query = Query(0, 0, 0, np.zeros(1))
    result = StepResult((query, query), tuple(query.evaluated(each) for each in outcomes))
    assert result.reaches(0.7) and not result.reaches(0.7, LIMITED) and result.reaches(0.2, LIMITED)
