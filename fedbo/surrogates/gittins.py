"""Acquisitions that weigh an improvement against the cost of its evaluation; larger values are better.

The Pandora's box Gittins index of a point is the value g at which the expected improvement over g equals the cost (Weitzman
1979; Xie, Astudillo, Frazier, Scully, Terenin 2024).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.acquisition import TINY, Prediction, log_expected_improvement, log_improvement_share

Array = npt.NDArray[np.float64]
LOWEST = -37.0  # standard deviations; the improvement over a value so far above the mean is below all costs that numbers hold
LARGE = 10.0  # of a log share: the improvement of a normal that is exp(10) standard deviations above 0 is its mean
NEWTON_STEPS = 8  # two more than are ever needed


def gittins_index(at: Prediction, log_cost: Array, log_cost_gradient: Array) -> tuple[Array, Array]:
    """Return the index `(n,)` and its gradient `(n, d)`, for costs `exp(log_cost) (n,)` in the units of the values."""
    sd = np.sqrt(np.maximum(at.variance, TINY))
    t = _advantage(log_cost - np.log(sd))
    log_share, log_below = log_improvement_share(np.minimum(t, 1e8))[0], scipy.special.log_ndtr(t)
    by_sd = np.exp(-0.5 * t * t - 0.5 * np.log(2.0 * np.pi) - log_below)
    by_log_cost = sd * np.exp(log_share - log_below)
    gradient = at.mean_gradient + (0.5 * by_sd / sd)[:, None] * at.variance_gradient
    return at.mean - sd * t, gradient - by_log_cost[:, None] * log_cost_gradient


def improvement_per_cost(at: Prediction, best: float, log_cost: Array, log_cost_gradient: Array) -> tuple[Array, Array]:
    """Return the logarithm of the expected improvement over `best` for each unit of cost, `(n,)`, and its gradient `(n, d)`."""
    value, gradient = log_expected_improvement(at, best)
    return value - log_cost, gradient - log_cost_gradient


def _advantage(log_share: Array) -> Array:
    """Return t `(n,)` at which the expected improvement of a standard normal plus t over 0 is exp(`log_share`).

    Newton's steps on its logarithm, which is concave: that of t where t is large, and nearly -t^2 / 2 where it is far below 0.
    """
    large = np.exp(np.minimum(log_share, 700.0))  # where the improvement is t itself
    wanted = np.minimum(log_share, LARGE)
    t = np.where(log_share > 0.0, np.minimum(large, math.exp(LARGE)), -np.sqrt(-2.0 * np.minimum(wanted, 0.0)))
    for _ in range(NEWTON_STEPS):
        found, slope, _ = log_improvement_share(np.maximum(t, LOWEST))
        t = np.maximum(t, LOWEST) + (wanted - found) / slope
    return np.where(log_share > LARGE, large, np.maximum(t, LOWEST))
