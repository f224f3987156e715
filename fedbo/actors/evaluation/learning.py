"""What algorithms learn from outcomes in a study with objectives or limits: values and margins, or one number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.evaluation.failed_points import hides
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.history_files import read_outcomes
from fedbo.actors.task import Task
from fedbo.algorithms.base import Algorithm, Array, Multiple, Overlapping, Problem
from fedbo.algorithms.returned import asked, outgoing, updated
from fedbo.objectives.goals import Goals
from fedbo.objectives.outcome import Outcome


class ToldOutcomes(NamedTuple):
    """Outcomes as an algorithm with `Multiple` learns them: points `(q, d)`, values `(q, m)` and margins `(q, c)`."""

    x: Array
    values: Array
    margins: Array


class Learner(NamedTuple):
    """An algorithm, and the policy by which it learns outcomes."""

    algorithm: Algorithm
    policy: Policy


def learns_outcomes(algorithm: Algorithm, goals: Goals | None) -> bool:
    """Return whether an algorithm learns values and margins in place of one number."""
    return goals is not None and (goals.several or goals.constraints > 0) and isinstance(algorithm, Multiple)


def told_outcomes(goals: Goals, x: Array, outcomes: Mapping[int, Outcome]) -> ToldOutcomes:
    """Return the outcomes, by place in `x (q, d)`, of which anything is known."""
    places, values, margins = list[int](), list[Array](), list[Array]()
    for place, outcome in sorted(outcomes.items()):
        one, other = goals.values(outcome), goals.margins(outcome)
        if np.isfinite(one).any() or np.isfinite(other).any():
            places.append(place)
            values.append(one)
            margins.append(other)
    shapes = (len(places), len(goals.objectives)), (len(places), goals.constraints)
    return ToldOutcomes(x[places], np.array(values).reshape(shapes[0]), np.array(margins).reshape(shapes[1]))


def told_numbers(
    learner: Learner,
    goals: Goals,
    seen: tuple[npt.NDArray[np.int64], Array],
    outcomes: Mapping[int, Outcome],
    worst: float | None,
) -> tuple[npt.NDArray[np.int64], Array]:
    """Apply the policy for infeasible points to the places `(k,)` and the values `(k,)` that an algorithm would observe.

    Algorithms that hide single evaluations learn nothing of infeasible points: the same worst value would be part of several
    of their messages.
    """
    places, values = seen
    # An evaluation with a value breaks a bound, or does not show that it keeps it.
    made = [outcomes.get(place) for place in places.tolist()]
    bad = [one is not None and not np.isnan(one.value) and not (goals.margins(one) >= 0.0).all() for one in made]
    broken = np.array(bad, dtype=np.bool_)
    if not broken.any():
        return places, values
    if learner.policy.infeasible == "drop" or worst is None or hides(learner.algorithm):
        return places[~broken], values[~broken]
    return places, np.where(broken, worst, values)


def learned(
    learner: Learner,
    goals: Goals,
    own: Any,
    x: Array,
    seen: tuple[npt.NDArray[np.int64], Array],
    outcomes: Mapping[int, Outcome],
    worst: float | None,
) -> Any:
    """Return an algorithm's state after the outcomes of points `x (q, d)`.

    `seen` are the places and the values that an algorithm with one objective would observe without limits, and `worst` the
    least value so far.
    """
    algorithm = learner.algorithm
    if learns_outcomes(algorithm, goals):
        told = told_outcomes(goals, x, outcomes)
        return updated(algorithm, "tell_outcomes", own, *told) if len(told.x) else own
    places, values = told_numbers(learner, goals, seen, outcomes, worst)
    return updated(algorithm, "tell", own, x[places], values) if len(places) else own


def problem_with_goals(problem: Problem, task: Task, goals: Goals, warm: bool) -> Problem:
    """Return an agent's problem with its own weights, and with the outcomes of an earlier task.

    Of these an algorithm without `Multiple` learns what the policy leaves.
    """
    if goals.several:
        problem = replace(problem, weights=goals.weights)
    x, y, history = problem.history_x, problem.history_y, task.history
    if x is None or y is None or history is None or warm or not (goals.several or goals.constraints):
        return problem
    outcomes = dict(enumerate(read_outcomes(history.folder, problem.agent)))
    if learns_outcomes(task.algorithm, goals):
        values = np.array([goals.values(one) for one in outcomes.values()]).reshape(len(x), len(goals.objectives))
        margins = np.array([goals.margins(one) for one in outcomes.values()]).reshape(len(x), goals.constraints)
        return replace(problem, history_values=values, history_margins=margins)
    worst = float(y.min()) if len(y) else None
    places, values = told_numbers(Learner(task.algorithm, task.policy), goals, (np.arange(len(y)), y), outcomes, worst)
    return replace(problem, history_x=x[places], history_y=values)


def rehearse(task: Task, agent: int, algorithm_state: Any) -> None:
    """Make one decision and one message and discard them, so that the agent's first step does not include the time of imports.

    Algorithms that are not `Overlapping` are skipped: they may accept only values of points that they chose.
    """
    algorithm, streams = task.algorithm, task.streams.of(agent)
    if not isinstance(algorithm, Overlapping):
        return
    x = np.linspace(0.2, 0.8, 4 * task.problem.dim).reshape(4, -1)
    own = _told(task, agent, algorithm_state, x[1:], np.array([0.0, 1.0, 0.5]))
    _, own = asked(algorithm, updated(algorithm, "pending", own, x[:1]), (), streams.at(1), task.problem.dim)
    if algorithm.sends(0) or algorithm.sends(1):
        outgoing(algorithm, _told(task, agent, own, x[:1], np.ones(1)), streams.at(1), task.problem)


def _told(task: Task, agent: int, own: Any, x: Array, y: Array) -> Any:
    """Return the algorithm's state after made-up values, which are also those of further objectives and margins."""
    goals = task.goals_of(agent)
    if goals is None or not learns_outcomes(task.algorithm, goals):
        return updated(task.algorithm, "tell", own, x, y)
    values, margins = (np.repeat(y[:, None], count, axis=1) for count in (len(goals.objectives), goals.constraints))
    return updated(task.algorithm, "tell_outcomes", own, x, values, margins)
