"""Shares of the spread of a quantity that come from each source of luck: Sobol indices by pick-and-freeze, with intervals.

Rows of a design have draws A and B of every source. Besides f(A) and f(B) each row has, for every source, f with all draws of A
but that source's of B. First-order and total shares follow Jansen 1999 (Saltelli et al. 2010, Table 2, (c) and (f)). Intervals
are percentiles of bootstrap samples of the rows, the 0.1th and the 99.9th, and a quarter wider: of skewed quantities the 2.5th
and the 97.5th cover 80 to 90 % with some dozens of rows. These cover 95 % from 64 rows on (`tests/lab/why/test_shares.py`).
Whether rows are enough depends on their number alone: a rule by the estimate keeps the samples whose variance came out small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ENOUGH = 64  # rows from which on the intervals cover 95 %
_SAMPLES = 4000
_ENDS = (0.1, 99.9)
_WIDER = 1.25  # factor of the distance of the ends from the estimate
_FEW = 8  # rows below which a bootstrap says nothing


@dataclass(frozen=True, slots=True)
class Share:
    """The first-order and the total share of one source, each with its 95 % interval; `enough` if there were `ENOUGH` rows.

    The first-order share is what vanishes on average if the source is fixed alone, the total one what is left if all others
    are.
    """

    source: str
    first: float
    first_low: float
    first_high: float
    total: float
    total_low: float
    total_high: float
    enough: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean and the standard deviation of a quantity over redraws of everything, and the shares of all sources."""

    rows: int
    mean: float
    deviation: float
    shares: tuple[Share, ...]


def spread_of(names: tuple[str, ...], a: Array, b: Array, mixed: Array, seed: int = 0) -> Spread:
    """Estimate the shares from `a (n,)`, `b (n,)` and, for each of k sources, `mixed (k, n)`."""
    both = np.concatenate([a, b])
    deviation = float(both.std(ddof=1)) if len(both) > 1 else 0.0
    if len(a) < _FEW or not deviation > 0:
        shares = tuple(_unknown(name) for name in names)
        return Spread(len(a), float(both.mean()), deviation, shares)
    # Each row counts as often as it is in a sample: a product of matrices in place of 4,000 copies of the rows.
    weights = np.random.default_rng(seed).multinomial(len(a), np.full(len(a), 1 / len(a)), _SAMPLES) / len(a)
    shares = tuple(_share(name, a, b, mine, weights) for name, mine in zip(names, mixed, strict=True))
    return Spread(len(a), float(both.mean()), deviation, shares)


def _share(name: str, a: Array, b: Array, mixed: Array, weights: Array) -> Share:
    once = np.full((1, len(a)), 1 / len(a))
    (first,), (total,) = _orders(a, b, mixed, once)
    firsts, totals = _orders(a, b, mixed, weights)
    low, high, least, most = *_ends(first, firsts), *_ends(total, totals)
    return Share(
        source=name,
        first=float(first),
        first_low=low,
        first_high=high,
        total=float(total),
        total_low=least,
        total_high=most,
        enough=len(a) >= ENOUGH,
    )


def _ends(share: float, samples: Array) -> tuple[float, float]:
    # A sample without any spread says nothing of a share: it stands for 0 at the low end and for 1 at the high one.
    low, high = (np.percentile(np.nan_to_num(samples, nan=end), at) for end, at in zip((0.0, 1.0), _ENDS, strict=True))
    ends = np.clip([share + _WIDER * (low - share), share + _WIDER * (high - share)], 0.0, 1.0)  # estimates may lie outside
    return float(ends[0]), float(ends[1])


def _unknown(name: str) -> Share:
    nan = float("nan")
    return Share(source=name, first=nan, first_low=0.0, first_high=1.0, total=nan, total_low=0.0, total_high=1.0, enough=False)


def _orders(a: Array, b: Array, mixed: Array, weights: Array) -> tuple[Array, Array]:
    """Return first-order and total shares `(s,)` for weights of the rows `(s, n)`; NaN where the rows are equal.

    `b` and `mixed` have one source in common, in which `a` and `mixed` differ.
    """
    middle, whole = np.concatenate([a, b]).mean(), np.concatenate([a, b]).var()
    variance = weights @ (((a - middle) ** 2 + (b - middle) ** 2) / 2) - (weights @ ((a + b) / 2 - middle)) ** 2
    variance = np.where(variance > 1e-12 * whole, variance, np.nan)  # beneath it are roundings alone
    return 1 - weights @ (b - mixed) ** 2 / 2 / variance, weights @ (a - mixed) ** 2 / 2 / variance
