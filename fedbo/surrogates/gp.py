"""Gaussian processes: the fit of hyperparameters, and, from other modules, their settings and the posterior."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.gp_settings import ROBUST, SCALED, FittedParameter, GPSettings
from fedbo.surrogates.kernels import FAMILIES
from fedbo.surrogates.posterior import (
    Hyperparameters,
    NotPositiveDefinite,
    Posterior,
    condition,
    covariance,
    evidence_function,
    log_marginal_likelihood,
    mean,
    predict,
    predict_with_gradients,
)

__all__ = [
    "POWERS",
    "ROBUST",
    "SCALED",
    "GPSettings",
    "Hyperparameters",
    "NotPositiveDefinite",
    "FittedParameter",
    "Posterior",
    "WarpedFit",
    "condition",
    "covariance",
    "distances_below",
    "fit_gp",
    "fit_shared_gp",
    "fit_warped",
    "log_marginal_likelihood",
    "mean",
    "median",
    "predict",
    "predict_with_gradients",
    "representatives",
    "warp",
    "warp_like",
]

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Evidence = Callable[[Array], tuple[float, Array]]
Beginning = tuple[np.random.Generator, Hyperparameters | None]  # draws the starts of `fit_gp`, of which one may be given
# Powers of the transforms of values between which the evidence chooses. Values that span orders of magnitude, as sums of
# squares do, are no draw of a stationary process; their logarithms may be.
POWERS = (1.0, 0.5, 0.0, -0.5)
NO_COMMON = np.empty((0, 0))  # part of a covariance
FITTED = 128  # observations by which hyperparameters are chosen: a climb costs their cube, and more change the choice little


def fit_gp(
    x: Array, y: Array, settings: GPSettings, rng: np.random.Generator, start: Hyperparameters | None = None
) -> Hyperparameters:
    """Return the hyperparameters that maximise the marginal likelihood of `y (n,)` at `x (n, d)`, times the priors if any.

    One climb by L-BFGS-B begins at `start`, or else at the start values. `settings.restarts` more begin at points drawn from
    `rng`, which draws the same numbers for every n. Without observations the start values are returned. Of more than `FITTED`
    observations the likelihood has those of `representatives`.

    Raises ValueError when a number is not finite, NotPositiveDefinite when a covariance matrix has no Cholesky factor.
    """
    return _fit(x, y[None], representatives(x, y, FITTED), settings, (rng, start), np.empty(0))[0]


def representatives(x: Array, y: Array, count: int) -> Rows:
    """Return the rows of at most `count` observations `x (n, d)`, `y (n,)` that stand for all, in their order.

    Half of them are nearest to the largest value, since decisions are made there. The others are spread evenly over the rest,
    in the order of observation. The choice looks at no value but the largest, so it keeps the noise as it is.
    """
    if len(y) <= count:
        return np.arange(len(y))
    away = x - x[int(y.argmax())]
    nearest = np.argsort(np.einsum("nd,nd->n", away, away), kind="stable")
    others = np.sort(nearest[count // 2 :])
    spread = others[np.linspace(0, len(others) - 1, count - count // 2).round().astype(np.intp)]
    return np.sort(np.concatenate([nearest[: count // 2], spread]))


class CoordinateTrials(NamedTuple):
    """Kinds of coordinates between which a fit chooses.

    points `(c, n, e)`: the points in each kind.
    kinds `(e,)`: the kind that each input has, which the fit changes.
    inputs `(t,)`: the inputs for which others are tried.
    first, cost: the kind that they have at first, and the log units by which any other one must be likelier.
    """

    points: Array
    kinds: npt.NDArray[np.int64]
    inputs: npt.NDArray[np.int64]
    first: int
    cost: float


class WarpedFit(NamedTuple):
    """Hyperparameters of transformed values, the power of the transform, and the log density of the values as they are."""

    hyper: Hyperparameters
    power: float
    density: float


def fit_warped(
    x: Array,
    y: Array,
    settings: GPSettings,
    begin: Beginning,
    powers: Sequence[float] = POWERS,
    trials: CoordinateTrials | None = None,
) -> WarpedFit:
    """Fit hyperparameters as `fit_gp` does, n > 0, after transforms of `y (n,)` by `powers`, and return the likeliest fit.

    The climb for a power begins at the fit for the power before. Once the density falls from one to the next, the others are
    left out. The densities include the derivative of each transform, so they compare on the original values. With
    `trials` other coordinates are tried, with the likeliest power.
    """
    (q, middle), rows = distances_below(y), representatives(x, y, FITTED)
    values = np.array([_warped(q, power) for power in powers])
    densities = (np.array(powers) - 1.0) * float(np.log(q[rows]).sum()) - len(rows) * math.log(middle)
    hyper, place = _fit(x, values, rows, settings, begin, densities, trials)
    return WarpedFit(hyper, powers[place], float(densities[place]))


def _fit(
    x: Array,
    values: Array,
    rows: Rows,
    settings: GPSettings,
    begin: Beginning,
    densities: Array,
    trials: CoordinateTrials | None = None,
) -> tuple[Hyperparameters, int]:
    """Fit hyperparameters to some rows of each of `values (k, n)` at `x (n, d)`; return the likeliest fit and its place.

    The log densities are added to `densities (k,)`; with none of them there is one array of values.
    """
    if not (np.isfinite(x).all() and np.isfinite(values).all()):
        raise ValueError("points and values must be finite")
    from fedbo.surrogates.compiled.fit import choose, fit

    space, (offsets, scales) = _fit_space(settings, x.shape[1]), _standardisation(values, settings)
    starts, bounds = _starts(settings, x.shape[1], *begin)
    best, limits = starts[[0] * len(values)], (settings.iterations, settings.tolerance)
    if len(x) and not space.is_fixed:
        number, columns = FAMILIES[settings.kernel].number, np.ascontiguousarray(x[rows].T)
        standard = np.ascontiguousarray(((values - offsets[:, None]) / scales[:, None])[:, rows])
        if len(densities):
            densities -= len(rows) * np.log(scales)
        if not fit(number, columns, standard, NO_COMMON, space.priors, starts, bounds, limits, best, densities):
            raise NotPositiveDefinite("a covariance matrix has no Cholesky factor at any rung of the jitter ladder")
    place = int(densities.argmax()) if len(densities) else 0
    if trials is not None and len(trials.inputs):
        points = np.ascontiguousarray(trials.points.transpose(0, 2, 1)[:, :, rows])
        tried = trials.inputs, trials.first, trials.cost
        more = (NO_COMMON, space.priors, bounds, limits, tried, trials.kinds, best[place])
        densities[place] += choose(number, points, standard[place], *more)
    return _unpack(best[place], settings, float(offsets[place]), float(scales[place])), place


def warp(y: Array, power: float) -> Array:
    """Transform values `(n,)` by an increasing function: Box and Cox (1964) of the distance below the largest value.

    A value y becomes -(q^p - 1) / p, for p = 0 -log q, with q = 1 + (max y - y) / a and the median distance a. Power 1 changes
    only the units; a smaller power resolves good values more finely.
    """
    return _warped(distances_below(y)[0], power)


def warp_like(values: Array, y: Array, power: float) -> Array:
    """Transform any values `(k,)` by the function by which `warp` transforms `y (n,)`, n > 0.

    Above the largest of y, where the transform may have no value, it goes on along its tangent, so it increases everywhere.
    """
    q = 1.0 + (y.max() - values) / distances_below(y)[1]
    return np.where(q < 1.0, 1.0 - q, _warped(np.maximum(q, 1.0), power))


def _warped(q: Array, power: float) -> Array:
    return -np.log(q) if power == 0.0 else (1.0 - q**power) / power


def distances_below(y: Array) -> tuple[Array, float]:
    """Return 1 + (max y - y) / a, `(n,)`, and the median a, which is 1 where more than half of the values are the largest."""
    below = y.max() - y
    middle = median(below) or 1.0
    return 1.0 + below / middle, middle


def median(values: Array) -> float:
    """Return the median of `(n,)` finite values, n > 0, in a tenth of the time of `np.median`."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2.0)


def fit_shared_gp(
    tables: Sequence[tuple[Array, Array]], settings: GPSettings, rng: np.random.Generator, start: Hyperparameters | None = None
) -> Hyperparameters:
    """Return hyperparameters that several Gaussian processes share, fitted to `x (n, d)`, `y (n,)` of each as `fit_gp` does.

    They maximise the sum of the log marginal likelihoods. The caller standardises the values.
    """
    dim = tables[0][0].shape[1]
    evidences = [evidence_function(settings.kernel, x, y, ard=settings.ard) for x, y in tables]

    def together(theta: Array) -> tuple[float, Array]:
        parts = [evidence(theta) for evidence in evidences]
        # One after the other: from Python 3.12 on, `sum` rounds otherwise.
        return reduce(add, (value for value, _ in parts)), np.sum([gradient for _, gradient in parts], axis=0)

    starts, bounds = _starts(settings, dim, rng, start)
    if _fit_space(settings, dim).is_fixed:
        return _unpack(starts[0], settings, 0.0, 1.0)
    theta = _best_climb(_with_priors(together, settings, dim), starts, bounds, settings.iterations)
    return _unpack(theta, settings, 0.0, 1.0)


class _FitSpace(NamedTuple):
    """The search space of a fit, in log hyperparameters.

    usual `(p,)`: the start.
    noisy `(p,)`: the start with much noise, where there is one.
    bounds `(p, 2)`: the bounds.
    priors `(3, p)`: the priors.
    centre, width `(p,)`: mean and standard deviation of the normal restarts.
    is_fixed: whether every hyperparameter is fixed.
    """

    usual: Array
    noisy: Array
    bounds: Array
    priors: Array
    centre: Array
    width: Array
    is_fixed: bool


@lru_cache(maxsize=64)
def _fit_space(settings: GPSettings, dim: int) -> _FitSpace:
    """Return the search space of a fit with `dim` inputs; cached, since building it costs as much as several climbs."""
    parameters = settings.parameters(dim)
    usual = np.log([p.start for p in parameters])
    bounds = np.log([(p.start, p.start) if p.fixed else p.bounds for p in parameters])
    centre = np.log([p.prior[0] if p.prior else p.start for p in parameters])
    width = np.array([p.prior[1] if p.prior else settings.spread for p in parameters])
    noisy = np.append(usual[:-1], math.log(settings.noisy or 1.0))
    is_fixed = all(p.fixed for p in parameters)
    return _FitSpace(usual, noisy, bounds, _priors(settings, dim), centre=centre, width=width, is_fixed=is_fixed)


def _starts(settings: GPSettings, dim: int, rng: np.random.Generator, start: Hyperparameters | None) -> tuple[Array, Array]:
    """Return the log hyperparameters `(r, p)` to climb from, the start values first, and their bounds `(p, 2)`."""
    space = _fit_space(settings, dim)
    usual, bounds = space.usual, space.bounds
    starts = [usual if start is None else _pack(start, settings, dim)]
    if settings.restarts:
        starts.extend(space.centre + space.width * rng.standard_normal((settings.restarts, len(usual))))
    if settings.noisy:
        starts.append(usual if start is not None and rng.random() < 0.5 else space.noisy)
    return np.minimum(np.maximum(starts, bounds[:, 0]), bounds[:, 1]), bounds


def _standardisation(values: Array, settings: GPSettings) -> tuple[Array, Array]:
    """Return offset and scale, each `(k,)`, of modelled `values (k, n)`; the scale of constant values is 1."""
    none, n = np.zeros(len(values)), values.shape[1]
    if not (settings.centre or settings.standardise) or not n:
        return none, none + 1.0
    offsets = np.add.reduce(values, axis=1) / n
    if not settings.standardise:
        return offsets, none + 1.0
    away = values - offsets[:, None]
    scales = np.sqrt(np.add.reduce(away * away, axis=1) / n)
    return offsets, np.where(scales == 0.0, 1.0, scales)


def _pack(hyper: Hyperparameters, settings: GPSettings, dim: int) -> Array:
    scales = hyper.length_scale if isinstance(hyper.length_scale, tuple) else (hyper.length_scale,) * dim
    return np.log([*(scales if settings.ard else scales[:1]), hyper.variance, hyper.noise_variance])


def _unpack(theta: Array, settings: GPSettings, offset: float, scale: float) -> Hyperparameters:
    values = [float(v) for v in np.exp(theta)]
    length_scale = tuple(values[:-2]) if settings.ard else values[0]
    return Hyperparameters(length_scale, values[-2], values[-1], family=settings.kernel, offset=offset, scale=scale)


def _priors(settings: GPSettings, dim: int) -> Array:
    """Return medians m, precisions q and a vector g `(3, p)`: the log hyperparameters' prior is N(m, (diag(q) - g g')^-1).

    By the formula of Sherman and Morrison, the length scales then have the prior covariance tau^2 I + s^2 11', s = `alike`.
    """
    parameters = settings.parameters(dim)
    medians = np.log([p.prior[0] if p.prior else 1.0 for p in parameters])
    precisions = np.array([p.prior[1] ** -2 if p.prior else 0.0 for p in parameters])
    scales, common = len(parameters) - 2, np.zeros(len(parameters))
    common[:scales] = precisions[0] * settings.alike / np.sqrt(1.0 + scales * precisions[0] * settings.alike**2)
    return np.array([medians, precisions, common])


def _with_priors(evidence: Evidence, settings: GPSettings, dim: int) -> Evidence:
    """Return minus the log posterior density of the log hyperparameters, up to a constant, with its gradient."""
    medians, precisions, common = _priors(settings, dim)

    def objective(theta: Array) -> tuple[float, Array]:
        value, gradient = evidence(theta)
        pull = precisions * (theta - medians) - common * float(common @ (theta - medians))
        return 0.5 * float(pull @ (theta - medians)) - value, pull - gradient

    return objective


def _best_climb(objective: Evidence, starts: Array, bounds: Array, iterations: int) -> Array:
    """Return the best end point of one climb from each of `starts (r, p)`; the first one wins a tie."""
    box = scipy.optimize.Bounds(bounds[:, 0], bounds[:, 1])
    options: Any = {"maxiter": iterations}
    results = [scipy.optimize.minimize(objective, s, jac=True, method="L-BFGS-B", bounds=box, options=options) for s in starts]
    return np.asarray(min(results, key=lambda result: float(result.fun)).x)
