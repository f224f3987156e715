"""The moments accountant and Rényi differential privacy: costs that add up order by order.

`dp_accounting` computes divergences of Poisson sampling, and their epsilon; this module tightens its loose bounds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy

from fedbo.algorithms.base import Array
from fedbo.privacy.displacement import divergences
from fedbo.privacy.gaussian import PrivacyCharge, is_unamplified, refuse_fixed

MOMENT_ORDERS = np.arange(1, 33)
RENYI_ORDERS = (*(1.5 + 0.25 * step for step in range(18)), *range(6, 64), 128, 256, 512)


@dataclass(frozen=True, slots=True)
class OrderSum:
    """A sum whose costs are one number for each order; `convert` turns them into epsilon."""

    cost: Callable[[PrivacyCharge], Array]
    convert: Callable[[Array, float], float]
    spent: Array

    def plus(self, charge: PrivacyCharge, times: int) -> OrderSum:
        if times == 0 or charge.multiplier == math.inf:
            return self
        return replace(self, spent=self.spent + times * self.cost(charge))

    def epsilon(self, delta: float) -> float:
        return self.convert(self.spent, delta) if self.spent.any() else 0.0


def moments(charge: PrivacyCharge) -> Array:
    """Return the logarithms of the moments, the larger of both directions.

    The larger one is always that with the mixture above, E of (mixture / plain)^lambda over the mixture (Mironov et al. 2019,
    theorem 5). For whole lambda it is a binomial sum; the other direction would need quadrature.
    """
    refuse_fixed(charge, "moments")
    if is_unamplified(charge):
        return MOMENT_ORDERS * (MOMENT_ORDERS + 1) / 2 * charge.weight
    n, k = (MOMENT_ORDERS + 1)[:, None], np.arange(MOMENT_ORDERS[-1] + 2)
    left = np.maximum(n - k, 0)
    special = scipy.special
    choices = -np.log(n + 1) - special.betaln(left + 1, k + 1)
    terms = choices + special.xlogy(k, charge.share) + special.xlog1py(left, -charge.share) + (k * k - k) / 2 * charge.weight
    return np.asarray(special.logsumexp(np.where(k <= n, terms, -np.inf), axis=1))


def epsilon_from_moments(spent: Array, delta: float) -> float:
    return float(np.min((spent - math.log(delta)) / MOMENT_ORDERS))


@lru_cache(maxsize=1024)
def renyi_divergences(charge: PrivacyCharge) -> Array:
    """Return the Rényi divergences, at most those without sampling."""
    plain = np.array(RENYI_ORDERS) / 2 * charge.weight
    if is_unamplified(charge):
        return plain
    if charge.sampling == "fixed":
        amplified = divergences(charge.sampled / charge.population, charge.multiplier, RENYI_ORDERS)
        return np.fmin(np.maximum(amplified, 1e-12), plain)
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = PoissonSampledDpEvent(charge.share, GaussianDpEvent(charge.multiplier))
    with np.errstate(all="ignore"), _without_warnings():
        found: Array = RdpAccountant(RENYI_ORDERS, NeighboringRelation.REPLACE_SPECIAL).compose(event).rdp
        return np.fmin(np.fmin(np.maximum(found, 1e-12), _between_whole(found)), plain)  # fmin leaves NaN out


def _between_whole(divergences: Array) -> Array:
    """Bound each divergence by those of whole orders, as (order - 1) times the divergence is convex in the order, and 0 at 1.

    For fractional orders of Poisson sampling dp-accounting adds up the magnitudes of an alternating series, which is safe
    but may be far above; its whole orders are exact.
    """
    orders = np.array(RENYI_ORDERS)
    whole = orders % 1 == 0
    generating = np.concatenate(([0.0], np.maximum(divergences, 1e-12)[whole] * (orders[whole] - 1)))
    return np.asarray(np.interp(orders, np.concatenate(([1.0], orders[whole])), generating) / (orders - 1))


def epsilon_from_renyi(spent: Array, delta: float) -> float:
    from dp_accounting.rdp import compute_epsilon

    return float(compute_epsilon(RENYI_ORDERS, spent, delta)[0])


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress dp-accounting's warnings about orders that it leaves out; the bound without sampling replaces them.

    Its first warning would also set up the root logger, which prints the records of all others.
    """
    logger, handlers = logging.getLogger("absl"), logging.root.handlers[:]
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        logging.root.handlers[:] = handlers
