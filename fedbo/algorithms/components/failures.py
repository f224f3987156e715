"""Failed evaluations: supposed values, by which a surrogate avoids their points, and the probability of success.

Messages never hold supposed values. Agents may share probabilities, which are then a prior. A squared-exponential kernel
weights the outcomes near a point, and one outcome of the prior's probability comes on top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array

REACHES = (0.1, 0.2)  # length scales of the likeness of two points, times the square root of the number of inputs


def supposed_values(u: Array, y: Array, failed: Array) -> Array | None:
    """Compute values `(f,)` for failed points `(f, d)` from the observations `y (n,)` at `u (n, d)`, n > 0.

    A squared-exponential kernel weights the share of failures near a point, itself included. The value lies that share of the
    way from the mean of the nearby observations to the worst observation, so a region of failures counts as bad. Return None
    where failures look random, since they then carry no information about their surroundings.
    """
    near = _neighbourhood(np.concatenate([u, failed]), len(y))
    if near is None:
        return None
    to_observed, to_failed = near[len(y) :, : len(y)], near[len(y) :, len(y) :].sum(axis=1) + 1.0
    weight = to_observed.sum(axis=1)
    share = to_failed / (to_failed + weight)
    mean = np.where(weight > 0.0, to_observed @ y / np.maximum(weight, np.finfo(float).tiny), y.min())
    return np.asarray(share * y.min() + (1.0 - share) * mean)


def _neighbourhood(points: Array, succeeded: int) -> Array | None:
    """Compute the likeness `(N, N)` of points, 0 on the diagonal, in the reach that explains best which of them failed.

    The first points are those that `succeeded`. Each failure is predicted from all other points: by the overall rate alone, or
    as one that counts like one more neighbour. None where the rate alone predicts best.
    """
    failed = np.arange(len(points)) >= succeeded
    rate = (failed.sum() - failed + 0.5) / len(points)
    squares = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2) / points.shape[1]
    best, found = _log_likelihood(rate, failed), None
    for reach in REACHES:
        near = np.exp(-squares / (2.0 * reach**2))
        np.fill_diagonal(near, 0.0)
        density = _log_likelihood((rate + near @ failed) / (1.0 + near.sum(axis=1)), failed)
        if density > best:
            best, found = density, near
    return found


def _log_likelihood(probability: Array, failed: npt.NDArray[np.bool_]) -> float:
    return float(np.log(np.where(failed, probability, 1.0 - probability)).sum())


REACH = REACHES[-1]
LEAST = 1e-12


class Outcomes(NamedTuple):
    """An agent's evaluated points `u (n, e)`, and whether they succeeded, `succeeded (n,)`, 0 or 1."""

    u: Array
    succeeded: Array

    @property
    def rate(self) -> float:
        """Return the share of successes, with one success more, so that it is never 0."""
        return float((self.succeeded.sum() + 1.0) / (len(self.succeeded) + 1.0))


class Prior(NamedTuple):
    """The others' probabilities `told (M,)` at design points `design (M, e)`; without points, `rate` everywhere."""

    design: Array
    told: Array
    rate: float

    def at(self, u: Array) -> tuple[Array, Array]:
        """Return the probability at points `u (m, e)`, smoothed between the design points, and its gradient `(m, e)`."""
        if not len(self.told):
            return np.full(len(u), self.rate), np.zeros_like(u)
        near, slopes = _likeness(u, self.design)
        total = near.sum(axis=1) + LEAST  # far from all design points the rate is left
        value = (near @ self.told + LEAST * self.rate) / total
        slope = np.einsum("nme,m->ne", slopes, self.told) - value[:, None] * slopes.sum(axis=1)
        return value, slope / total[:, None]


def outcomes_of(u: Array, failed: Array | None) -> Outcomes:
    """Return the outcomes of observed points `u (n, e)` and of failed ones `(f, e)`."""
    lost = u[:0] if failed is None else failed
    return Outcomes(np.concatenate([u, lost]), np.concatenate([np.ones(len(u)), np.zeros(len(lost))]))


def success(outcomes: Outcomes, prior: Prior, u: Array) -> tuple[Array, Array]:
    """Return the probability of success at points `u (m, e)`, `(m,)`, and its gradient `(m, e)`."""
    value, slope = prior.at(u)
    near, slopes = _likeness(u, outcomes.u)
    total = near.sum(axis=1) + 1.0
    found = (near @ outcomes.succeeded + value) / total
    rise = np.einsum("nme,m->ne", slopes, outcomes.succeeded) + slope - found[:, None] * slopes.sum(axis=1)
    return found, rise / total[:, None]


def _likeness(u: Array, centres: Array) -> tuple[Array, Array]:
    """Return the likeness `(m, c)` of points to centres, and its gradients `(m, c, e)`."""
    apart, square = u[:, None, :] - centres[None, :, :], REACH**2 * u.shape[1]
    near = np.exp(-0.5 * (apart**2).sum(axis=2) / square)
    return near, -near[:, :, None] * apart / square
