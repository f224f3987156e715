"""What a trial of Optuna says of objectives and limits: its values in their order, and its constraints by name.

Optuna calls a trial feasible if its constraints are 0 or less. The constraint of a limit `at_most` is the metric less the
limit, and that of `at_least` the limit less the metric; it has the name of the metric. A metric may also be an attribute of the
trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedbo.objectives.goals import Goals, Limit
from fedbo.settings.errors import ArgumentError


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
    """Return what an agent is told of a trial with these values, None where it failed; with `goals` metrics by name."""
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
