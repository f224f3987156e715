"""A Gaussian process on K arms, exactly: as a square root of the posterior covariance, changed by one outer product per value.

The state is a mean (K,) and a root R (r, K) with R'R the covariance of the arms; its size does not depend on the number of
values. A draw is mean + R'z. The update is Potter's square-root filter: no matrix is inverted or factorised after the prior,
and the covariance stays positive semi-definite by construction.
"""

from __future__ import annotations

from functools import lru_cache
from math import log1p, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.kernels import make_kernel

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
KERNELS = ("se", "matern52", "exponential")


class ArmPosterior(NamedTuple):
    """The posterior of K arms.

    mean `(K,)`: posterior means.
    root `(r, K)`: R, where R'R is the posterior covariance.
    gain: information gain of the values so far, in nats.
    """

    mean: Array
    root: Array
    gain: float = 0.0


@lru_cache(maxsize=8)
def grid(dim: int, count: int) -> Array:
    """Return midpoints `(K, d)` of a grid on the unit cube, with K as near to `count` as equal axes allow; read-only.

    The axes start with one cell each and are divided once more, one after the other. The nearest number of cells to `count`
    wins, and the smaller one in a tie. An axis that is not divided stays at 1/2.
    """
    sizes, best = [1] * dim, [1] * dim
    while np.prod(sizes) < count:
        sizes[int(np.argmin(sizes))] += 1
        if abs(np.prod(sizes) - count) < abs(np.prod(best) - count):
            best = list(sizes)
    axes = [(np.arange(size) + 0.5) / size for size in best]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dim)
    points.flags.writeable = False
    return points


def nearest(arms: Array, x: Array) -> Index:
    """Return the numbers `(q,)` of the arms nearest to `x (q, d)`."""
    return np.asarray(scipy.spatial.distance.cdist(x, arms, "sqeuclidean").argmin(axis=1))


def correlations(kernel: str, length_scale: float, x: Array) -> Array:
    """Return the correlations `(K, K)` of the arms `x (K, d)`: a kernel, or "exponential", exp(-|x - z| / l)."""
    if kernel == "exponential":
        return np.exp(-scipy.spatial.distance.cdist(x, x) / length_scale)
    return make_kernel(kernel, length_scale, 1.0)(x, x)


@lru_cache(maxsize=8)
def _root(kernel: str, length_scale: float, dim: int, count: int) -> Array:
    """Return the root `(r, K)` of the prior covariance, without the directions that rounding cannot tell from zero."""
    values, vectors = np.linalg.eigh(correlations(kernel, length_scale, grid(dim, count)))
    keep = values > len(values) * np.finfo(float).eps * values[-1]
    root = np.ascontiguousarray((vectors[:, keep] * np.sqrt(values[keep])).T)
    root.flags.writeable = False
    return root


def prior(kernel: str, length_scale: float, dim: int, count: int) -> ArmPosterior:
    """Return the posterior before the first value, on `grid(dim, count)`: mean 0 and variance 1."""
    root = _root(kernel, length_scale, dim, count)
    return ArmPosterior(np.zeros(root.shape[1]), root)


def observe(posterior: ArmPosterior, arm: int, y: float, noise_variance: float) -> ArmPosterior:
    """Return the posterior after the value `y` of an arm with this noise; O(r K)."""
    direction = np.ascontiguousarray(posterior.root[:, arm])
    variance = float(direction @ direction)
    cross = direction @ posterior.root  # covariances of the arm with all arms
    inverse = 1.0 / (variance + noise_variance)
    step = inverse / (1.0 + sqrt(inverse * noise_variance))
    # BLAS wants columns together, which the transpose of a root has; without overwriting it copies and updates in one pass.
    root = scipy.linalg.blas.dger(-step, cross, direction, a=posterior.root.T).T
    mean = posterior.mean + cross * (inverse * (y - posterior.mean[arm]))
    return ArmPosterior(mean, root, posterior.gain + 0.5 * log1p(variance / noise_variance))


def draw(posterior: ArmPosterior, rng: np.random.Generator, scale: float) -> Array:
    """Return values `(K,)` of all arms drawn jointly, with `scale` times the standard deviations; O(r K)."""
    return np.asarray(posterior.mean + scale * (rng.standard_normal(len(posterior.root)) @ posterior.root))


def draw_independent(posterior: ArmPosterior, rng: np.random.Generator, scale: float) -> Array:
    """Return values `(K,)` of all arms, each drawn independently of the others."""
    return np.asarray(posterior.mean + scale * deviations(posterior) * rng.standard_normal(len(posterior.mean)))


def deviations(posterior: ArmPosterior) -> Array:
    """Return the standard deviations `(K,)` of the arms."""
    variances: Array = np.einsum("ij,ij->j", posterior.root, posterior.root)
    return np.sqrt(variances)
