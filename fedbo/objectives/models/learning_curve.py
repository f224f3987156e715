"""Learning curves with a known end: an error that falls with the epochs, faster at some places than at others."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedbo.objectives.base import Array, Parameter
from fedbo.objectives.space import inside

TRAINING = (Parameter("capacity", 0.0, 1.0), Parameter("rate", 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Minus the squared distance to a centre `(2,)`, and minus the unlearned part: epochs^-r less its value at the end.

    The exponent r is 0.3 + rate, so that curves cross. One normal number is drawn for all epochs of an evaluation.
    """

    centre: Array
    epochs: int
    noise: float
    cost_spread: float = 0.0
    parameters: tuple[Parameter, ...] = field(default=TRAINING, repr=False)
    best_value: float = 0.0

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x after all epochs."""
        return self.evaluate_at(x, self.epochs, rng)

    def score(self, x: Array) -> float:
        """Return the value at x after all epochs without noise."""
        return self.score_at(x, self.epochs)

    def evaluate_at(self, x: Array, fidelity: int, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(2,)` after `fidelity` epochs."""
        return self.score_at(x, fidelity) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score_at(self, x: Array, fidelity: int) -> float:
        """Return the value without noise after `fidelity` epochs."""
        point = inside(self.parameters, x)
        gap, exponent = point - self.centre, -0.3 - float(point[1])
        return -float(gap @ gap + np.power(float(fidelity), exponent) - np.power(float(self.epochs), exponent))

    def cost(self, x: Array) -> float:
        """Return the cost of all epochs: 1 plus `cost_spread` times the capacity."""
        return 1.0 + self.cost_spread * float(inside(self.parameters, x)[0])
