"""Shares of the spread of a quantity that come from each source of luck: Sobol indices by pick-and-freeze, with intervals.

Rows of a design have draws A and B of every source. Besides f(A) and f(B) each row has, for every source, f with all draws of A
but that source's of B. First-order and total shares follow Jansen 1999 (Saltelli et al. 2010, Table 2, (c) and (f)). Intervals
are percentiles of bootstrap samples of the rows: the 1st and the 99th, because with some dozens of rows the 2.5th and the
97.5th cover about 93 % and not 95 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_SAMPLES = 2000
_WIDE = 0.5  # width of an interval from which on a share is not told
_ENDS = (1.0, 99.0)
_FEW = 8  # rows below which a bootstrap says nothing


@dataclass(frozen=True, slots=True)
class Share:
    """The first-order and the total share of one source, each with its 95 % interval; `enough` if there were enough draws.

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
    rows = np.random.default_rng(seed).integers(len(a), size=(_SAMPLES, len(a)))
    shares = tuple(_share(name, a, b, mine, rows) for name, mine in zip(names, mixed, strict=True))
    return Spread(len(a), float(both.mean()), deviation, shares)


def _share(name: str, a: Array, b: Array, mixed: Array, rows: npt.NDArray[np.int64]) -> Share:
    first, total = first_order(a, b, mixed), total_order(a, b, mixed)
    with np.errstate(invalid="ignore", divide="ignore"):
        firsts, totals = (order(a[rows], b[rows], mixed[rows]) for order in (first_order, total_order))
    ends = [*np.nanpercentile(firsts, _ENDS), *np.nanpercentile(totals, _ENDS)]
    low, high, least, most = np.clip(ends, 0.0, 1.0).tolist()  # estimates may lie outside, shares do not
    enough = high - low <= _WIDE and most - least <= _WIDE
    return Share(
        source=name,
        first=float(first),
        first_low=low,
        first_high=high,
        total=float(total),
        total_low=least,
        total_high=most,
        enough=enough,
    )


def _unknown(name: str) -> Share:
    nan = float("nan")
    return Share(source=name, first=nan, first_low=0.0, first_high=1.0, total=nan, total_low=0.0, total_high=1.0, enough=False)


def first_order(a: Array, b: Array, mixed: Array) -> Any:
    """Return first-order shares from `(…, n)`: `b` and `mixed` have one source in common."""
    return 1 - ((b - mixed) ** 2).mean(axis=-1) / 2 / _variance(a, b)


def total_order(a: Array, b: Array, mixed: Array) -> Any:
    """Return total shares from `(…, n)`: `a` and `mixed` differ in one source."""
    return ((a - mixed) ** 2).mean(axis=-1) / 2 / _variance(a, b)


def _variance(a: Array, b: Array) -> Any:
    return np.concatenate([a, b], axis=-1).var(axis=-1)
