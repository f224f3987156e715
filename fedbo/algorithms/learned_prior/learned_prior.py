"""A Gaussian process whose prior was learned from other functions: their mean, the directions in which they differ, a residual.

    f(v) = m(v) + sqrt(tau) F(v) w + g(v),   w ~ N(0, I),   g ~ GP(0, s^2 Matern-5/2 with length scale l)

m and the r columns of F are interpolated from values at common design points; where tau F F' is small or does not fit, g takes
over. The four numbers (tau, s^2, l, noise variance) are those that maximise the marginal likelihood times log-normal priors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.acquisition import Prediction
from fedbo.surrogates.kernels import FAMILIES, SE, Matern
from fedbo.surrogates.posterior import NotPositiveDefinite, factorise

Array = npt.NDArray[np.float64]
INTERPOLATION_NOISE = 1e-4  # relative to the variance of the interpolated function
LEAST_RESIDUAL = 0.02  # of the squared scale: what an interpolation between design points leaves out
MATERN = FAMILIES["matern52"]
Predictor = Callable[..., Prediction]  # of points `(n, d)`, with gradients unless `slopes` is false
TOLERANCE = 1e-5  # of the gain of a step, which ends a climb of the fit


class LearnedPrior(NamedTuple):
    """A prior from `r` directions at a design of M points, with all values in units of `scale`.

    design `(M, d)`: the points.
    length_scale: length scale of the interpolation.
    centre: the constant that is subtracted from the mean.
    coefficients `(M, 1 + r)`: coefficients of the mean less `centre`, and of the directions, in the kernel of the
    interpolation.
    residual: the median of s^2.
    lengths `(d,)`: if set, the residual process has a length scale for each input, l times these.
    """

    design: Array
    length_scale: float
    centre: float
    scale: float
    coefficients: Array
    residual: float = 0.25
    lengths: tuple[float, ...] | None = None

    @property
    def rank(self) -> int:
        """Count the directions."""
        return int(self.coefficients.shape[1]) - 1

    @property
    def parameters(self) -> PriorParameters:
        """Return the medians of the fitted parameters."""
        return PriorParameters(variance=self.residual)


class Moments(NamedTuple):
    """Moments of the learned functions at the design.

    mean `(M,)`: the mean.
    directions `(r, M)`: the directions.
    residual: the variance outside of the directions.
    """

    mean: Array
    directions: Array
    residual: float


class Shape(NamedTuple):
    """A function estimated from noisy values, in an SE kernel of `length_scale`.

    design `(M, d)`: the points.
    coefficients `(M,)`: the coefficients of the function.
    constant `(M,)`: the coefficients of the function that is 1 everywhere.
    """

    design: Array
    length_scale: float
    coefficients: Array
    constant: Array


class PriorParameters(NamedTuple):
    """The fitted parameters, in units of the prior's scale (see the module), in the order of `compiled.evidence`."""

    length_scale: float = 0.25
    variance: float = 0.25
    noise_variance: float = 0.01
    tau: float = 1.0


class Belief(NamedTuple):
    """The posterior belief about a function.

    x `(n, d)`: the observed points.
    rows: the features of the prior at the points.
    factor: the Cholesky factor of the covariance of the values.
    alpha: the solve of the factor with the values.
    """

    prior: LearnedPrior
    parameters: PriorParameters
    x: Array
    rows: Array
    factor: Array
    alpha: Array


# Standard deviations of the logs of (l, s^2, noise variance, tau), and their bounds.
SPREADS = np.array([0.5, 1.2, 1.2, 0.7])
LIMITS = np.log(np.array([(0.03, 3.0), (1e-4, 1e2), (1e-6, 1.0), (1e-2, 1e2)]))

# Tried to recover a shape: length scales, over that of the interpolation, and variances; and by how much its size varies.
LENGTHS = 1.5 ** np.arange(4)
SIZES = np.geomspace(1e-3, 1.0, 13)
SIZE = 0.5


def flat_prior(dim: int, centre: float, scale: float) -> LearnedPrior:
    """Return a prior without learned functions: a constant mean, and no direction."""
    return LearnedPrior(np.empty((0, dim)), 1.0, centre, scale, np.empty((0, 1)))


def learned_prior(design: Array, moments: Moments, length_scale: float) -> LearnedPrior:
    """Return a prior from moments at `design (M, d)`; its scale is the standard deviation of such functions over the design."""
    mean, directions, residual = moments
    centre = float(mean.mean())
    scale = float(np.sqrt(mean.var() + (directions**2).sum() / len(mean) + residual)) or 1.0
    coefficients = _interpolated(design, np.column_stack([mean - centre, directions.T]) / scale, length_scale)
    return LearnedPrior(
        design, length_scale, centre, scale=scale, coefficients=coefficients, residual=max(residual / scale**2, LEAST_RESIDUAL)
    )


def for_own_level(prior: LearnedPrior, x: Array, y: Array, factor: float) -> LearnedPrior:
    """Return the prior for a function of unknown level with values `y (n,)` at `x (n, d)`, n > 0.

    The level is the mean of the values less the prior mean there. Two more directions let the size of that mean and the level
    vary, as in `shape_prior`. Where the scale of the values differs from that of the prior by more than `factor`, the prior's
    scale is moved to within that factor.
    """
    spread = float(y.std())
    ratio = spread / prior.scale if spread > 0.0 else 1.0
    scale = prior.scale * ratio / float(np.clip(ratio, 1.0 / factor, factor))
    level = float((y - scale * rows_of(prior, x)[:, 0]).mean())
    constant = _interpolated(prior.design, np.ones((len(prior.design), 1)), prior.length_scale)
    coefficients = np.column_stack([prior.coefficients, SIZE * prior.coefficients[:, 0], constant])
    return prior._replace(centre=level, scale=scale, coefficients=coefficients)


def _interpolated(design: Array, values: Array, length_scale: float) -> Array:
    """Return the coefficients `(M, k)` of functions with `values (M, k)` at `design (M, d)`."""
    solved: Array = scipy.linalg.lapack.dpotrs(_factor(design.tobytes(), design.shape[1], length_scale), values, lower=1)[0]
    return solved


@lru_cache(maxsize=64)
def _factor(design: bytes, dim: int, length_scale: float) -> Array:
    """Return the factor of the interpolation from design points, which is that of all agents; cached by the bits of these."""
    points = np.frombuffer(design).reshape(-1, dim)
    gram = SE(length_scale)(points, points)
    gram.flat[:: len(gram) + 1] += INTERPOLATION_NOISE
    factor = factorise(gram)[0]
    factor.flags.writeable = False
    return factor


def shrunk(spread: Array, number: float) -> tuple[Array, float]:
    """Shrink a covariance `(M, M)` that was estimated from `number` functions; return it with the removed variance.

    The removed share is that of the oracle approximating estimator (Chen et al. 2010, eq. 23) for many dimensions: (1 + R) /
    (number + 1) with the effective rank R = tr(S)^2 / tr(S^2). It measures the error of such an estimate. The variance is the
    mean over the design, and belongs to the residual process.
    """
    total = float(spread.trace())
    if not total > 0.0:
        return np.zeros_like(spread), 0.0
    off = min(1.0, (1.0 + 1.0 / float(((spread / total) ** 2).sum())) / (number + 1.0))
    return (1.0 - off) * spread, off * total / len(spread)


def shape_prior(shape: Shape, centre: float, scale: float) -> LearnedPrior:
    """Return a prior whose mean has a given shape about `centre`, in units of `scale`; its size and a constant may vary."""
    coefficients = np.column_stack([shape.coefficients, SIZE * shape.coefficients, shape.constant])
    return LearnedPrior(shape.design, shape.length_scale, centre, scale, coefficients)


def recovered(design: Array, values: Array, noise: float, length_scale: float) -> Shape:
    """Return the posterior mean of a smooth function from `values (M,)` at `design (M, d)` with normal noise.

    `noise` is its standard deviation, and the prior mean is 0. Variance and length scale maximise the likelihood over a grid,
    whose least length scale is `length_scale`. For pure noise the variance is small and so is the mean.
    """
    best, evidence = (1.0, np.zeros_like(values)), -np.inf
    for length in length_scale * LENGTHS:
        roots, vectors = np.linalg.eigh(SE(length)(design, design))
        along = vectors.T @ values
        for size in SIZES:
            spread = size * (np.maximum(roots, 0.0) + INTERPOLATION_NOISE) + noise**2
            density = -0.5 * float((along**2 / spread + np.log(spread)).sum())
            if density > evidence:
                best, evidence = (float(length), size * (vectors @ (along / spread))), density
    length_scale, coefficients = best
    constant = _interpolated(design, np.ones(len(design)), length_scale)
    return Shape(design, length_scale, coefficients, constant)


def rows_of(prior: LearnedPrior, x: Array) -> Array:
    """Return mean and directions at `x (n, d)`, in units of the scale, `(n, 1 + r)`."""
    return np.asarray(SE(prior.length_scale)(x, prior.design) @ prior.coefficients)


def fit(prior: LearnedPrior, x: Array, y: Array, iterations: int = 100) -> PriorParameters:
    """Return the parameters with the largest posterior density given `y (n,)` at `x (n, d)`.

    Without observations these are the medians.
    """
    if not len(x):
        return prior.parameters
    from fedbo.surrogates.compiled.fit import fit as climb

    medians, best = np.log(prior.parameters), np.empty((1, 4))
    starts = np.array([medians, medians + (0.0, 1.2, 0.0, -1.4)])  # the shared part counts, or the residual does
    if not climb(*evidence(prior, x, y), starts, LIMITS, (iterations, TOLERANCE), best, np.empty(0)):
        raise NotPositiveDefinite("the covariance of a learned prior has no Cholesky factor at any rung of the jitter ladder")
    length, variance, noise, tau = np.exp(best[0]).tolist()
    return PriorParameters(length_scale=length, variance=variance, noise_variance=noise, tau=tau)


def evidence(prior: LearnedPrior, x: Array, y: Array) -> tuple[int, Array, Array, Array, Array]:
    """Return kernel, points `(d, n)`, values `(1, n)`, shared part `(n, n)` and priors `(3, 4)` as `compiled.fit` has them."""
    rows, points = rows_of(prior, x), x if prior.lengths is None else x / prior.lengths
    target, shared = (y - prior.centre) / prior.scale - rows[:, 0], rows[:, 1:] @ rows[:, 1:].T
    priors = np.array([np.log(prior.parameters), SPREADS**-2, np.zeros(4)])
    return MATERN.number, np.ascontiguousarray(points.T), target[None], shared, priors


def believe(prior: LearnedPrior, parameters: PriorParameters, x: Array, y: Array) -> Belief:
    """Return the posterior given `y (n,)` at `x (n, d)`, n >= 0."""
    rows = rows_of(prior, x)
    matrix = parameters.tau * rows[:, 1:] @ rows[:, 1:].T + residual_kernel(prior, parameters)(x, x)
    matrix.flat[:: len(x) + 1] += parameters.noise_variance
    factor, _ = factorise(matrix) if len(x) else (matrix, 0.0)
    target = (y - prior.centre) / prior.scale - rows[:, 0]
    return Belief(
        prior,
        parameters,
        x,
        rows=rows,
        factor=factor,
        alpha=scipy.linalg.cho_solve((factor, True), target) if len(x) else target,
    )


def residual_kernel(prior: LearnedPrior, parameters: PriorParameters) -> Matern:
    length = parameters.length_scale
    return Matern(length if prior.lengths is None else tuple(length * each for each in prior.lengths), parameters.variance)


def expected(belief: Belief, x: Array) -> Array:
    """Return the posterior mean at `x (n, d)`, in the units of the values."""
    rows = rows_of(belief.prior, x)
    cross = belief.parameters.tau * rows[:, 1:] @ belief.rows[:, 1:].T + residual_kernel(belief.prior, belief.parameters)(
        x, belief.x
    )
    return np.asarray(belief.prior.centre + belief.prior.scale * (rows[:, 0] + cross @ belief.alpha))


def predictor(belief: Belief) -> Predictor:
    """Return a function of points `(n, d)` that predicts in units of the prior's scale about its centre, with gradients.

    Without `slopes` the gradients are empty, `(n, 0)`, which saves half of the time.
    """
    from fedbo.surrogates.compiled.learned import predict

    prior, parameters = belief.prior, belief.parameters
    inverses = 1.0 / np.broadcast_to(np.asarray(residual_kernel(prior, parameters).length_scale), belief.x.shape[1:])
    known, coefficients = np.ascontiguousarray(belief.rows[:, 1:]), np.ascontiguousarray(prior.coefficients.T)
    of_mean = np.append(1.0, parameters.tau * known.T @ belief.alpha) @ coefficients
    root = np.tril(scipy.linalg.lapack.dtrtri(belief.factor, lower=1)[0]) if len(belief.x) else belief.factor
    design = np.ascontiguousarray((prior.design / prior.length_scale).T), 1.0 / prior.length_scale
    learned = *design, coefficients, of_mean, known, parameters.tau
    centres = np.ascontiguousarray((belief.x * inverses).T)
    residual = centres, inverses, parameters.variance, belief.alpha, np.ascontiguousarray(root)

    def at(x: Array, slopes: bool = True) -> Prediction:
        moments, gradients = np.empty((2, len(x))), np.zeros((2, x.shape[1] if slopes else 0, len(x)))
        predict(learned, residual, np.ascontiguousarray(x.T), moments, gradients)
        return Prediction(moments[0], moments[1], gradients[0].T, gradients[1].T)

    return at


def interpolation_length(points: int, dim: int) -> float:
    """Return a length scale of about two distances of this many design points, which suffices to interpolate between them."""
    return 2.0 * float(np.exp(-log(points) / dim))
