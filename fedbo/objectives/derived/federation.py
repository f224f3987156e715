"""Bases of what is derived: a federation from another one, and an objective whose evaluations return all metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbo.objectives.base import Array, Federation, Measuring, Metric, Parameter, cost_of, reports_costs
from fedbo.objectives.outcome import Outcome


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
