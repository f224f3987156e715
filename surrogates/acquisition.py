"""Acquisition functions of a Gaussian prediction, with gradients; larger is better."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, ndtr

from fedbo.surrogates.posterior import Posterior, predict_with_gradients

Array = npt.NDArray[np.float64]
TINY = 1e-300
FAR = -1e4  # standard deviations below the best, from where the tail's first term is enough


class Prediction(NamedTuple):
    """Mean and variance at n points, each `(n,)`, and their gradients with respect to the inputs, each `(n, d)`."""

    mean: Array
    variance: Array
    mean_gradient: Array
    variance_gradient: Array


def prediction(posterior: Posterior, x: Array) -> Prediction:
    """Prediction of a Gaussian process at `x (n, d)`."""
    return Prediction(*predict_with_gradients(posterior, x))


def expected_improvement(at: Prediction, best: float) -> tuple[Array, Array]:
    """Expected improvement over `best`, `(n,)`, and its gradient `(n, d)`; with variance zero the plain improvement."""
    sd = np.sqrt(np.maximum(at.variance, TINY))
    z = np.clip((at.mean - best) / sd, -1e8, 1e8)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    below = ndtr(z)
    value = (at.mean - best) * below + sd * density
    gradient = below[:, None] * at.mean_gradient + (0.5 * density / sd)[:, None] * at.variance_gradient
    return value, gradient


def log_expected_improvement(at: Prediction, best: float) -> tuple[Array, Array]:
    """Logarithm of the expected improvement over `best`, `(n,)`, and its gradient `(n, d)` (Ament et al. 2023).

    It has a slope also where the improvement itself is too small for a number.
    """
    sd = np.sqrt(np.maximum(at.variance, TINY))
    z = np.clip((at.mean - best) / sd, -1e8, 1e8)
    above, below = np.maximum(z, -1.0), np.minimum(z, -1.0)
    density = np.exp(-0.5 * above**2) / np.sqrt(2.0 * np.pi)
    share = density + above * ndtr(above)  # EI over the standard deviation
    ratio = np.sqrt(0.5 * np.pi) * erfcx(-below / np.sqrt(2.0))  # of distribution to density, in the lower tail
    left = np.where(below > FAR, 1.0 + below * ratio, below**-2)  # the same over the density there
    lower = z <= -1.0
    log_share = np.where(lower, -0.5 * below**2 - 0.5 * np.log(2.0 * np.pi) + np.log(left), np.log(share))
    up = np.where(lower, ratio / left, ndtr(above) / share) / sd
    out = np.where(lower, 1.0 / left, density / share) / (2.0 * np.maximum(at.variance, TINY))
    return np.log(sd) + log_share, up[:, None] * at.mean_gradient + out[:, None] * at.variance_gradient


def probability_of_improvement(at: Prediction, best: float) -> tuple[Array, Array]:
    """Probability of a value above `best`, `(n,)`, and its gradient `(n, d)` (Kushner 1964)."""
    sd = np.sqrt(np.maximum(at.variance, TINY))
    z = np.clip((at.mean - best) / sd, -1e8, 1e8)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    slope = at.mean_gradient / sd[:, None] - (0.5 * z / np.maximum(at.variance, TINY))[:, None] * at.variance_gradient
    return np.asarray(ndtr(z)), np.where(density[:, None] > 0.0, density[:, None] * slope, 0.0)


def upper_confidence_bound(at: Prediction, beta: float) -> tuple[Array, Array]:
    """Mean plus `beta` standard deviations, `(n,)`, and its gradient `(n, d)`."""
    sd = np.sqrt(np.maximum(at.variance, TINY))
    return at.mean + beta * sd, at.mean_gradient + (0.5 * beta / sd)[:, None] * at.variance_gradient
