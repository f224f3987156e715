"""Sums of random cosines, which are draws from a Gaussian process in any number of inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy

from fedbo.objectives.base import Array, Parameter
from fedbo.objectives.space import inside

FEATURES = 500  # cosines in one function
STARTS = 10  # local searches for the best value of a function, from the best of so many points:
POINTS = 2**11


@dataclass(frozen=True, eq=False)
class CosineSum:
    """A sum of cosines, sum_j a_j cos(w_j'x + b_j), plus normal noise of variance `noise`.

    `frequencies (m, d)`, `phases (m,)` and `amplitudes (m,)` are w, b and a.
    """

    frequencies: Array
    phases: Array
    amplitudes: Array
    noise: float
    parameters: tuple[Parameter, ...] = field(repr=False)

    @cached_property
    def best_value(self) -> float:
        """Return the largest value that local searches from the best of many points find."""
        return largest(self.frequencies, self.phases, self.amplitudes)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(d,)`."""
        return self.score(x) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        return float(self.scores(x[None])[0])

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` without noise at points `(n, d)`."""
        return np.asarray(np.cos(inside(self.parameters, x) @ self.frequencies.T + self.phases) @ self.amplitudes)


def drawn_cosines(
    rng: np.random.Generator, dimensions: int, length_scale: float, variance: float
) -> tuple[Array, Array, Array]:
    """Draw frequencies, phases and amplitudes of a function of a given variance (Rahimi and Recht 2007)."""
    frequencies = rng.standard_normal((FEATURES, dimensions)) / length_scale
    phases = rng.uniform(0.0, 2.0 * np.pi, FEATURES)
    return frequencies, phases, np.sqrt(2.0 * variance / FEATURES) * rng.standard_normal(FEATURES)


def largest(frequencies: Array, phases: Array, amplitudes: Array) -> float:
    """Find the largest value of a sum of cosines over the unit cube by local searches from the best of many points."""
    dim = frequencies.shape[1]

    def negative(x: Array) -> tuple[float, Array]:
        angles = frequencies @ x + phases
        return -float(amplitudes @ np.cos(angles)), frequencies.T @ (amplitudes * np.sin(angles))

    x = _points(dim)
    values = np.cos(x @ frequencies.T + phases) @ amplitudes
    starts = x[np.argsort(-values, kind="stable")[:STARTS]]
    bounds: Any = [(0.0, 1.0)] * dim
    return -min(float(scipy.optimize.minimize(negative, start, jac=True, bounds=bounds).fun) for start in starts)


@cache
def _points(dim: int) -> Array:
    return scipy.stats.qmc.Sobol(dim, scramble=False).random(POINTS)
