"""Rényi divergences of a release with a fixed number of drawn agents: an agent's draw may show in the agent it displaces.

k of n agents are drawn, q = k / n, and their contributions are summed and hidden in N(0, I). One agent's contribution is a
in one world and zero in the adjacent one; all others have v_j, the same in both, and no norm is above c (contributions are
over the standard deviation of the noise, so that c is 1 / z).

*One other is enough.* A set with the agent is it and T, k - 1 of the others; one without it may be drawn as T and one more,
j. Given T and j, and less the sum over T, the release is drawn from

    P = q N(a, I) + (1 - q) N(v_j, I)        or, in the other world, from        Q = q N(0, I) + (1 - q) N(v_j, I).

Hockey-stick divergences H_g(P, Q) = int (P - g Q)+ are jointly convex, so that over all T and j they are at most the
largest. It is reached: where all others say the same, the release is such a pair.

*The worst of others*, for every g >= 1 and wherever a and w = v_j point. Write w = |w| (cos t, sin t) with the first axis
along a, and s, r for the coordinates of x along w and across, so that x_1 = s cos t - r sin t. P > g Q exactly where

    exp(a x_1 - a^2 / 2) - g > (g - 1) (1 - q) / q exp(|w| s - |w|^2 / 2).

At each s that holds for r below some R(s). As the integrand is 0 at the border of that set, the derivative of H_g by t is
-(g - 1) (1 - q) |w| int phi(s - |w|) int_{r < R(s)} r phi(r) dr ds, and the inner integral is -phi(R(s)): H_g rises in t,
up to w opposite to a. There the set is x > X, and in the same way H_g rises in |w| and in |a|. For H_g(Q, P) all is
reversed: the set is r > R(s), H_g falls in t, down to w along a, and rises in |w| and |a|. So no pair is above

    q N(c) + (1 - q) N(-c) against q N(0) + (1 - q) N(-c)     where P > Q, and
    q N(0) + (1 - q) N(c)  against q N(c) + (1 - q) N(c)      where Q > P.

*Rényi divergences* are sums of both: with f(t) = t^o - 1 - o (t - 1), E_Q (P / Q)^o = 1 + int f''(g) H_g(P, Q) over g > 1,
and as much of H_g(Q, P). Each integral is that of f over one side of x = c / 2, with the pair that is worst there.

Nothing that an agent says may depend on whether it was asked before: the draws of agents depend on each other. The pair is
also right where fewer are heard than were drawn, since zero is a contribution too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from fedbo.algorithms.base import Array

_STEP, _REACH = 0.05, 14.0  # of the grid, and how far it goes beyond the peaks, in standard deviations of the noise
_FARTHEST = 100.0  # peaks beyond it are not looked at: so far out there is no gain from sampling


def divergences(share: float, multiplier: float, orders: Sequence[float]) -> Array:
    """Bound the Rényi divergences `(orders,)` of one release, both directions, for the `share` q and z = `multiplier`.

    Orders are above 1; at an order too high for the noise the bound is infinite. The integrals use the trapezoidal rule, to a
    relative 1e-5, which is added.
    """
    norm = 1 / multiplier
    return np.array([_divergence(share, norm, order) if order * norm < _FARTHEST else math.inf for order in orders])


def _divergence(share: float, norm: float, order: float) -> float:
    reach = order * norm + norm + _REACH
    above, below = (norm / 2 + sign * np.arange(0.0, reach, _STEP) for sign in (1.0, -1.0))
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        with_it, without = _densities(share, norm, -norm, above)
        with_other, without_other = _densities(share, norm, norm, below)
        up = np.logaddexp(_part(with_it, without, order), _part(with_other, without_other, order))
        down = np.logaddexp(_part(without_other, with_other, order), _part(without, with_it, order))
    return float(np.logaddexp(0.0, max(up, down) + 1e-5)) / (order - 1)


def _densities(share: float, norm: float, other: float, x: Array) -> tuple[Array, Array]:
    """Return the logarithms of both densities `(n,)` at `x (n,)`; small differences between them keep full precision."""
    rest = math.log1p(-share) + other * x - other * other / 2
    own = norm * x - norm * norm / 2
    plain = -x * x / 2 - math.log(2 * math.pi) / 2
    without = np.logaddexp(math.log(share), rest)
    small = np.log1p(np.expm1(np.clip(own, -1.0, 1.0)) * np.exp(math.log(share) - without))
    ratio = np.where(np.abs(own) < 1.0, small, np.logaddexp(math.log(share) + own, rest) - without)
    return plain + without + ratio, plain + without


def _part(p: Array, q: Array, order: float) -> float:
    """Return the logarithm of the integral of q f(p / q) over a grid that begins where p = q."""
    terms = q + _log_excess(p - q, order)
    terms[0] = -math.inf  # f and its derivative are 0 at 1
    return float(scipy.special.logsumexp(terms)) + math.log(_STEP)


def _log_excess(loss: Array, order: float) -> Array:
    """Return log(t^order - 1 - order (t - 1)) for t = exp(loss), never too small; the argument is 0 at t = 1, else positive."""
    near = np.clip(loss, -1.0, 1e-4)
    # Near t = 1 the exact form cancels: there a bound of the second-order remainder replaces it.
    curved = order * np.exp(np.maximum(near, 0.0)) * (order * np.exp((order - 1) * np.maximum(near, 0.0)) - 1)
    little = 2 * np.log(np.abs(near)) + np.log(curved / 2)
    far = order * loss > 30.0
    moderate = np.where(far, 0.0, loss)
    exact = np.log(np.maximum(np.expm1(order * moderate) - order * np.expm1(moderate), 0.0))
    return np.where(np.abs(order * loss) < 1e-4, little, np.where(far, order * loss, exact))
