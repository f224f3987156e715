"""The Gaussian mechanism of one release: clipping, noise, its charge for an agent, and the exact epsilon without sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, Self

import numpy as np
import scipy
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.base import Array, Mechanism
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check

LARGEST_NOISE = 1e150  # noise multiplier whose square is still finite
WEAK_DELTA = 0.01  # above it a mechanism may publish the data of one agent in a hundred outright


def clip_factors(norms: Array, bound: float) -> tuple[Array, int]:
    """Return the factors `(n,)` that clip messages with `norms (n,)` to the norm `bound`, and the number of those clipped."""
    if math.isinf(bound):
        return np.ones(len(norms)), 0
    return bound / np.maximum(norms, bound), int((norms > bound).sum())


def noise_stds(mechanism: Mechanism, weights: Array, clip: float) -> Array:
    """Return the standard deviations `(P,)` of the noise in the blocks of a release, at the clipping norm `clip`."""
    if not mechanism.noise:
        return np.zeros(len(weights))
    largest = weights.max(axis=1) if mechanism.per_block else np.full(len(weights), weights.max())
    return _vector_noise(mechanism) * largest * clip / mechanism.share


def sensitivities(mechanism: Mechanism, weights: Array) -> Array:
    """Return each agent's sensitivity `(N,)`: its largest contribution to a release, each block over its noise's deviation.

    At most 1 / z, and less where an agent's weights are small in some blocks: with the actual weights, a release costs less
    than its bound S phi_max / q.
    """
    if not mechanism.noise:
        return np.where(weights.max(axis=0) > 0, math.inf, 0.0)
    largest = weights.max(axis=1, keepdims=True) if mechanism.per_block else weights.max()
    squares = ((weights / largest) ** 2).mean(axis=0) / min(_vector_noise(mechanism), LARGEST_NOISE) ** 2
    if mechanism.quantile is not None:
        squares = squares + (0.5 / mechanism.count_noise) ** 2
    return np.asarray(np.sqrt(squares))


def _vector_noise(mechanism: Mechanism) -> float:
    """Return the noise multiplier of the vectors alone: the noisy count uses its part of z (Andrew et al. 2021, Theorem 1)."""
    if mechanism.quantile is None:
        return mechanism.noise
    return float((mechanism.noise**-2 - (2 * mechanism.count_noise) ** -2) ** -0.5)


@dataclass(frozen=True, slots=True)
class PrivacyCharge:
    """The cost of one release for one agent.

    The agent was in it with probability `share` q. The noise is `multiplier` times the norm of the agent's largest possible
    contribution; an infinite multiplier costs nothing, and 0 is no noise. `sampling` is "poisson", independent coins, or
    "fixed": max(1, round(q `population`)) of the `population` of eligible agents, without replacement.
    """

    share: Annotated[float, Gt(0), Le(1), "remove releases that cannot include an agent"]
    multiplier: Annotated[float, Ge(0), "0 means no noise, inf means a free release"]
    sampling: Annotated[str, OneOf(("poisson", "fixed"))] = "poisson"
    population: int = 0

    def __post_init__(self) -> None:
        check(self)
        if self.sampling == "fixed" and self.population < 1:
            raise SettingError(
                "population", "must be at least 1", self.population, "set the number of agents that can be sampled"
            )

    @property
    def sampled(self) -> int:
        """Return the number of sampled agents, where it is fixed."""
        return max(1, round(self.share * self.population))

    @property
    def certain(self) -> bool:
        """Check whether the agent is certainly in the release, so that sampling does not reduce the cost."""
        return self.share == 1 if self.sampling == "poisson" else self.sampled == self.population

    @property
    def weight(self) -> float:
        """Return 1 / multiplier^2, which adds up over releases without sampling."""
        return math.inf if self.multiplier == 0 else (1 / self.multiplier) * (1 / self.multiplier)


class ChargeSum(Protocol):
    """A sum of charges, in the form of one accountant."""

    def plus(self, charge: PrivacyCharge, times: int) -> Self:
        """Return the sum with one more charge, `times` times."""

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the sum."""


def refuse_fixed(charge: PrivacyCharge, by: str) -> None:
    if charge.sampling == "fixed" and not charge.certain:
        raise ValueError(f"'{by}' cannot account for sampling = 'fixed'; use the accountant 'rdp', or sampling = 'poisson'")


def is_unamplified(charge: PrivacyCharge) -> bool:
    """Check whether the bound without sampling applies: all agents are in, or the noise is too little or too much to matter."""
    return charge.certain or not 1e-30 < charge.weight < 1e300


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
