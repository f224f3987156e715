"""The exact posterior of a Gaussian process (FTS equation (1)), and the marginal likelihood with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.kernels import FAMILIES, Kernel, LengthScale, make_kernel

Array = npt.NDArray[np.float64]
JITTERS = (1e-12, 1e-10, 1e-8, 1e-6)


class NotPositiveDefinite(np.linalg.LinAlgError):
    """A covariance or precision matrix that has no Cholesky factor at any rung of the jitter ladder."""


class Diverged(ValueError):
    """Gradient descent whose weights have become too large to be sent."""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The hyperparameters of a Gaussian process, which models `(y - offset) / scale`."""

    length_scale: LengthScale = 1.0
    variance: float = 1.0
    noise_variance: float = 1e-4
    family: str = "se"
    offset: float = 0.0
    scale: float = 1.0

    @property
    def kernel(self) -> Kernel:
        """The kernel, without noise."""
        return make_kernel(self.family, self.length_scale, self.variance)


class Posterior(NamedTuple):
    """A Gaussian process given `x (n, d)`, `y (n,)`: lower Cholesky factor of K + (sigma^2 + jitter) I, its solve."""

    hyper: Hyperparameters
    x: Array
    y: Array
    factor: Array
    alpha: Array
    jitter: float


def factorise(matrix: Array, scale: float = 0.0) -> tuple[Array, float]:
    """Return the lower Cholesky factor `(n, n)` of a covariance or precision matrix, and the jitter added, 0 if none.

    This is the one factorisation of the package. The jitter climbs a ladder of 0, 1e-12, 1e-10, 1e-8, 1e-6 times the mean of
    the diagonal, and times `scale`. `scale` is the size of the numbers whose difference the matrix is, since rounding is
    relative to those. The rung depends on the matrix alone.

    Raises NotPositiveDefinite at the top of the ladder, and at once when a number is not finite.
    """
    level = float(matrix.trace()) / max(len(matrix), 1)
    if not np.isfinite(level):
        raise NotPositiveDefinite("the covariance matrix contains numbers that are not finite")
    factor, info = scipy.linalg.lapack.dpotrf(matrix, lower=1)
    if info == 0:
        return factor, 0.0
    for jitter in sorted({rung * size for rung in JITTERS for size in (level, scale) if size > 0.0}):
        factor, info = scipy.linalg.lapack.dpotrf(matrix + jitter * np.eye(len(matrix)), lower=1)
        if info == 0:
            return factor, jitter
    largest = f"{JITTERS[-1]:g} of the mean diagonal{f' or of {scale:g}' if scale else ''}"
    raise NotPositiveDefinite(f"no Cholesky factor of {matrix.shape} with jitter up to {largest}")


def condition(hyper: Hyperparameters, x: Array, y: Array) -> Posterior:
    """Return the posterior given `x (n, d)`, `y (n,)`, n >= 0; raises NotPositiveDefinite when the jitter ladder ends."""
    covariance = hyper.kernel(x, x)
    covariance.flat[:: len(x) + 1] += hyper.noise_variance
    factor, jitter = factorise(covariance)
    standard = (np.asarray(y, dtype=np.float64) - hyper.offset) / hyper.scale
    return Posterior(hyper, x, y, factor=factor, alpha=_solve(factor, standard), jitter=jitter)


def mean(posterior: Posterior, x: Array) -> Array:
    """Return the mean at `x (n', d)`, `(n',)`, in a fraction of the time that the variance takes."""
    hyper = posterior.hyper
    return hyper.offset + hyper.scale * (hyper.kernel(x, posterior.x) @ posterior.alpha)


def observed_means(posterior: Posterior) -> Array:
    """Return the mean at the observed points, `(n,)`: y less the noise variance times the solve, without a kernel."""
    hyper = posterior.hyper
    return posterior.y - hyper.scale * (hyper.noise_variance + posterior.jitter) * posterior.alpha


def predict(posterior: Posterior, x: Array) -> tuple[Array, Array]:
    """Return mean and variance of the noise-free function at `x (n', d)`, each `(n',)` (FTS equation (1))."""
    return _moments(posterior, *_cross(posterior, x))


def _moments(posterior: Posterior, cross: Array, root: Array) -> tuple[Array, Array]:
    """Return mean and variance from k(x, X) and L^-1 k(X, x)."""
    hyper = posterior.hyper
    variance = hyper.variance - np.einsum("ij,ij->j", root, root)
    return hyper.offset + hyper.scale * (cross @ posterior.alpha), hyper.scale**2 * np.maximum(variance, 0.0)


def covariance(posterior: Posterior, x: Array) -> Array:
    """Return the posterior covariance of the noise-free function at `x (n', d)`, shape `(n', n')`."""
    _, root = _cross(posterior, x)
    return posterior.hyper.scale**2 * (posterior.hyper.kernel(x, x) - root.T @ root)


def predict_with_gradients(posterior: Posterior, x: Array) -> tuple[Array, Array, Array, Array]:
    """Return mean and variance at `x (n', d)`, each `(n',)`, and their gradients, each `(n', d)`."""
    cross, root = _cross(posterior, x)
    mean, variance = _moments(posterior, cross, root)
    hyper = posterior.hyper
    rise = hyper.kernel.gradient(x, posterior.x)
    solved = _solve(posterior.factor, cross.T)
    mean_gradient = hyper.scale * np.einsum("ind,n->id", rise, posterior.alpha)
    return mean, variance, mean_gradient, -2.0 * hyper.scale**2 * np.einsum("ind,ni->id", rise, solved)


def _cross(posterior: Posterior, x: Array) -> tuple[Array, Array]:
    """Return k(x, X), `(n', n)`, and L^-1 k(X, x), `(n, n')`."""
    cross = posterior.hyper.kernel(x, posterior.x)  # the prior covariances, `(n', n)`
    if cross.shape[1] == 0:
        return cross, cross.T
    return cross, scipy.linalg.lapack.dtrtrs(posterior.factor, cross.T, lower=1)[0]


def _solve(factor: Array, right: Array) -> Array:
    """Return (L L')^-1 times `right (n,)` or `(n, c)`, also for an empty system, which LAPACK refuses."""
    if len(factor) == 0:
        return right
    solution: Array = scipy.linalg.lapack.dpotrs(factor, right, lower=1)[0]
    return solution


def log_marginal_likelihood(hyper: Hyperparameters, x: Array, y: Array) -> tuple[float, Array]:
    """Return the log density of `y (n,)` at `x (n, d)`, and its gradient with respect to the log hyperparameters.

    The gradient is over (length scale or one per input, variance, noise variance), shape `(3,)` or `(d + 2,)`; the
    density is that of the modelled `(y - offset) / scale`.
    """
    scales = np.atleast_1d(np.asarray(hyper.length_scale, dtype=np.float64))
    evidence = evidence_function(hyper.family, x, (y - hyper.offset) / hyper.scale, ard=scales.size > 1)
    return evidence(np.log(np.concatenate([scales, [hyper.variance, hyper.noise_variance]])))


def evidence_function(family: str, x: Array, y: Array, *, ard: bool) -> Callable[[Array], tuple[float, Array]]:
    """Return a function from the log hyperparameters `(p,)` to the log marginal likelihood and its gradient `(p,)`."""
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
