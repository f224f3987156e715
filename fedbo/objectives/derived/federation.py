"""Federations derived from another one, and objectives whose evaluations return all metrics.

A centralised federation is one agent that evaluates the mean of all agents' functions, as with all data in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbo.objectives.base import Array, Federation, Measuring, Metric, Objective, Parameter, cost_of, observe, reports_costs
from fedbo.objectives.outcome import Outcome, value_of

_KEPT = 4096  # points whose mean is remembered, since tree methods come back to theirs


@dataclass(frozen=True)
class DerivedFederation:
    """A federation derived from another one, with its parameters, its metric and its costs."""

    federation: Federation

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the federation."""
        return self.federation.parameters

    @property
    def metric(self) -> Metric:
        """Return the metric of the federation."""
        return self.federation.metric

    @property
    def costly(self) -> bool:
        """Return whether evaluations report their costs."""
        return reports_costs(self.federation)


@dataclass(frozen=True, slots=True)
class AllMetrics:
    """An objective whose `evaluate` and `evaluate_at` are the `measure` of another one."""

    inner: Any

    @property
    def best_value(self) -> float | None:
        """Return the largest noise-free value, if known."""
        known: float | None = self.inner.best_value
        return known

    def evaluate(self, x: Array, rng: np.random.Generator) -> Outcome:
        """Return one observation with all metrics."""
        found: Outcome = self.inner.measure(x, rng)
        return found

    def evaluate_at(self, x: Array, fidelity: int, rng: np.random.Generator) -> Outcome:
        """Return one observation with all metrics at a fidelity."""
        found: Outcome = self.inner.measure(x, rng, fidelity)
        return found

    def score(self, x: Array) -> float | None:
        """Return the noise-free value, or None when an observation is the best that is known."""
        found: float | None = self.inner.score(x)
        return found

    def score_at(self, x: Array, fidelity: int) -> float | None:
        """Return the noise-free value at a fidelity, or None."""
        found: float | None = self.inner.score_at(x, fidelity)
        return found

    def cost(self, x: Array) -> float:
        """Return the cost of an evaluation."""
        return cost_of(self.inner, x)


def with_all_metrics(objective: Any) -> Any:
    """Return an objective that returns all metrics it knows; the same one where it does so already."""
    return AllMetrics(objective) if isinstance(objective, Measuring) else objective


@dataclass(frozen=True, eq=False)
class MeanObjective:
    """The mean over agents of their noise-free values, plus the noise of one evaluation of an agent drawn at random.

    One evaluation is thus as noisy as a local one, and not as the mean of N. An agent without a score is free of noise. The
    cost of an evaluation is the agents' mean cost, and the largest value over the box is not known.
    """

    agents: tuple[Objective, ...]
    best_value: float | None = None
    _means: dict[bytes, Array] = field(default_factory=dict, repr=False, compare=False)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(d,)`."""
        return float(self.evaluate_many(x, 1, rng)[0])

    def evaluate_many(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Return `count` noisy values `(count,)` at x."""
        exact = self._exact(x)
        drawn = rng.integers(len(self.agents), size=count)
        noise = np.zeros(count)
        for agent in np.unique(drawn):
            mine = drawn == agent
            objective = self.agents[agent]
            if objective.score(x) is not None:
                noise[mine] = observe(objective, x, int(mine.sum()), rng) - exact[agent]
        return np.asarray(exact.mean() + noise)

    def score(self, x: Array) -> float:
        """Return the mean of the noise-free values at x."""
        return float(self._exact(x).mean())

    def cost(self, x: Array) -> float:
        """Return the mean cost of an evaluation at x."""
        return float(np.mean([cost_of(objective, x) for objective in self.agents]))

    def _exact(self, x: Array) -> Array:
        """Return every agent's noise-free value at x `(N,)`."""
        key = x.tobytes()
        found = self._means.get(key)
        if found is None:
            if len(self._means) >= _KEPT:
                self._means.clear()
            found = self._means[key] = np.array([_noise_free(objective, x) for objective in self.agents])
        return found


def _noise_free(objective: Objective, x: Array) -> float:
    score = objective.score(x)
    # An objective without scores draws no number that would matter: its evaluation is the score.
    return value_of(objective.evaluate(x, np.random.default_rng(0))) if score is None else float(score)


@dataclass(frozen=True)
class Centralised(DerivedFederation):
    """Some federation's parameters and metric, with a single agent; `mean` makes its objective of theirs."""

    @property
    def random_per_replicate(self) -> bool:
        """Return `random_per_replicate` of the federation."""
        return self.federation.random_per_replicate

    @property
    def n_agents(self) -> int:
        """Return 1."""
        return 1

    def mean(self, objectives: Sequence[Objective]) -> MeanObjective:
        """Return the objective made from those of all agents."""
        return MeanObjective(tuple(objectives))

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Objective:
        """Raise TypeError: one agent's streams cannot build the others' objectives."""
        raise TypeError("the objective of a centralised run is made by `mean` from those of all agents")
