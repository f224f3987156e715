"""Bayesian linear model in feature space: omega ~ N(nu, sigma^2 Sigma^-1) (FTS equations (2) and (3)).

The state is the triangular square root of [Sigma, Phi'y; y'Phi, y'y], updated by an orthogonal transformation. Sigma
itself is never formed: at sigma^2 = 1e-6 its condition number is near 1e8, that of its root 1e4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from math import isfinite, isqrt, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.features import Features

Array = npt.NDArray[np.float64]
BLOCK = 12
_NONE = np.empty(0)


@cache
def _compiled() -> Any:
    """Import the compiled routines. The module is cached, since even a repeated import takes half a microsecond."""
    from fedbo.surrogates.compiled import block, draws

    return block, draws


class LinearModel(NamedTuple):
    """Square root `[[R, z], [0, r]]` `(m + 1, m + 1)` with R'R = Sigma and R'z = Phi'y, sigma^2, and n."""

    factor: Array
    noise_variance: float
    n: int


class Observations(NamedTuple):
    """An agent's observations: points `x (n, d)`, values `y (n,)`, and the `gram_factor` of the first of them, or of more."""

    x: Array
    y: Array
    factor: Array | None


class Models(NamedTuple):
    """The linear models of several agents: features that they share, sigma^2, and how values are scaled (`scaled_values`)."""

    features: Features
    noise_variance: float
    clip: float = 0.0
    standardise: bool = True


class Drawn(NamedTuple):
    """Weights `(k, m)` drawn for each agent, what its values were divided by, `(k,)`, and the `gram_factor` that it has now."""

    omega: Array
    spread: Array
    factors: list[Array | None]


@lru_cache(maxsize=16)
def linear_model(m: int, noise_variance: float) -> LinearModel:
    """Return the model of `m` features before any observation: Sigma = sigma^2 I, nu = 0.

    Raises ValueError unless sigma^2 > 0.
    """
    if not noise_variance > 0.0:
        raise ValueError(f"noise variance must be positive; got {noise_variance}")
    factor = np.zeros((m + 1, m + 1), order="F")
    np.fill_diagonal(factor[:m, :m], sqrt(noise_variance))
    factor.flags.writeable = False
    return LinearModel(factor, float(noise_variance), 0)


def update(model: LinearModel, phi_rows: Array, y: Array | float) -> LinearModel:
    """Add the feature rows `(n, m)` or `(m,)` and their values `(n,)` to the model; O(m^2) per row (FTS equation (2)).

    Raises ValueError when a number is not finite.
    """
    rows = phi_rows if phi_rows.ndim == 2 else phi_rows[None]
    new = np.empty((rows.shape[0], rows.shape[1] + 1), order="F")
    new[:, :-1] = rows
    new[:, -1] = y
    if rows.shape[0] == 0:
        return model
    factor = scipy.linalg.lapack.dtpqrt(0, min(BLOCK, new.shape[1]), model.factor, new, overwrite_b=1)[0]
    # The last entry is the norm of the residual: whatever is not finite in the rows ends up there.
    if not isfinite(factor[-1, -1]):
        raise ValueError("feature rows and values must be finite")
    return LinearModel(factor, model.noise_variance, model.n + rows.shape[0])


def mean(model: LinearModel) -> Array:
    """Return the posterior mean nu = Sigma^-1 Phi'y of the weights, `(m,)`."""
    return _solve(model, model.factor[:-1, -1])


def covariance(model: LinearModel) -> Array:
    """Return the posterior covariance sigma^2 Sigma^-1 of the weights, `(m, m)`."""
    return model.noise_variance * inverse_precision(model)


def inverse_precision(model: LinearModel) -> Array:
    """Return Sigma^-1, `(m, m)`, the matrix that RGPE and TAF send."""
    inverse = _solve(model, np.eye(model.factor.shape[0] - 1))
    return np.asarray(inverse @ inverse.T)


def draw(model: LinearModel, rng: np.random.Generator, count: int = 1, beta: float = 1.0) -> Array:
    """Return draws omega ~ N(nu, beta^2 sigma^2 Sigma^-1), `(count, m)` (FTS section 2.2; beta = 1 for messages)."""
    return _drawn(model, rng.standard_normal((count, model.factor.shape[0] - 1)), beta)


def _drawn(model: LinearModel, normals: Array, beta: float) -> Array:
    """Convert standard normal draws to draws of the weights, `(count, m)`."""
    return _solve(model, (beta * sqrt(model.noise_variance) * normals + model.factor[:-1, -1]).T).T


def predict(model: LinearModel, phi_rows: Array) -> tuple[Array, Array]:
    """Return the posterior mean and variance of phi(x)'omega at feature rows `(n, m)`, each `(n,)`.

    FTS equations (6) and (7).
    """
    root = scipy.linalg.lapack.dtrtrs(model.factor[:, :-1], phi_rows.T, trans=1)[0]
    return phi_rows @ mean(model), model.noise_variance * np.einsum("ij,ij->j", root, root)


def gram_factor(phi_rows: Array, noise_variance: float, before: Array | None = None) -> Array:
    """Return the upper factor U of Phi Phi' + sigma^2 I for feature rows `(n, m)`, by columns `(n (n + 1) / 2,)`.

    `before` is the factor of the first of these rows, or of more; the others then cost O(n m) each. There are fewer columns
    where rounding leaves no factor. With m rows or more no column is added, since the factor has no use there.
    """
    n, m = phi_rows.shape
    before = np.empty(0) if before is None else before
    wanted = n * (n + 1) // 2
    if n >= m or len(before) >= wanted:
        return before[:wanted]
    factor = np.empty(wanted)
    factor[: len(before)] = before
    columns = _compiled()[1].extend(phi_rows, noise_variance, (isqrt(8 * len(before) + 1) - 1) // 2, factor)
    return factor if columns == n else factor[: columns * (columns + 1) // 2].copy()


def draw_weights(
    phi_rows: Array,
    y: Array,
    noise_variance: float,
    rng: np.random.Generator,
    beta: float = 1.0,
    factor: Array | None = None,
) -> Array:
    """Return one draw omega ~ N(nu, beta^2 sigma^2 Sigma^-1) straight from the data, `(m,)`, by the cheaper of two routes.

    Both are exact. With n < m it is Matheron's rule, omega = beta omega_0 + Phi'(Phi Phi' + sigma^2 I)^-1 (y - beta (Phi
    omega_0 + eps)). It costs O(n^2 m), or O(n m) with the `gram_factor` of these rows. Otherwise, and when rounding leaves that
    matrix without a Cholesky factor, it is the square root above.
    """
    n, m = phi_rows.shape
    if n == 0:
        return np.asarray(beta * rng.standard_normal(m))
    normals = rng.standard_normal(m + n if n < m else m)
    if n < m:
        wanted = n * (n + 1) // 2
        if factor is None or len(factor) != wanted:
            factor = gram_factor(phi_rows, noise_variance, factor)
        if len(factor) == wanted:
            omega = np.empty(m)
            _compiled()[1].matheron(phi_rows, y, factor, normals, beta, beta * sqrt(noise_variance), omega)
            return omega
    return np.asarray(_drawn(update(linear_model(m, noise_variance), phi_rows, y), normals[None, :m], beta)[0])


def draw_each(models: Models, observed: Sequence[Observations], beta: Sequence[float], normals: Array) -> Drawn:
    """Return one draw of weights for each agent as `draw_weights` makes it, beta times as wide as its posterior.

    One call makes all draws, one after the other, with the same bits as separate calls. `normals` are standard normal draws,
    `normals_for` of them for each agent.
    """
    m, first = len(models.features.phases), 0
    if max(len(one.y) for one in observed) < m:
        return _draw_from_few(models, observed, beta, normals)
    omega, spread, factors = np.empty((len(observed), m)), np.empty(len(observed)), [one.factor for one in observed]
    for place, (one, wide) in enumerate(zip(observed, beta, strict=True)):
        own = normals[first : first + normals_for(len(one.y), m)]
        first += len(own)
        if len(one.y) < m:
            (omega[place],), (spread[place],), (factors[place],) = _draw_from_few(models, [one], [wide], own)
            continue
        y = np.array(one.y)
        spread[place] = _compiled()[0].scale(y, models.clip, models.standardise)
        omega[place] = _drawn(_model(models, one.x, y), own[None, :m], wide)[0]
    return Drawn(omega, spread, factors)


def _draw_from_few(models: Models, observed: Sequence[Observations], beta: Sequence[float], normals: Array) -> Drawn:
    """Make the draws of agents with fewer than m observations each."""
    features, k, m = models.features, len(observed), len(models.features.phases)
    x, y, before = zip(*observed, strict=True)
    sizes = [len(values) for values in y]
    known = [_NONE if factor is None else factor[: n * (n + 1) // 2] for factor, n in zip(before, sizes, strict=True)]
    columns = np.array([[(isqrt(8 * len(factor) + 1) - 1) // 2, 0] for factor in known])
    factors = np.empty(sum(n * (n + 1) // 2 for n in sizes))
    omega, spread, values = np.empty((k, m)), np.empty(k), np.concatenate(y)
    data, scaling, counts = (_joined(x), values, _joined(known), normals), (models.clip, models.standardise), np.array(sizes)
    _compiled()[0].draw_weights(
        tuple(features), scaling, models.noise_variance, data, counts, np.array(beta), factors, columns, omega, spread
    )
    found, at, first, used = list(before), 0, 0, 0
    for place, (n, (had, has)) in enumerate(zip(sizes, columns.tolist(), strict=True)):
        if has > had:
            found[place] = factors[at : at + has * (has + 1) // 2].copy()
        if has < n:
            model = _model(models, x[place], values[first : first + n])
            omega[place] = _drawn(model, normals[None, used : used + m], beta[place])[0]
        at, first, used = at + n * (n + 1) // 2, first + n, used + m + n
    return Drawn(omega, spread, found)


def _model(models: Models, x: Array, y: Array) -> LinearModel:
    """Return the model given points `(n, d)` and scaled values `(n,)`."""
    return update(linear_model(len(models.features.phases), models.noise_variance), feature_rows(models.features, x), y)


def _joined(arrays: Sequence[Array]) -> Array:
    """Join arrays; return a single array without a copy."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def normals_for(n: int, m: int) -> int:
    """Return the number of normal draws that one draw of `m` weights needs, given n observations."""
    return m + n if n < m else m


def scaled_values(y: Array, clip: float, standardise: bool) -> Array:
    """Return values `(n,)` raised to their quantile `clip` (the lower of two neighbours), and optionally standardised.

    With `standardise` they have mean 0 and, unless all are equal, standard deviation 1.
    """
    y = np.array(y)
    _compiled()[0].scale(y, clip, standardise)
    return y


def feature_rows(features: Features, x: Array) -> Array:
    """Return the feature rows of the points `x (n, d)`, shape `(n, m)`: `features.phi`, compiled."""
    rows = np.empty((len(x), len(features.phases)))
    _compiled()[0].feature_rows(tuple(features), x, rows)
    return rows


def _solve(model: LinearModel, right: Array) -> Array:
    """Return R^-1 times `right (m,)` or `(m, c)`."""
    # All rows of the factor go along, because a slice of rows would be copied; LAPACK reads the first m of them.
    solution: Array = scipy.linalg.lapack.dtrtrs(model.factor[:, :-1], right)[0]
    return solution
