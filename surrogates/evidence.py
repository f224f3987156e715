"""The marginal likelihood of a Gaussian process and its gradient, fast enough to be called a thousand times per fit."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.kernels import FAMILIES
from fedbo.surrogates.posterior import Hyperparameters, factorise

Array = npt.NDArray[np.float64]


def log_marginal_likelihood(hyper: Hyperparameters, x: Array, y: Array) -> tuple[float, Array]:
    """Log density of `y (n,)` at `x (n, d)`, and its gradient with respect to the log hyperparameters.

    The gradient is over (length scale or one per input, variance, noise variance), shape `(3,)` or `(d + 2,)`; the
    density is that of the modelled `(y - offset) / scale`.
    """
    scales = np.atleast_1d(np.asarray(hyper.length_scale, dtype=np.float64))
    evidence = evidence_function(hyper.family, x, (y - hyper.offset) / hyper.scale, ard=scales.size > 1)
    return evidence(np.log(np.concatenate([scales, [hyper.variance, hyper.noise_variance]])))


def evidence_function(family: str, x: Array, y: Array, *, ard: bool) -> Callable[[Array], tuple[float, Array]]:
    """Function of the log hyperparameters `(p,)` that gives the log marginal likelihood and its gradient `(p,)`."""
    n, kernel = len(x), FAMILIES[family]
    parts = ((x[:, None, :] - x[None, :, :]) ** 2).reshape(n * n, -1)
    squares = parts if ard else parts.sum(axis=1, keepdims=True)

    def evidence(theta: Array) -> tuple[float, Array]:
        precisions = np.exp(-2.0 * theta[:-2])
        variance, noise = np.exp(theta[-2:])
        correlation, slope, _ = kernel.slopes((squares @ precisions).reshape(n, n))
        covariance = variance * correlation
        covariance.flat[:: n + 1] += noise
        factor, jitter = factorise(covariance)
        alpha = scipy.linalg.lapack.dpotrs(factor, y, lower=1)[0]
        inverse = scipy.linalg.lapack.dpotri(factor, lower=1)[0]
        quadratic, size = float(y @ alpha), float(alpha @ alpha)
        value = -0.5 * quadratic - float(np.log(factor.diagonal()).sum()) - 0.5 * n * log(2.0 * pi)
        # The inverse is lower triangular in memory and distances vanish on the diagonal: its half stands for both.
        pull = (np.multiply.outer(0.5 * alpha, alpha) - inverse) * slope
        gradient = np.empty_like(theta)
        gradient[:-2] = (-2.0 * variance) * precisions * (pull.reshape(-1) @ squares)
        excess = 0.5 * (size - float(inverse.trace()))
        gradient[-2] = 0.5 * (quadratic - n) - (noise + jitter) * excess
        gradient[-1] = noise * excess
        return value, gradient

    return evidence
