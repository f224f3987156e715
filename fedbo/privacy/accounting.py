"""The privacy cost of releases for an agent: epsilon, by three accountants; in the adjacent study its contribution is zero.

"moments" and "rdp" are in `order_sums`, "pld" is in `loss_sums`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.privacy.gaussian import ChargeSum, PrivacyCharge, check_deltas
from fedbo.privacy.loss_sums import LossSum, bin_width
from fedbo.privacy.order_sums import (
    MOMENT_ORDERS,
    RENYI_ORDERS,
    OrderSum,
    epsilon_from_moments,
    epsilon_from_renyi,
    moments,
    renyi_divergences,
)
from fedbo.settings.errors import unknown

ACCOUNTANTS = ("moments", "rdp", "pld")
_LEAST_NOISE, _MOST_NOISE, _LEAST_SPENT, _STEP = 1e-6, 1e9, 1e-12, 1e-4


def epsilon(charges: Mapping[PrivacyCharge, int], delta: float, by: str) -> float:
    """Return epsilon at `delta` of all releases; `charges` counts the releases of each charge.

    "moments" is the accountant of Abadi et al. 2016 with orders 1 to 32; "rdp" has fractional orders, and is the only one
    for fixed sampling; "pld" is the tightest, and never above "rdp". All three are upper bounds. Discretisation adds to "pld":
    at most 0.7 % for up to 1,000,000 releases, 0.1 % where epsilon is above 0.3; without sampling it is exact. It is meant for
    delta >= 1e-9.
    """
    _check(by, (delta,))
    return _total(by, tuple(charges.items())).epsilon(delta)


def epsilon_of(charges: Mapping[PrivacyCharge, int], delta: float) -> float:
    """Compute epsilon by the tightest accountant that supports all of these charges."""
    return epsilon(charges, delta, "rdp" if any(charge.sampling == "fixed" for charge in charges) else "pld")


@lru_cache(maxsize=16)
def _total(by: str, charges: tuple[tuple[PrivacyCharge, int], ...]) -> ChargeSum:
    """Compose charges in their order, on which rounding depends; cached, since each delta and each cell needs the same ones."""
    total = _empty_sum(by, dict(charges))
    for charge, times in charges:
        total = total.plus(charge, times)
    return total


def running(charges: Sequence[PrivacyCharge], deltas: Sequence[float], by: str) -> Array:
    """Return epsilon `(len(charges), len(deltas))` of the first 1, 2, ... releases, at each delta."""
    _check(by, deltas)
    total, found = _empty_sum(by, Counter(charges)), np.empty((len(charges), len(deltas)))
    for row, charge in enumerate(charges):
        total = total.plus(charge, 1)
        found[row] = [total.epsilon(delta) for delta in deltas]
    return found


class Spending:
    """The epsilon spent so far at one delta, and after one more release."""

    def __init__(self, delta: float, by: str = "pld", charges: Sequence[PrivacyCharge] = ()) -> None:
        _check(by, (delta,))
        counts = Counter(charges)
        self._delta, self._total = delta, _empty_sum(by, counts)
        for charge, times in counts.items():
            self.add(charge, times)

    @property
    def epsilon(self) -> float:
        """Return epsilon of all added charges."""
        return self._total.epsilon(self._delta)

    def after(self, charge: PrivacyCharge, times: int = 1) -> float:
        """Return epsilon after this charge, without adding it."""
        return self._total.plus(charge, times).epsilon(self._delta)

    def add(self, charge: PrivacyCharge, times: int = 1) -> None:
        """Add a charge."""
        self._total = self._total.plus(charge, times)


def multiplier_for(epsilon: float, delta: float, rounds: int, share: float, by: str) -> float:
    """Return the least noise multiplier for `rounds` Poisson releases within epsilon, at most a relative 1e-4 too large."""
    _check(by, (delta,))
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be greater than 0 and finite, not {epsilon}; 1 is a common choice")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}; set the number of releases")

    def spent(multiplier: float) -> float:
        charge = PrivacyCharge(share, multiplier)
        return _empty_sum(by, {charge: rounds}).plus(charge, rounds).epsilon(delta)

    found = least_noise(spent, epsilon, _start(epsilon, delta, rounds, share, by))
    if found is None:
        raise ValueError(f"epsilon = {epsilon} is below the smallest value that '{by}' can prove at delta = {delta}; try 'pld'")
    return found


def least_noise(spent: Callable[[float], float], epsilon: float, start: float = 1.0) -> float | None:
    """Return the least noise multiplier whose `spent` epsilon is at most `epsilon`, to a relative 2e-4 from above.

    None where 1e9 is not enough.
    """

    def excess(log_noise: float) -> float:  # whose slope varies little, so that few sums are composed
        return math.log(min(max(spent(math.exp(log_noise)), _LEAST_SPENT), 1 / _LEAST_SPENT) / epsilon)

    from scipy.optimize import brentq

    if spent(_MOST_NOISE) > epsilon:
        return None
    high = math.log(start)
    while excess(high) > 0:
        high += math.log(2)
    while high > math.log(_LEAST_NOISE) and excess(high - math.log(2)) <= 0:
        high -= math.log(2)
    if high > math.log(_LEAST_NOISE):
        high = float(brentq(excess, high - math.log(2), high, xtol=_STEP, rtol=_STEP))
    while excess(high) > 0:
        high += _STEP
    return math.exp(high)


def _start(epsilon: float, delta: float, rounds: int, share: float, by: str) -> float:
    """Return the start of the search: for "pld" the result of "rdp", since sums of little noise are slow to compose."""
    if by != "pld":
        return 1.0
    try:
        return multiplier_for(epsilon, delta, rounds, share, "rdp")
    except ValueError:  # beyond what it can show
        return 1.0


def _empty_sum(by: str, charges: Mapping[PrivacyCharge, int]) -> ChargeSum:
    if by == "pld":
        return LossSum(bin_width(charges), {})
    if by == "rdp":
        return OrderSum(renyi_divergences, epsilon_from_renyi, np.zeros(len(RENYI_ORDERS)))
    return OrderSum(moments, epsilon_from_moments, np.zeros(len(MOMENT_ORDERS)))


def _check(by: str, deltas: Sequence[float]) -> None:
    if by not in ACCOUNTANTS:
        raise ValueError(unknown("accountant", by, ACCOUNTANTS))
    check_deltas(deltas)
