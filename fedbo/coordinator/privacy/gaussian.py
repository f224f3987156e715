"""The exact epsilon of Gaussian noise without sampling (Balle and Wang 2018)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from fedbo.algorithms.base import Array


def check_deltas(deltas: Sequence[float]) -> None:
    """Check that every delta is a probability above 0; ValueError for the first that is not."""
    for delta in deltas:
        if not 0 < delta < 1:
            raise ValueError(f"delta must be between 0 and 1, not {delta}; 1e-5 is a common choice")


def gaussian_epsilon(mu: Array, delta: float) -> Array:
    """Return the exact epsilon, for each mu, of Gaussian noise 1 / mu times the norm of an agent's largest contribution.

    Releases without sampling compose to one such, with mu^2 the sum of their 1 / multiplier^2. With a = mu/2 - eps/mu,
    delta = Phi(a) - phi(a) R(mu - a), where R is Mills' ratio (Balle and Wang 2018, theorem 8); it rises in a.
    """
    check_deltas((delta,))
    mu = np.asarray(mu, dtype=float)
    if not np.all(mu >= 0):
        raise ValueError(f"mu must be at least 0, not {np.nanmin(mu)}; it is the root of a sum of squares")
    finite = np.where(np.isfinite(mu), mu, 1.0)
    high = np.minimum(finite / 2, 40.0)
    low = np.minimum(np.full(mu.shape, -math.sqrt(-2 * math.log(delta))), high)
    free = _gaussian_delta(finite, finite / 2) <= delta
    for _ in range(64):
        middle = (low + high) / 2
        small = _gaussian_delta(finite, middle) <= delta
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    with np.errstate(over="ignore"):
        found = finite * (finite / 2 - low)
    return np.where(np.isfinite(mu), np.where(free, 0.0, found), np.inf)


def _gaussian_delta(mu: Array, a: Array) -> Array:
    """Return delta at eps = mu (mu / 2 - a)."""
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        # The scaled function erfcx is Mills' ratio up to a factor, and does not underflow in the tail as 1 - Phi does.
        return np.asarray(scipy.special.ndtr(a) - np.exp(-a * a / 2) / 2 * scipy.special.erfcx((mu - a) / math.sqrt(2)))
