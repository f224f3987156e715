"""Noise of observations: normal, or uniform and so bounded, drawn one by one or many at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbo.objectives.base import Array, require


@dataclass(frozen=True, slots=True)
class Noise:
    """Normal noise of a `variance` plus uniform noise on [-`half_width`, `half_width`], each absent where it is 0."""

    variance: float = 0.0
    half_width: float = 0.0

    def __post_init__(self) -> None:
        require(0.0 <= self.variance < np.inf, "noise", self.variance, "take a variance from 0 on")
        require(0.0 <= self.half_width < np.inf, "half_width", self.half_width, "take half the width of the noise, from 0 on")

    def draws(self, rng: np.random.Generator, n: int) -> Array:
        """Give n draws `(n,)`."""
        made = np.zeros(n)
        if self.variance:
            made += np.sqrt(self.variance) * rng.standard_normal(n)
        if self.half_width:
            made += self.half_width * (2.0 * rng.random(n) - 1.0)
        return made
