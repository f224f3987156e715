"""Acquisition functions of several objectives and constraints, each with its own independent Gaussian prediction.

Constraints: a limit is kept where its metric is at least a threshold. The logarithm of the probability of that is added to the
logarithm of what the objectives promise (Gardner et al. 2014; in logarithms Ament et al. 2023). Two objectives: the expected
improvement of the hypervolume, a sum over the strips between neighbouring points of the front (Emmerich et al. 2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.acquisition import TINY, Prediction, log_expected_improvement, log_improvement_share, prediction
from fedbo.surrogates.posterior import Posterior, predict

Array = npt.NDArray[np.float64]


class Strips(NamedTuple):
    """The strips above the front of two objectives, from left to right along the first.

    edges `(s,)`: where each strip begins, the first at the reference; it ends where the next one begins, the last one never.
    floors `(s,)`: the value of the second objective above which a point of the strip adds volume.
    """

    edges: Array
    floors: Array


def strips(front: Array, reference: Array) -> Strips:
    """Return the strips above a front `(k, 2)` without dominated points; those not above `reference (2,)` count nothing."""
    front = front[(front > reference).all(axis=1)]
    front = front[np.argsort(front[:, 0], kind="stable")]
    return Strips(np.concatenate([reference[:1], front[:, 0]]), np.concatenate([front[:, 1], reference[1:]]))


def log_hypervolume_improvement(first: Prediction, second: Prediction, over: Strips) -> tuple[Array, Array]:
    """Return the logarithm of the expected hypervolume improvement of two independent predictions, `(n,)`, with gradient.

    A point improves the volume by its height above the floor of each strip that it covers, times the width that it covers. The
    expectation of a product of independent factors is the product of theirs, so the whole is

        sum_i (EI_1(edge_i) - EI_1(edge_i+1)) EI_2(floor_i).

    Every term is positive and is kept as its logarithm, so that the slope does not vanish where the improvement underflows.
    """
    wide, wide_mean, wide_variance = _log_improvements(first, over.edges)
    high, high_mean, high_variance = _log_improvements(second, over.floors)
    # EI over the next edge relative to that over this one; the last strip has no end.
    ratio = np.exp(np.minimum(np.diff(wide, axis=1, append=-np.inf), 0.0))
    left = np.maximum(1.0 - ratio, TINY)
    terms = wide + np.log(left) + high
    top = terms.max(axis=1)
    share = np.exp(terms - top[:, None])
    total = share.sum(axis=1)
    value, share = top + np.log(total), share / total[:, None]

    def of_width(slope: Array) -> Array:
        following = np.column_stack([slope[:, 1:], np.zeros(len(slope))])
        return np.asarray((share * (slope - ratio * following) / left).sum(axis=1))

    gradient = of_width(wide_mean)[:, None] * first.mean_gradient + of_width(wide_variance)[:, None] * first.variance_gradient
    gradient = gradient + (share * high_mean).sum(axis=1)[:, None] * second.mean_gradient
    return value, gradient + (share * high_variance).sum(axis=1)[:, None] * second.variance_gradient


def _log_improvements(at: Prediction, levels: Array) -> tuple[Array, Array, Array]:
    """Return the log EI over each level, `(n, s)`, and its derivatives with respect to mean and variance."""
    variance = np.maximum(at.variance, TINY)[:, None]
    sd = np.sqrt(variance)
    log_share, below, density = log_improvement_share(np.clip((at.mean[:, None] - levels) / sd, -1e8, 1e8))
    return np.log(sd) + log_share, below / sd, density / (2.0 * variance)


def log_feasibility(at: Prediction, threshold: float) -> tuple[Array, Array]:
    """Return the log probability of a value of at least `threshold`, `(n,)`, and its gradient, accurate in both tails."""
    variance = np.maximum(at.variance, TINY)
    sd = np.sqrt(variance)
    z = np.clip((at.mean - threshold) / sd, -1e8, 1e8)
    above, below = np.maximum(z, 0.0), np.minimum(z, 0.0)
    upper = np.exp(-0.5 * above**2) / (np.sqrt(2.0 * np.pi) * scipy.special.ndtr(above))
    lower = np.sqrt(2.0 / np.pi) / scipy.special.erfcx(-below / np.sqrt(2.0))
    rate = np.where(z > 0.0, upper, lower)  # density over distribution
    gradient = (rate / sd)[:, None] * at.mean_gradient - (0.5 * rate * z / variance)[:, None] * at.variance_gradient
    return np.asarray(scipy.special.log_ndtr(z)), gradient


@dataclass(frozen=True, slots=True)
class SeveralCriterion:
    """The log expected improvement of the objectives plus the log probability of feasibility, to be maximised.

    objectives: one posterior, or two.
    limits: a posterior for each constraint.
    thresholds `(c,)`: a point is feasible where each limit's function is at least its threshold.
    over: the value to improve on, or the strips above the front; None before the first feasible point, when only the
      probability of feasibility counts.
    """

    objectives: tuple[Posterior, ...]
    limits: tuple[Posterior, ...]
    thresholds: Array
    over: float | Strips | None

    def __call__(self, u: Array, slopes: bool = True) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, d)` at `u (n, d)`; without `slopes` the gradients are empty, `(n, 0)`."""
        at = prediction if slopes else _without_gradients
        parts = [log_feasibility(at(one, u), float(t)) for one, t in zip(self.limits, self.thresholds, strict=True)]
        if isinstance(self.over, Strips):
            parts.append(log_hypervolume_improvement(at(self.objectives[0], u), at(self.objectives[1], u), self.over))
        elif self.over is not None:
            parts.append(log_expected_improvement(at(self.objectives[0], u), self.over))
        return reduce(np.add, (value for value, _ in parts)), reduce(np.add, (gradient for _, gradient in parts))


def _without_gradients(posterior: Posterior, u: Array) -> Prediction:
    none = np.zeros((len(u), 0))
    mean, variance = predict(posterior, u)
    return Prediction(mean, variance, mean_gradient=none, variance_gradient=none)
