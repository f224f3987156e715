"""Acquisition functions of a Gaussian prediction with gradients, and their maximisation; larger values are better.

Two weigh an improvement against the cost of its evaluation. The Pandora's box Gittins index of a point is the value g at which
the expected improvement over g equals the cost (Weitzman 1979; Xie, Astudillo, Frazier, Scully, Terenin 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from math import exp, isfinite, log
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.posterior import Posterior, observed_means, predict_with_gradients

Array = npt.NDArray[np.float64]
TINY = 1e-300
EVERYWHERE, NEAR = 512, 64  # candidates everywhere, and about each of the best points; twice as many find hardly more
MANY = 40  # observations from which on there are so many, and proportionally fewer with fewer: there are fewer peaks then
BEST = 4  # points about which there are candidates
WIDTHS = (1e-3, 0.3)  # least and largest standard deviation of those about a point
CLIMBS, FEWEST, STEPS = 8, 3, 60  # most and fewest climbs from either kind of candidates, and steps of each
SEED = 20202
LOWEST = -37.0  # standard deviations; the improvement over a value so far above the mean is below all costs that numbers hold
LARGE = 10.0  # of a log share: the improvement of a normal that is exp(10) standard deviations above 0 is its mean
NEWTON_STEPS = 8  # two more than are ever needed


class Prediction(NamedTuple):
    """Mean and variance at n points, each `(n,)`, and their gradients with respect to the inputs, each `(n, d)`."""

    mean: Array
    variance: Array
    mean_gradient: Array
    variance_gradient: Array


def prediction(posterior: Posterior, x: Array) -> Prediction:
    """Return the prediction of a Gaussian process at `x (n, d)`."""
    mean, variance, mean_gradient, variance_gradient = predict_with_gradients(posterior, x)
    return Prediction(mean, variance, mean_gradient=mean_gradient, variance_gradient=variance_gradient)


def expected_improvement(at: Prediction, best: float) -> tuple[Array, Array]:
    """Return the expected improvement over `best`, `(n,)`, and its gradient `(n, d)`; at variance 0 the plain improvement."""
    sd = np.sqrt(np.maximum(at.variance, TINY))
    z = np.clip((at.mean - best) / sd, -1e8, 1e8)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    below = scipy.special.ndtr(z)
    value = (at.mean - best) * below + sd * density
    gradient = below[:, None] * at.mean_gradient + (0.5 * density / sd)[:, None] * at.variance_gradient
    return value, gradient


def log_expected_improvement(at: Prediction, best: float) -> tuple[Array, Array]:
    """Return the logarithm of the expected improvement over `best`, `(n,)`, and its gradient `(n, d)` (Ament et al. 2023).

    Its slope does not vanish where the improvement itself underflows.
    """
    sd = np.sqrt(np.maximum(at.variance, TINY))
    log_share, below, density = log_improvement_share(np.clip((at.mean - best) / sd, -1e8, 1e8))
    up, out = below / sd, density / (2.0 * np.maximum(at.variance, TINY))
    return np.log(sd) + log_share, up[:, None] * at.mean_gradient + out[:, None] * at.variance_gradient


def log_improvement_share(z: Array) -> tuple[Array, Array, Array]:
    """Return log h(z), h(z) = phi(z) + z Phi(z), with Phi(z) / h(z) and phi(z) / h(z), for any array z.

    h(z) is the expected improvement over the standard deviation, where z is the mean less the value to improve on, over it.
    """
    from fedbo.surrogates.compiled.improvement import log_improvements

    found = np.empty((3, z.size))
    log_improvements(np.ascontiguousarray(z).reshape(-1), found)
    log_share, up, out = found.reshape(3, *z.shape)
    return log_share, up, out


def probability_of_improvement(at: Prediction, best: float) -> tuple[Array, Array]:
    """Return the probability of a value above `best`, `(n,)`, and its gradient `(n, d)` (Kushner 1964)."""
    sd = np.sqrt(np.maximum(at.variance, TINY))
    z = np.clip((at.mean - best) / sd, -1e8, 1e8)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    slope = at.mean_gradient / sd[:, None] - (0.5 * z / np.maximum(at.variance, TINY))[:, None] * at.variance_gradient
    return np.asarray(scipy.special.ndtr(z)), np.where(density[:, None] > 0.0, density[:, None] * slope, 0.0)


def upper_confidence_bound(at: Prediction, beta: float) -> tuple[Array, Array]:
    """Return mean plus `beta` standard deviations, `(n,)`, and its gradient `(n, d)`."""
    sd = np.sqrt(np.maximum(at.variance, TINY))
    return at.mean + beta * sd, at.mean_gradient + (0.5 * beta / sd)[:, None] * at.variance_gradient


def gittins_index(at: Prediction, log_cost: Array, log_cost_gradient: Array) -> tuple[Array, Array]:
    """Return the index `(n,)` and its gradient `(n, d)`, for costs `exp(log_cost) (n,)` in the units of the values."""
    sd = np.sqrt(np.maximum(at.variance, TINY))
    t = _advantage(log_cost - np.log(sd))
    log_share, log_below = log_improvement_share(np.minimum(t, 1e8))[0], scipy.special.log_ndtr(t)
    by_sd = np.exp(-0.5 * t * t - 0.5 * np.log(2.0 * np.pi) - log_below)
    by_log_cost = sd * np.exp(log_share - log_below)
    gradient = at.mean_gradient + (0.5 * by_sd / sd)[:, None] * at.variance_gradient
    return at.mean - sd * t, gradient - by_log_cost[:, None] * log_cost_gradient


def improvement_per_cost(at: Prediction, best: float, log_cost: Array, log_cost_gradient: Array) -> tuple[Array, Array]:
    """Return the logarithm of the expected improvement over `best` for each unit of cost, `(n,)`, and its gradient `(n, d)`."""
    value, gradient = log_expected_improvement(at, best)
    return value - log_cost, gradient - log_cost_gradient


def _advantage(log_share: Array) -> Array:
    """Return t `(n,)` at which the expected improvement of a standard normal plus t over 0 is exp(`log_share`).

    Newton's steps on its logarithm, which is concave: that of t where t is large, and nearly -t^2 / 2 where it is far below 0.
    """
    large = np.exp(np.minimum(log_share, 700.0))  # where the improvement is t itself
    wanted = np.minimum(log_share, LARGE)
    t = np.where(log_share > 0.0, np.minimum(large, exp(LARGE)), -np.sqrt(-2.0 * np.minimum(wanted, 0.0)))
    for _ in range(NEWTON_STEPS):
        found, slope, _ = log_improvement_share(np.maximum(t, LOWEST))
        t = np.maximum(t, LOWEST) + (wanted - found) / slope
    return np.where(log_share > LARGE, large, np.maximum(t, LOWEST))


class Criterion(NamedTuple):
    """The logarithm of expected improvement over `level`, or with `bounding` the mean plus `level` standard deviations."""

    level: float
    bounding: bool = False


def maximise_criterion(posterior: Posterior, criterion: Criterion, rng: np.random.Generator) -> tuple[Array, float]:
    """Return the point `(d,)` of `[0, 1]^d` where a criterion is largest, and its value there.

    The candidates are a randomly shifted Sobol set, and normal points around the observed points with the largest posterior
    means, at scales of several orders of magnitude. L-BFGS-B climbs from the best of each kind.

    Raises ValueError when a value is not finite.
    """
    dim = posterior.x.shape[1]
    share = min(max(len(posterior.x) / MANY, 0.25), 1.0)
    far = (sobol(dim)[: int(share * EVERYWHERE)] + rng.random(dim)) % 1.0
    centres = posterior.x[np.argsort(-observed_means(posterior), kind="stable")[:BEST]]
    count, climbs = int(share * NEAR), max(int(share * CLIMBS), FEWEST)
    widths = np.exp(rng.uniform(log(WIDTHS[0]), log(WIDTHS[1]), (len(centres), count, 1)))
    near = centres[:, None] + widths * rng.standard_normal((len(centres), count, dim))
    points = np.concatenate([far, np.clip(near, 0.0, 1.0).reshape(-1, dim)])
    limits, place = (len(far), climbs, STEPS), np.empty(dim)
    value = _compiled().climb(process(posterior), _standard(posterior, criterion), _cube(dim), points, limits, place)
    if not isfinite(value):
        raise ValueError("the acquisition has values that are not finite")
    return place, _native(posterior, criterion, value)


def _native(posterior: Posterior, criterion: Criterion, values: Any) -> Any:
    """Return the values of a criterion in native units."""
    offset, scale = posterior.hyper.offset, posterior.hyper.scale
    return offset + scale * values if criterion.bounding else log(scale) + values


def criterion_values(posterior: Posterior, criterion: Criterion, x: Array, model: Any = None) -> Array:
    """Return the values `(n,)` of a criterion at `x (n, d)`; the `model` is the posterior's `process`, if it is known."""
    found = np.empty(len(x))
    _compiled().values(model or process(posterior), _standard(posterior, criterion), np.ascontiguousarray(x), found)
    return np.asarray(_native(posterior, criterion, found))


def climbing(
    model: Any, posterior: Posterior, criterion: Criterion, free: Callable[[Array], npt.NDArray[np.bool_]]
) -> Callable[[Array], Array]:
    """Return a function that climbs a criterion from each point of `(r, d)` by L-BFGS-B, along the axes that `free` allows."""
    standard = _standard(posterior, criterion)

    def climb(starts: Array) -> Array:
        ends = starts.copy()
        for start, end, moves in zip(starts, ends, free(starts), strict=True):
            bounds = np.where(moves[:, None], (0.0, 1.0), start[:, None])
            _compiled().climb(model, standard, bounds, start[None, :], (1, 1, STEPS), end)
        return ends

    return climb


def process(posterior: Posterior) -> Any:
    """Return a Gaussian process in the form of `compiled.search`, in units with mean 0 and scale 1."""
    hyper, dim = posterior.hyper, posterior.x.shape[1]
    inverse = 1.0 / np.broadcast_to(np.asarray(hyper.length_scale, dtype=np.float64), (dim,))
    root = posterior.factor
    if len(root):
        root = np.tril(scipy.linalg.lapack.dtrtri(root, lower=1)[0])
    centres = np.ascontiguousarray((posterior.x * inverse).T)
    number, rows = hyper.kernel.number, np.ascontiguousarray(root)
    return number, centres, inverse, hyper.variance, posterior.alpha, rows, np.ascontiguousarray(rows.T)


def _standard(posterior: Posterior, criterion: Criterion) -> tuple[float, bool]:
    """Return the criterion in the form of `compiled.search`, in units with mean 0 and scale 1."""
    if criterion.bounding:
        return criterion.level, True
    return (criterion.level - posterior.hyper.offset) / posterior.hyper.scale, False


@cache
def _compiled() -> Any:
    """Import the compiled routines, once."""
    from fedbo.surrogates.compiled import search

    return search


@lru_cache(maxsize=64)
def _cube(dim: int) -> Array:
    return np.column_stack([np.zeros(dim), np.ones(dim)])


@lru_cache(maxsize=64)
def sobol(dim: int) -> Array:
    """Return scrambled Sobol points `(EVERYWHERE, d)`, the same in every process."""
    from scipy.stats import qmc  # takes a second, which processes that only evaluate need not spend

    return np.asarray(qmc.Sobol(dim, rng=np.random.default_rng(SEED)).random(EVERYWHERE), dtype=np.float64)
