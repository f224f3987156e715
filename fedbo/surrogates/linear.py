"""Bayesian linear model in feature space: omega ~ N(nu, sigma^2 Sigma^-1) (FTS equations (2) and (3)).

The state is the triangular square root of [Sigma, Phi'y; y'Phi, y'y], updated by an orthogonal transformation. Sigma
itself is never formed: at sigma^2 = 1e-6 its condition number is near 1e8, that of its root 1e4.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import isfinite, isqrt, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.features import Features

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
BLOCK = 12
_NONE, _FIRST = np.empty(0), np.zeros(1, np.int64)


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
    """An agent's observations: points `x (n, d)`, values `y (n,)`, and the factor that `draw_one` returned for the first."""

    x: Array
    y: Array
    factor: Array | None


class CommonObservations(NamedTuple):
    """The observations of k agents in common arrays: points `x (r, d)` and values `y (r,)`.

    Agent a has `counts[a]` of them, from number `begins[a]` on. Its factor begins at `places[a]` of `factors`, and holds the
    first `known[a]` of them. It is the `gram_factor` of fewer observations than features, and the root R of Sigma, by rows,
    of more. Each of these is `(k,)`.
    """

    x: Array
    y: Array
    begins: Numbers
    counts: Numbers
    factors: Array
    places: Numbers
    known: Numbers


class Models(NamedTuple):
    """The linear models of several agents: features that they share, sigma^2, and how values are scaled (`scaled_values`)."""

    features: Features
    noise_variance: float
    clip: float = 0.0
    standardise: bool = True


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


def inverse_precision(model: LinearModel) -> Array:
    """Return Sigma^-1, `(m, m)`: times the noise variance, it is the posterior covariance of the weights."""
    inverse = _solve(model, np.eye(model.factor.shape[0] - 1))
    return np.asarray(inverse @ inverse.T)


def draw(model: LinearModel, rng: np.random.Generator, count: int = 1, beta: float = 1.0) -> Array:
    """Return draws omega ~ N(nu, beta^2 sigma^2 Sigma^-1), `(count, m)` (FTS section 2.2; beta = 1 for messages)."""
    return _drawn(model, rng.standard_normal((count, model.factor.shape[0] - 1)), beta)


def _drawn(model: LinearModel, normals: Array, beta: float) -> Array:
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
    phi_rows: Array, y: Array, noise_variance: float, rng: np.random.Generator, beta: float = 1.0, factor: Array | None = None
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


def draw_each(models: Models, observed: CommonObservations, beta: Array, normals: Array) -> tuple[Array, Array]:
    """Return one draw of weights for each agent, `(k, m)`, and the number by which its values were divided, `(k,)`.

    Each is as `draw_weights` makes it up to rounding, `beta (k,)` times as wide as its posterior, with the same bits in any
    company. `normals` are standard normal draws, `normals_for` of them for each agent. Rows that factors lack are added to
    `observed`. Where they lack one observation, a draw costs O(n m + m^2), and O(n m + n^2) with n < m.
    """
    features, counts, m = models.features, observed.counts, len(models.features.phases)
    omega, spread = np.empty((len(counts), m)), np.empty(len(counts))
    _compiled()[0].draw_weights(
        tuple(features),
        (models.clip, models.standardise),
        models.noise_variance,
        (observed.x, observed.y),
        (observed.begins, counts, observed.places),
        normals,
        beta,
        observed.factors,
        observed.known,
        omega,
        spread,
    )
    for place in (observed.known < counts).nonzero()[0].tolist():
        first, n = observed.begins[place], counts[place]
        x, y = observed.x[first : first + n], observed.y[first : first + n]
        used = int(normals_for(counts[:place], m).sum())
        values = scaled_values(y, models.clip, models.standardise)
        model = update(linear_model(m, models.noise_variance), feature_rows(features, x), values)
        omega[place] = _drawn(model, normals[None, used : used + m], float(beta[place]))[0]
    return omega, spread


def draw_one(models: Models, one: Observations, beta: float, normals: Array) -> tuple[Array, float, Array | None]:
    """Return one draw of weights `(m,)` as `draw_each` does, its divisor, and the factor that there is now.

    The last entry of a root is the number of its observations.
    """
    n, m = len(one.y), len(models.features.phases)
    factor = _NONE if one.factor is None else one.factor
    held = int(factor[-1]) if len(factor) > _size(m, m) else (isqrt(8 * len(factor) + 1) - 1) // 2
    known = known_part(np.array([held]), np.array([n]), m)
    first, size = int(known[0]), _size(int(known[0]), m)
    factors = np.empty(_size(n, m))
    factors[:size] = factor[:size]
    observed = CommonObservations(
        x=one.x, y=one.y, begins=_FIRST, counts=np.array([n]), factors=factors, places=_FIRST, known=known
    )
    (omega,), (spread,) = draw_each(models, observed, np.array([beta]), normals)
    if (now := int(known[0])) <= first:
        return omega, float(spread), one.factor
    return omega, float(spread), np.append(factors, now) if now >= m else factors[: _size(now, m)]


def known_part(held: Numbers, counts: Numbers, m: int) -> Numbers:
    """Return how many of `counts (k,)` observations can be taken from factors that hold `held (k,)`.

    None of more where the factor is a root, from which no observation can be removed.
    """
    return np.where((held > counts) & (held >= m), 0, np.minimum(held, counts))


def _size(n: int, m: int) -> int:
    return min(n, m) * (min(n, m) + 1) // 2


def normals_for(counts: Numbers, m: int) -> Numbers:
    """Return the number of normal draws that one draw of `m` weights needs, given `counts (k,)` observations."""
    return np.where(counts < m, m + counts, m)


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
