"""Objectives and limits of an ask/tell agent: tables of [[metric]], values of `tell`, and values of trials of Optuna.

Optuna calls a trial feasible if its constraints are 0 or less. The constraint of a limit `at_most` is the metric less the
limit, and that of `at_least` the limit less the metric; it has the name of the metric. A metric may also be an attribute of the
trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from pydantic import ValidationError

from fedbo.actors.evaluation.learning import Learner, learned
from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.base import Multiple, Problem
from fedbo.objectives.base import LARGEST_VALUE, Metric, is_usable
from fedbo.objectives.goals import MOST_OBJECTIVES, NAN, Goal, Goals, Limit
from fedbo.objectives.outcome import Outcome
from fedbo.settings import arguments
from fedbo.settings.errors import ArgumentError
from fedbo.study.invalid import from_pydantic
from fedbo.study.metric_table import MetricTable
from fedbo.surrogates.fronts import non_dominated
from fedbo.tuning.ask_log import AskLog

VALUE = "value"  # the name of the value where no metric is an objective
Told = tuple[float | None, dict[str, float | None] | None]


def goals_of(metrics: Any, mode: str) -> Goals | None:
    """Return the objectives and limits of tables as in [[metric]]; None without any, ArgumentError for an invalid one.

    The first objective is the value; without an objective it is `value`, with the direction `mode`.
    """
    if isinstance(metrics, str | Mapping) or not isinstance(metrics, Sequence):
        words = "must be a list of tables, for example [{'name': 'error', 'mode': 'min'}, {'name': 'seconds', 'at_most': 60}]"
        raise arguments.wrong("metrics", metrics, words)
    tables = [_table(table, place) for place, table in enumerate(metrics)]
    if not tables:
        return None
    names = [table.name for table in tables]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ArgumentError(f"metrics: have '{twice}' twice; join the two tables")
    chosen = [table for table in tables if table.mode is not None]
    if len(chosen) > MOST_OBJECTIVES:
        raise ArgumentError(f"metrics: have {len(chosen)} objectives; use at most {MOST_OBJECTIVES}, and limits for the others")
    if len(chosen) > 1 and (bare := next((table.name for table in chosen if table.reference is None), None)):
        raise ArgumentError(f"metrics: '{bare}' has no reference; add the worst value that is still of use, 'reference': 1.0")
    objectives = [Goal(one.name, 1 if one.mode == "max" else -1, one.reference, one.weight or 1.0) for one in chosen]
    limits = [Limit(one.name, one.at_most, one.at_least) for one in tables if (one.at_most, one.at_least) != (None, None)]
    first = objectives[0] if objectives else Goal(VALUE, 1 if mode == "max" else -1)
    return Goals((first, *objectives[1:]), tuple(limits), Metric(first.name, first.sign))


def _table(table: Any, place: int) -> MetricTable:
    try:
        return MetricTable.model_validate(dict(table))
    except (TypeError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise arguments.wrong(f"metrics[{place}]", table, "must be a table, for example {'name': 'error'}") from None
        fault = from_pydantic(error, {}).faults[0]
        raise ArgumentError(f"metrics[{place}]{''.join(f'[{step!r}]' for step in fault.path)}: {fault.remedy}") from None


def why_unsuited(algorithm: Any, goals: Goals, agents: int) -> str:
    """Return why an algorithm cannot serve objectives and limits; empty where it can."""
    if isinstance(algorithm, Multiple):
        return algorithm.handles(with_goals(Problem(1, agents, range(agents), 1, 1), goals))
    return f"learns one objective, not {len(goals.objectives)}; use ts, fts or gp_ei" if goals.several else ""


def with_goals(problem: Problem, goals: Goals | None) -> Problem:
    """Return a problem with the number of objectives and bounds."""
    if goals is None:
        return problem
    counted = replace(problem, objectives=len(goals.objectives), constraints=goals.constraints)
    return replace(counted, references=goals.references, weights=goals.weights) if goals.several else counted


def told_of(value: Any, goals: Goals | None) -> Told:
    """Return an observed value, and the metrics where it is a dictionary; None for each that failed or is not finite.

    Raises:
        ArgumentError: it is a dictionary without metrics in the terms, or lacks one of them, or has text or a boolean.
    """
    if not isinstance(value, Mapping):
        if value is not None and goals is not None and goals.names != (goals.own.name,):
            named = ", ".join(f"'{name}'" for name in goals.names)
            raise arguments.wrong("value", value, f"must be a dictionary with {named}, or None if the evaluation failed")
        return observed_value(value), None
    if goals is None:
        raise arguments.wrong("value", value, "is a dictionary, but the terms have no metrics; add metrics to fedbo.Terms")
    wanted = dict.fromkeys([goals.own.name, *goals.names])
    if missing := next((name for name in wanted if name not in value), None):
        raise arguments.wrong("value", value, f"has no '{missing}'; add it, with None if it is not known")
    found = {str(name): observed_value(number, f"value['{name}']") for name, number in value.items()}
    return found[goals.own.name], found


def observed_value(value: Any, name: str = "value") -> float | None:
    """Return an observed value, None where it is not finite; ArgumentError for text, booleans and what is beyond 1e100."""
    if value is None:
        return None
    remedy = "must be a number, or None if the evaluation failed"
    if isinstance(value, str | bytes | bytearray | bool | np.bool_):
        raise arguments.wrong(name, value, remedy)
    try:
        number = float(value)
    except OverflowError:
        number = LARGEST_VALUE * 10.0
    except (TypeError, ValueError):
        raise arguments.wrong(name, value, remedy) from None
    if isfinite(number) and not is_usable(number):
        words = f"must be at most {LARGEST_VALUE:g} in magnitude; rescale it, or tell None if the evaluation failed"
        raise arguments.wrong(name, value, words)
    return number if isfinite(number) else None


@dataclass(frozen=True, slots=True)
class ToldMetrics:
    """The metrics in the log of an agent, by token; `goals` are None where its terms have no metrics."""

    goals: Goals | None
    log: AskLog

    def is_feasible(self, token: str) -> bool:
        """Return whether a point keeps all limits."""
        return self.goals is None or self.goals.feasible(self._outcome(self.goals, token))

    def front(self) -> list[str]:
        """Return the points that keep all limits and that no other one dominates; ArgumentError without metrics."""
        if self.goals is None:
            raise ArgumentError("front(): requires objectives; add metrics to fedbo.Terms")
        tokens = [token for token in self.log.metrics if self.is_feasible(token)]
        values = np.array([self.goals.values(self._outcome(self.goals, token)) for token in tokens])
        kept = non_dominated(values.reshape(-1, len(self.goals.objectives)))
        return [token for token, best in zip(tokens, kept, strict=True) if best]

    def learned(self, algorithm: Any, state: Any, token: str, value: float | None) -> Any:
        """Return an algorithm's state after a point; `value` is what it would observe to be maximised, without limits.

        A method that learns no limits observes the worst value so far of an infeasible point, as in a study by default.
        """
        assert self.goals is not None
        u = np.array([self.log.points[token]["u"]])
        seen = np.arange(0 if value is None else 1), np.array([] if value is None else [value])
        told = [self.goals.own.sign * known for known in self.log.told.values() if known is not None]
        outcomes, worst = {0: self._outcome(self.goals, token)}, min(told) if told else None
        return learned(Learner(algorithm, Policy()), self.goals, state, u, seen, outcomes, worst)

    def _outcome(self, goals: Goals, token: str) -> Outcome:
        """Return a point's outcome, in which NaN stands for what is not known."""
        value, metrics = self.log.told.get(token), self.log.metrics.get(token, {})
        known = {name: NAN if number is None else number for name, number in metrics.items()}
        return Outcome(NAN if value is None else goals.own.sign * value, metrics=known)


def check_directions(study: Any, mode: str | None, goals: Goals | None) -> None:
    """Raise ArgumentError unless a study has the objectives of `goals`, or without them one with this `mode`, if it is set."""
    found = ["min" if direction.name == "MINIMIZE" else "max" for direction in study.directions]
    if goals is None:
        if len(found) != 1:
            remedy = "use a study with one objective, or add metrics for all of them"
            raise ArgumentError(f"study '{study.study_name}': has {len(found)} objectives; {remedy}")
        if mode not in (None, found[0]):
            words = f"has direction {found[0]!r}, not {mode!r}; set mode = {found[0]!r}"
            raise ArgumentError(f"study '{study.study_name}': {words}")
        return
    wanted = ["max" if goal.sign > 0 else "min" for goal in goals.objectives]
    if found != wanted:
        words = (
            f"has directions {', '.join(found)}, but the metrics have {', '.join(wanted)}; use the same ones in the same order"
        )
        raise ArgumentError(f"study '{study.study_name}': {words}")


def told_of_trial(trial: Any, values: Sequence[float] | None, goals: Goals | None) -> float | dict[str, float | None] | None:
    """Return the value of a trial for `tell`, None where it failed; with `goals` a dictionary of metrics by name."""
    if goals is None or values is None:
        return None if values is None else float(values[0])
    found: dict[str, float | None] = {goal.name: float(value) for goal, value in zip(goals.objectives, values, strict=True)}
    for limit in goals.limits:
        if limit.name not in found:
            found[limit.name] = _limited(trial, limit)
    return found


def _limited(trial: Any, limit: Limit) -> float | None:
    """Return a metric with limits: an attribute of the trial, or the metric that its constraint stands for."""
    if isinstance(known := trial.user_attrs.get(limit.name), int | float):
        return float(known)
    constraints: Mapping[str, float] = getattr(trial, "constraints", {})
    for name, sign, bound in _bounds(limit):
        if name in constraints:
            return bound + sign * constraints[name]
    return None


def constraints_of(goals: Goals, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the constraints of metrics, as Optuna has them, by name."""
    return {name: sign * (metrics[limit.name] - bound) for limit in goals.limits for name, sign, bound in _bounds(limit)}


def _bounds(limit: Limit) -> Iterator[tuple[str, int, float]]:
    """Yield each bound of a limit with the name of its constraint, and the sign of the metric in it."""
    both = limit.at_most is not None and limit.at_least is not None
    if limit.at_most is not None:
        yield f"{limit.name} at most" if both else limit.name, 1, limit.at_most
    if limit.at_least is not None:
        yield f"{limit.name} at least" if both else limit.name, -1, limit.at_least
