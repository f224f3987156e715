"""Objectives made from another objective: with more noise, moved by a constant, or stretched.

Each changes the values only, and costs what the one inside costs; wrap one in another to do more than one thing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbo.objectives.base import Array, Objective, cost_of, require


@dataclass(frozen=True)
class Noisy:
    """An objective whose observations carry normal noise of a `variance`; its score stays what it was."""

    objective: Objective
    variance: float

    def __post_init__(self) -> None:
        require(0.0 <= self.variance < np.inf, "variance", self.variance, "take a number from 0 on")

    @property
    def best_value(self) -> float | None:
        """Give the best value of the objective inside: noise does not change it."""
        return self.objective.best_value

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Give the inner observation at x plus a draw of the noise."""
        return self.objective.evaluate(x, rng) + float(np.sqrt(self.variance) * rng.standard_normal())

    def score(self, x: Array) -> float | None:
        """Give the noise-free value at x."""
        inner = self.objective.score(x)
        # an inner objective without a score of its own is noise-free: it draws nothing, so any generator will do
        return self.objective.evaluate(x, np.random.Generator(np.random.Philox(0))) if inner is None else inner

    def cost(self, x: Array) -> float:
        """Give what the inner evaluation costs, 1 where it reports nothing."""
        return cost_of(self.objective, x)


@dataclass(frozen=True)
class Scaled:
    """An objective whose values are `offset + factor * value`; the factor is positive, so the best point stays."""

    objective: Objective
    factor: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        require(0.0 < self.factor < np.inf, "factor", self.factor, "take a positive number")
        require(bool(np.isfinite(self.offset)), "offset", self.offset, "take a finite number")

    @property
    def best_value(self) -> float | None:
        """Give the best value, scaled likewise."""
        return self._scaled(self.objective.best_value)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Give the inner observation at x, scaled."""
        return self.offset + self.factor * self.objective.evaluate(x, rng)

    def score(self, x: Array) -> float | None:
        """Give the inner score at x, scaled, where there is one."""
        return self._scaled(self.objective.score(x))

    def cost(self, x: Array) -> float:
        """Give what the inner evaluation costs, 1 where it reports nothing."""
        return cost_of(self.objective, x)

    def _scaled(self, value: float | None) -> float | None:
        return None if value is None else self.offset + self.factor * value


@dataclass(frozen=True)
class Shifted:
    """An objective whose values are moved by a constant `shift`."""

    objective: Objective
    shift: float

    def __post_init__(self) -> None:
        require(bool(np.isfinite(self.shift)), "shift", self.shift, "take a finite number")

    @property
    def best_value(self) -> float | None:
        """Give the best value, moved likewise."""
        return self._moved(self.objective.best_value)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Give the inner observation at x, moved."""
        return self.objective.evaluate(x, rng) + self.shift

    def score(self, x: Array) -> float | None:
        """Give the inner score at x, moved, where there is one."""
        return self._moved(self.objective.score(x))

    def cost(self, x: Array) -> float:
        """Give what the inner evaluation costs, 1 where it reports nothing."""
        return cost_of(self.objective, x)

    def _moved(self, value: float | None) -> float | None:
        return None if value is None else value + self.shift
