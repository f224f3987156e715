"""A measuring objective as the actors of a study with [[metric]] call it: every evaluation returns all metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbo.objectives.base import Array, Measuring, cost_of
from fedbo.objectives.outcome import Outcome


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
