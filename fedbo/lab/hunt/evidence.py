"""A sequential test of a mean: whether the excess of a quantity over what a claim allows is above 0.

The test bets against "the mean is at most 0". After n values its wealth is the mean over bets b of the products of
1 + b v / L, where L bounds the values from below by -L. Under the claim the wealth is a nonnegative supermartingale that starts
at 1, so it ever reaches 1 / alpha with probability at most alpha (Ville 1939; Waudby-Smith & Ramdas 2023), whenever one looks.
Nothing else is assumed of the values but that they are independent and alike. A value below -L shows that L was wrong, and the
claim then stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
LEVEL = 0.05
_BETS = np.linspace(0.05, 0.95, 19)[:, None]
_STEPS = 60  # of the bisection for a bound


def wealth(values: Sequence[float] | Array, limit: float, mean: float = 0.0) -> Array:
    """Return the wealth `(n,)` of a bet that the mean is above `mean`, after each of `values (n,)` of at least -`limit`."""
    ratio = (np.asarray(values, dtype=np.float64) - mean) / (limit + mean)
    product = np.exp(np.cumsum(np.log1p(_BETS * ratio), axis=1))
    found: Array = product.mean(axis=0)
    return found


def p_value(values: Sequence[float] | Array, limit: float) -> float:
    """Return the p-value of "the mean is at most 0" that holds at any time; 1 without values."""
    if not len(values) or min(values) < -limit:
        return 1.0
    return min(1.0, 1.0 / float(wealth(values, limit).max()))


def lower_bound(values: Sequence[float] | Array, limit: float, level: float = LEVEL) -> float:
    """Return the lower end of the one-sided confidence sequence of the mean: the least mean that is not refuted.

    It is minus infinity where a value is below -`limit`.
    """
    if len(values) and min(values) < -limit:
        return -math.inf
    low, high = -limit, float(max(values, default=-limit))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        refuted = limit + middle > 0 and wealth(values, limit, middle).max() >= 1 / level
        low, high = (middle, high) if refuted else (low, middle)
    return low
