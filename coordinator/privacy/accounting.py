"""What releases cost an agent: epsilon, by three accountants, for the adjacency in which its contribution becomes zero."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, Self

import numpy as np
from scipy.special import betaln, erfcx, logsumexp, ndtr, xlog1py, xlogy

from fedbo.algorithms.base import Array
from fedbo.algorithms.settings import unknown
from fedbo.coordinator.privacy.displacement import divergences

ACCOUNTANTS = ("moments", "rdp", "pld")

_MOMENTS = np.arange(1, 33)
_ORDERS = (*(1.5 + 0.25 * step for step in range(18)), *range(6, 64), 128, 256, 512)
_FINEST, _FINE, _COARSEST, _BINS = 2.0**-16, 2.0**-9, 2.0**-3, 2e5


@dataclass(frozen=True, slots=True)
class Charge:
    """What one release costs one agent.

    The agent was in it with probability `share` q, and the noise is `multiplier` times the norm of the most it could add;
    an infinite multiplier costs nothing, and 0 is no noise. `sampling` is "poisson", independent coins, or "fixed":
    max(1, round(q `population`)) of a `population` of those who could be, without replacement.
    """

    share: float
    multiplier: float
    sampling: str = "poisson"
    population: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be in (0, 1], not {self.share}; leave a release out that an agent could not be in")
        if not self.multiplier >= 0:
            raise ValueError(f"multiplier must be at least 0, not {self.multiplier}; 0 is no noise, inf a release that is free")
        if self.sampling not in ("poisson", "fixed"):
            raise ValueError(unknown("sampling", self.sampling, ("poisson", "fixed")))
        if self.sampling == "fixed" and self.population < 1:
            raise ValueError(f"population must be at least 1, not {self.population}; give how many could be sampled")

    @property
    def sampled(self) -> int:
        """Give how many are sampled, where that is fixed."""
        return max(1, round(self.share * self.population))

    @property
    def certain(self) -> bool:
        """Say whether the agent is in the release for sure, so that sampling makes it no cheaper."""
        return self.share == 1 if self.sampling == "poisson" else self.sampled == self.population

    @property
    def weight(self) -> float:
        """Give 1 / multiplier^2, which adds up over releases without sampling."""
        return math.inf if self.multiplier == 0 else (1 / self.multiplier) * (1 / self.multiplier)


def epsilon(charges: Mapping[Charge, int], delta: float, by: str) -> float:
    """Give epsilon at `delta` of releases that happened as often as `charges` counts them.

    "moments" is the accountant of Abadi et al. 2016 with orders 1 to 32; "rdp" has fractional orders, and is the only one
    for fixed sampling; "pld" is the tightest. All three give upper bounds. What "pld" adds by its discretisation was at most
    0.3 %, for multipliers of 1 to 200 and up to 1,000 releases; without sampling it is exact. It is meant for delta >= 1e-9.
    """
    _check(by, (delta,))
    total = _empty(by, charges)
    for charge, times in charges.items():
        total = total.plus(charge, times)
    return total.epsilon(delta)


def running(charges: Sequence[Charge], deltas: Sequence[float], by: str) -> Array:
    """Give epsilon `(len(charges), len(deltas))` of the first 1, 2, ... releases, at each delta."""
    _check(by, deltas)
    total, found = _empty(by, Counter(charges)), np.empty((len(charges), len(deltas)))
    for row, charge in enumerate(charges):
        total = total.plus(charge, 1)
        found[row] = [total.epsilon(delta) for delta in deltas]
    return found


class Spending:
    """What has been spent at one delta, and what would be after one more release."""

    def __init__(self, delta: float, by: str = "pld", charges: Sequence[Charge] = ()) -> None:
        _check(by, (delta,))
        counts = Counter(charges)
        self._delta, self._total = delta, _empty(by, counts)
        for charge, times in counts.items():
            self.add(charge, times)

    @property
    def epsilon(self) -> float:
        """Give epsilon of all that was added."""
        return self._total.epsilon(self._delta)

    def after(self, charge: Charge, times: int = 1) -> float:
        """Give what epsilon would be after this charge, without adding it."""
        return self._total.plus(charge, times).epsilon(self._delta)

    def add(self, charge: Charge, times: int = 1) -> None:
        """Add a charge."""
        self._total = self._total.plus(charge, times)


def gaussian_epsilon(mu: Array, delta: float) -> Array:
    """Give the exact epsilon, for each mu, of Gaussian noise 1 / mu times the norm of what an agent could add.

    Releases without sampling are together one such, with mu^2 the sum of their 1 / multiplier^2. With a = mu/2 - eps/mu,
    delta = Phi(a) - phi(a) R(mu - a), where R is Mills' ratio (Balle and Wang 2018, theorem 8); it rises in a.
    """
    _check("pld", (delta,))
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


def multiplier_for(epsilon: float, delta: float, rounds: int, share: float, by: str) -> float:
    """Give the smallest noise multiplier, to a relative 1e-4 and never too small, that `rounds` Poisson releases need."""
    _check(by, (delta,))
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be greater than 0 and finite, not {epsilon}; 1 is a common choice")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}; give the number of releases")

    def enough(multiplier: float) -> bool:
        charge = Charge(share, multiplier)
        return _empty(by, {charge: rounds}).plus(charge, rounds).epsilon(delta) <= epsilon

    if not enough(1e9):
        raise ValueError(f"epsilon = {epsilon} is below all that '{by}' can show at delta = {delta}; try 'pld'")
    high = 1.0
    while not enough(high):
        high *= 2
    while high > 1e-6 and enough(high / 2):
        high /= 2
    low = high / 2
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


class _Total(Protocol):
    """The sum of charges, as one accountant keeps it."""

    def plus(self, charge: Charge, times: int) -> Self:
        """Give the sum with one charge more."""

    def epsilon(self, delta: float) -> float:
        """Give epsilon of the sum."""


@dataclass(frozen=True, slots=True)
class _OrderSum:
    """A sum whose costs are one number for each order, and which `convert` makes into epsilon."""

    cost: Callable[[Charge], Array]
    convert: Callable[[Array, float], float]
    spent: Array

    def plus(self, charge: Charge, times: int) -> _OrderSum:
        if times == 0 or charge.multiplier == math.inf:
            return self
        return replace(self, spent=self.spent + times * self.cost(charge))

    def epsilon(self, delta: float) -> float:
        return self.convert(self.spent, delta) if self.spent.any() else 0.0


@dataclass(frozen=True, slots=True)
class _Losses:
    """A sum of privacy losses: `certain` is mu^2 of the releases without sampling, `counts` holds the others.

    `sampled` is the discretised distribution of the others' loss, rounded so that no delta becomes too small
    ("connect the dots", Doroshenko et al. 2022); None where there are none, or where the noise is so weak that the
    bound without sampling stands for it.
    """

    interval: float
    counts: Mapping[Charge, int]
    certain: float = 0.0
    sampled: Any = None

    def plus(self, charge: Charge, times: int) -> _Losses:
        if times == 0 or charge.multiplier == math.inf:
            return self
        _refuse_fixed(charge, "pld")
        certain, counts, added = self.certain, self.counts, {charge: times}
        if _plain(charge):
            certain, added = certain + times * charge.weight, {}
        else:
            counts = {**counts, charge: counts.get(charge, 0) + times}
        interval = max(self.interval, _coarse_enough(certain + _square(counts)))
        sampled = _composed(None, counts, interval) if interval > self.interval else _composed(self.sampled, added, interval)
        return _Losses(interval, counts, certain, sampled)

    def epsilon(self, delta: float) -> float:
        whole = float(gaussian_epsilon(np.array(math.sqrt(self.certain + _square(self.counts))), delta))
        if self.sampled is None:
            return whole
        losses = self.sampled
        if self.certain:
            losses = losses.compose(_losses_of(Charge(1.0, 1 / math.sqrt(self.certain)), self.interval))
        return min(float(losses.get_epsilon_for_delta(delta)), whole)


def _empty(by: str, charges: Mapping[Charge, int]) -> _Total:
    if by == "pld":
        return _Losses(_interval(charges), {})
    if by == "rdp":
        return _OrderSum(_renyi, _from_renyi, np.zeros(len(_ORDERS)))
    return _OrderSum(_moments, _from_moments, np.zeros(len(_MOMENTS)))


def _check(by: str, deltas: Sequence[float]) -> None:
    if by not in ACCOUNTANTS:
        raise ValueError(unknown("accountant", by, ACCOUNTANTS))
    for delta in deltas:
        if not 0 < delta < 1:
            raise ValueError(f"delta must be between 0 and 1, not {delta}; 1e-5 is a common choice")


def _refuse_fixed(charge: Charge, by: str) -> None:
    if charge.sampling == "fixed" and not charge.certain:
        raise ValueError(f"'{by}' cannot account for sampling = 'fixed'; take the accountant 'rdp', or sampling = 'poisson'")


def _plain(charge: Charge) -> bool:
    """Say whether the bound without sampling is taken: all are in, or sampling cannot matter with so little or much noise."""
    return charge.certain or not 1e-30 < charge.weight < 1e300


def _moments(charge: Charge) -> Array:
    """Give the logarithms of the moments, the larger of both directions.

    That is always the one with the mixture above, E of (mixture / plain)^lambda over the mixture (Mironov et al. 2019,
    theorem 5), which for whole lambda is a binomial sum; the other one would need quadrature.
    """
    _refuse_fixed(charge, "moments")
    if _plain(charge):
        return _MOMENTS * (_MOMENTS + 1) / 2 * charge.weight
    n, k = (_MOMENTS + 1)[:, None], np.arange(_MOMENTS[-1] + 2)
    left = np.maximum(n - k, 0)
    choices = -np.log(n + 1) - betaln(left + 1, k + 1)
    terms = choices + xlogy(k, charge.share) + xlog1py(left, -charge.share) + (k * k - k) / 2 * charge.weight
    return np.asarray(logsumexp(np.where(k <= n, terms, -np.inf), axis=1))


def _from_moments(spent: Array, delta: float) -> float:
    return float(np.min((spent - math.log(delta)) / _MOMENTS))


@lru_cache(maxsize=1024)
def _renyi(charge: Charge) -> Array:
    """Give the Rényi divergences, at most those without sampling."""
    plain = np.array(_ORDERS) / 2 * charge.weight
    if _plain(charge):
        return plain
    if charge.sampling == "fixed":
        amplified = divergences(charge.sampled / charge.population, charge.multiplier, _ORDERS)
        return np.fmin(np.maximum(amplified, 1e-12), plain)
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = PoissonSampledDpEvent(charge.share, GaussianDpEvent(charge.multiplier))
    with np.errstate(all="ignore"), _silently():
        found: Array = RdpAccountant(_ORDERS, NeighboringRelation.REPLACE_SPECIAL).compose(event).rdp
        return np.fmin(np.fmin(np.maximum(found, 1e-12), _between_whole(found)), plain)  # fmin leaves NaN out


def _between_whole(divergences: Array) -> Array:
    """Bound each from those of whole orders, as (order - 1) times the divergence is convex in the order, and 0 at 1.

    For fractional orders of Poisson sampling dp-accounting adds up the magnitudes of an alternating series, which is safe
    but may be far above; its whole orders are exact.
    """
    orders = np.array(_ORDERS)
    whole = orders % 1 == 0
    generating = np.concatenate(([0.0], np.maximum(divergences, 1e-12)[whole] * (orders[whole] - 1)))
    return np.asarray(np.interp(orders, np.concatenate(([1.0], orders[whole])), generating) / (orders - 1))


def _from_renyi(spent: Array, delta: float) -> float:
    from dp_accounting.rdp import compute_epsilon

    return float(compute_epsilon(_ORDERS, spent, delta)[0])


@contextmanager
def _silently() -> Iterator[None]:
    """Keep dp-accounting from warning of orders that it leaves out; the bound without sampling stands for them."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _composed(losses: Any, charges: Mapping[Charge, int], interval: float) -> Any:
    """Add charges to a distribution, which is None as long as it is empty; with too wide bins it stays so."""
    if interval > _COARSEST:
        return None
    for charge, times in charges.items():
        added = _losses_of(charge, interval)
        added = added if times == 1 else added.self_compose(times)
        losses = added if losses is None else losses.compose(added)
    return losses


@lru_cache(maxsize=128)
def _losses_of(charge: Charge, interval: float) -> Any:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(
        charge.multiplier, value_discretization_interval=interval, sampling_prob=charge.share, use_connect_dots=True
    )


def _interval(charges: Mapping[Charge, int]) -> float:
    """Choose the width of a bin, a power of two: an eighth of a typical release's loss, within bounds.

    Much finer ones would drown in rounding, since a bin's probability is a second difference over its width.
    """
    counted = {charge: times for charge, times in charges.items() if times and 0 < charge.multiplier < math.inf}
    releases = sum(counted.values())
    if not releases:
        return _FINE
    typical = math.sqrt(sum(times * charge.share**2 * charge.weight for charge, times in counted.items()) / releases)
    wanted = 2.0 ** math.floor(math.log2(min(max(typical / 8, _FINEST), _FINE)))
    return max(wanted, _coarse_enough(_square(counted)))


def _square(charges: Mapping[Charge, int]) -> float:
    return sum(times * charge.weight for charge, times in charges.items())


def _coarse_enough(square: float) -> float:
    """Give the bin below which there would be too many: the loss can hardly exceed that without sampling."""
    reach = square / 2 + 10 * math.sqrt(square)
    return 2.0 ** math.ceil(math.log2(min(max(reach / _BINS, 1e-300), 1e300)))


def _gaussian_delta(mu: Array, a: Array) -> Array:
    """Give delta at eps = mu (mu / 2 - a)."""
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        return np.asarray(ndtr(a) - np.exp(-a * a / 2) / 2 * erfcx((mu - a) / math.sqrt(2)))
