"""Privacy loss distributions: the tightest accountant, on distributions that `dp_accounting` discretises and composes.

Discretisation adds to epsilon, so a sum also carries Rényi divergences. They determine the width of the grid, and their
epsilon is the bound where it is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.privacy.gaussian import PrivacyCharge, gaussian_epsilon, is_unamplified, refuse_fixed
from fedbo.privacy.order_sums import RENYI_ORDERS, epsilon_from_renyi, renyi_divergences
from fedbo.settings.sums import plain_sum

_FINEST, _FINE, _COARSEST, _BINS = 2.0**-16, 2.0**-9, 2.0**-3, 2e5
_TAIL = 1e-15  # probability beyond the grid


@dataclass(frozen=True, slots=True)
class LossSum:
    """A sum of privacy losses: `certain` is mu^2 of the releases without sampling, `counts` holds the others.

    `sampled` is the discretised distribution of the others' loss, rounded so that no delta becomes too small
    ("connect the dots", Doroshenko et al. 2022). It is None if there are none, or if the noise is so weak that the bound
    without sampling replaces it. `divergences` are the Rényi divergences of all releases, by order.
    """

    interval: float
    counts: Mapping[PrivacyCharge, int]
    certain: float = 0.0
    sampled: Any = None
    divergences: Array = field(default_factory=lambda: np.zeros(len(RENYI_ORDERS)))

    def plus(self, charge: PrivacyCharge, times: int) -> LossSum:
        if times == 0 or charge.multiplier == math.inf:
            return self
        refuse_fixed(charge, "pld")
        certain, counts, added = self.certain, self.counts, {charge: times}
        divergences = self.divergences + times * renyi_divergences(charge)
        if is_unamplified(charge):
            certain, added = certain + times * charge.weight, {}
        else:
            counts = {**counts, charge: counts.get(charge, 0) + times}
        interval = max(self.interval, _least_width(_reach(certain, counts, divergences)))
        sampled = _composed(None, counts, interval) if interval > self.interval else _composed(self.sampled, added, interval)
        return LossSum(interval, counts, certain, sampled, divergences)

    def epsilon(self, delta: float) -> float:
        whole = float(gaussian_epsilon(np.array(math.sqrt(self.certain + _sum_of_weights(self.counts))), delta))
        if not self.counts:
            return whole
        whole = min(whole, epsilon_from_renyi(self.divergences, delta))
        if self.sampled is None:
            return whole
        losses = self.sampled
        if self.certain:
            losses = losses.compose(_losses_of(PrivacyCharge(1.0, 1 / math.sqrt(self.certain)), self.interval))
        return min(float(losses.get_epsilon_for_delta(delta)), whole)


def _composed(losses: Any, charges: Mapping[PrivacyCharge, int], interval: float) -> Any:
    """Add charges to a distribution, where None is the empty one; None if the bins are too wide."""
    if interval > _COARSEST:
        return None
    for charge, times in charges.items():
        added = _losses_of(charge, interval)
        added = added if times == 1 else added.self_compose(times)
        losses = added if losses is None else losses.compose(added)
    return losses


@lru_cache(maxsize=128)
def _losses_of(charge: PrivacyCharge, interval: float) -> Any:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(
        charge.multiplier, value_discretization_interval=interval, sampling_prob=charge.share, use_connect_dots=True
    )


def bin_width(charges: Mapping[PrivacyCharge, int]) -> float:
    """Choose the width of a bin, a power of two: an eighth of a typical release's loss, within bounds.

    Much finer bins would drown in rounding, since a bin's probability is a second difference over its width.
    """
    counted = {charge: times for charge, times in charges.items() if times and 0 < charge.multiplier < math.inf}
    releases = sum(counted.values())
    if not releases:
        return _FINE
    typical = math.sqrt(plain_sum(times * charge.share**2 * charge.weight for charge, times in counted.items()) / releases)
    wanted = 2.0 ** math.floor(math.log2(min(max(typical / 8, _FINEST), _FINE)))
    sampled = {charge: times for charge, times in counted.items() if not is_unamplified(charge)}
    certain = _sum_of_weights({charge: times for charge, times in counted.items() if is_unamplified(charge)})
    divergences = np.sum([times * renyi_divergences(charge) for charge, times in counted.items()], axis=0)
    return max(wanted, _least_width(_reach(certain, sampled, divergences)))


def _sum_of_weights(charges: Mapping[PrivacyCharge, int]) -> float:
    return plain_sum(times * charge.weight for charge, times in charges.items())


def _reach(certain: float, sampled: Mapping[PrivacyCharge, int], divergences: Array) -> float:
    """Bound the loss, up to a probability of about 1e-15: by the loss without sampling, and with it by Rényi divergences.

    The distribution of a single release is on the same grid, so it counts too.
    """
    without = _gaussian_reach(certain + _sum_of_weights(sampled))
    if not sampled:
        return without
    single = _gaussian_reach(max(charge.weight for charge in sampled))
    return min(without, _gaussian_reach(certain) + max(single, epsilon_from_renyi(divergences, _TAIL)))


def _gaussian_reach(square: float) -> float:
    return square / 2 + 10 * math.sqrt(square)


def _least_width(reach: float) -> float:
    """Return the smallest width of a bin that keeps the number of bins within its limit."""
    return 2.0 ** math.ceil(math.log2(min(max(reach / _BINS, 1e-300), 1e300)))
