"""Goals of a study, by the metrics of an evaluation: one to four objectives, and limits that make a point feasible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedbo.objectives.base import Array, Metric
from fedbo.objectives.outcome import Outcome, is_note

MOST_OBJECTIVES = 4  # the hypervolume of more takes too long
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Goal:
    """One objective: a metric to be maximised (sign 1) or minimised (sign -1).

    - `reference`: native value from which hypervolume is measured; None in a study with one objective.
    - `weight`: its importance to the agent beside the other objectives, above 0.
    """

    name: str
    sign: int
    reference: float | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of one metric in native units, at least one of the two."""

    name: str
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True, slots=True)
class Goals:
    """The objectives and limits of one agent. The first objective is `own`, the metric of the federation's values.

    All agents of a study have the same objectives and limits on the same metrics; weights and the numbers of limits may differ.
    """

    objectives: tuple[Goal, ...]
    limits: tuple[Limit, ...] = ()
    own: Metric = Metric()

    @property
    def several(self) -> bool:
        """Return whether there is more than one objective."""
        return len(self.objectives) > 1

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all metrics, each once: those of the objectives, then those with limits alone."""
        return tuple(dict.fromkeys([*(goal.name for goal in self.objectives), *(limit.name for limit in self.limits)]))

    @property
    def constraints(self) -> int:
        """Return c, the number of bounds."""
        return sum((limit.at_most is not None) + (limit.at_least is not None) for limit in self.limits)

    @property
    def references(self) -> tuple[float, ...]:
        """Return the references as values to be maximised, one for each objective; empty where some objective has none."""
        found = [goal.reference for goal in self.objectives]
        signed = [self._signed(goal, each) for goal, each in zip(self.objectives, found, strict=True) if each is not None]
        return tuple(signed) if len(signed) == len(found) else ()

    @property
    def weights(self) -> tuple[float, ...]:
        """Return the weight of each objective."""
        return tuple(goal.weight for goal in self.objectives)

    def native(self, name: str, outcome: Outcome) -> float:
        """Return a metric of an outcome in native units; NaN where it is missing or not a finite number."""
        if name == self.own.name:
            return _finite(self.own.native(outcome.value))
        return _finite(outcome.metrics.get(name, NAN))

    def missing(self, outcome: Outcome) -> list[str]:
        """Return the names of the metrics that an outcome does not have as a number at all."""
        others = (name for name in self.names if name != self.own.name)
        return [name for name in others if name not in outcome.metrics or is_note(name, outcome.metrics[name])]

    def values(self, outcome: Outcome) -> Array:
        """Return the values `(m,)` of the objectives, to be maximised; NaN where one is missing."""
        others = [goal.sign * self.native(goal.name, outcome) for goal in self.objectives[1:]]
        return np.array([_finite(outcome.value), *others])

    def margins(self, outcome: Outcome) -> Array:
        """Return the margins `(c,)` to the bounds, at least 0 where a bound is kept; NaN where the metric is missing."""
        found = []
        for limit in self.limits:
            value = self.native(limit.name, outcome)
            found += [] if limit.at_most is None else [limit.at_most - value]
            found += [] if limit.at_least is None else [value - limit.at_least]
        return np.array(found, dtype=np.float64)

    def scored(self, outcome: Outcome) -> Outcome:
        """Return the outcome with its noise-free score in place of its value."""
        return Outcome(outcome.score, outcome.score, outcome.metrics)

    def feasible(self, outcome: Outcome) -> bool:
        """Return whether the evaluation has a value and keeps every bound, by its noise-free score."""
        judged = self.scored(outcome)
        return not np.isnan(judged.value) and bool((self.margins(judged) >= 0.0).all())

    def _signed(self, goal: Goal, native: float) -> float:
        """Return a native number of an objective as a value to be maximised."""
        offset = self.own.offset if goal.name == self.own.name else 0.0
        return goal.sign * (native - offset)


@dataclass(frozen=True, slots=True)
class AgentGoals:
    """The goals of all agents: the `common` ones, and those of agents with other limits or weights."""

    common: Goals
    own: Mapping[int, Goals] = field(default_factory=dict)

    def of(self, agent: int) -> Goals:
        """Return the goals of an agent."""
        return self.own.get(agent, self.common)

    def document(self) -> dict[str, Any]:
        """Return them as the manifest of a run has them: agents with equal goals as one list."""
        groups: dict[Goals, list[int]] = {}
        for agent, goals in self.own.items():
            groups.setdefault(goals, []).append(agent)
        return {"common": asdict(self.common), "own": [[asdict(goals), agents] for goals, agents in groups.items()]}


def goals_in(manifest: Mapping[str, Any]) -> list[AgentGoals]:
    """Return the goals of each cell of a run, which its manifest has; an empty list where its study names no metrics."""
    return [
        AgentGoals(_read(cell["common"]), {agent: _read(goals) for goals, agents in cell["own"] for agent in agents})
        for cell in manifest.get("goals", ())
    ]


def _read(goals: Mapping[str, Any]) -> Goals:
    objectives = tuple(Goal(**each) for each in goals["objectives"])
    return Goals(objectives, tuple(Limit(**each) for each in goals["limits"]), Metric(**goals["own"]))


def _finite(number: object) -> float:
    found = float(number)  # type: ignore[arg-type]
    return found if np.isfinite(found) else NAN
