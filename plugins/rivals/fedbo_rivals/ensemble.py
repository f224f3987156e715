"""Many agents' linear models at once, and how well each ranks the points of another agent (RGPE and TAF).

The models share one set of features; model n is N(nu_n, sigma^2 Sigma_n^-1). Their predictions at a set of points are two
matrix products for all of them together.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.surrogates.acquisition import Prediction
from fedbo.surrogates.features import Features, phi
from fedbo.surrogates.posterior import Posterior, factorise
from fedbo.surrogates.posterior import covariance as posterior_covariance
from fedbo.surrogates.posterior import predict as posterior_predict

Array = npt.NDArray[np.float64]


class Ensemble(NamedTuple):
    """The models of k agents: features, nu `(k, m)`, and sigma^2 Sigma^-1, side by side, `(m, k m)`."""

    features: Features
    nu: Array
    spread: Array


def ensemble(features: Features, nu: Array, inverse: Array, noise_variance: float) -> Ensemble:
    """Return the ensemble of the agents' messages: nu `(k, m)` and Sigma^-1 `(k, m, m)`."""
    return Ensemble(features, nu, noise_variance * inverse.transpose(1, 0, 2).reshape(nu.shape[1], -1))


def combined(models: Ensemble, weight: Array) -> Ensemble:
    """Return one model for the sum of independent functions, one from each model, times `weight (k,)`.

    Its mean is sum w_n mu_n and its variance sum w_n^2 sigma_n^2 everywhere: a weighted ensemble costs no more than one model.
    """
    k, m = models.nu.shape
    spread = np.einsum("mkj,k->mj", models.spread.reshape(m, k, m), weight * weight)
    return models._replace(nu=(weight @ models.nu)[None], spread=spread)


def means(models: Ensemble, x: Array) -> Array:
    """Return the posterior means at `x (n, d)`, one column for each model, `(n, k)`."""
    return phi(models.features, x) @ models.nu.T


def means_with_gradients(models: Ensemble, x: Array) -> tuple[Array, Array]:
    """Return the posterior means at `x (n, d)`, `(n, k)`, and their gradients `(n, k, d)`."""
    rows, jacobian = phi_and_jacobian(models.features, x)
    return rows @ models.nu.T, np.matmul(models.nu, jacobian)


def phi_and_jacobian(features: Features, x: Array) -> tuple[Array, Array]:
    """Return the feature rows `(n, m)` and their gradients with respect to the inputs, `(n, m, d)`."""
    angle = x @ features.frequencies.T + features.phases
    c, s = np.cos(angle), np.sin(angle)
    rise = -s[:, :, None] * features.frequencies
    if not features.normalise:
        scale = sqrt(2.0 * features.variance / features.phases.size)
        return scale * c, scale * rise
    scale_by_point = sqrt(features.variance) / np.sqrt(np.einsum("ij,ij->i", c, c))
    along = np.einsum("im,imd->id", c, rise) / np.einsum("ij,ij->i", c, c)[:, None]
    rise -= c[:, :, None] * along[:, None, :]
    return scale_by_point[:, None] * c, scale_by_point[:, None, None] * rise


def predictions(models: Ensemble, x: Array) -> Prediction:
    """Return the posterior means and variances at `x (n, d)`, each `(n, k)`, and their gradients, each `(n, k, d)`."""
    rows, jacobian = phi_and_jacobian(models.features, x)
    solved = (rows @ models.spread).reshape(len(rows), -1, rows.shape[1])
    variance = np.maximum(np.matmul(solved, rows[:, :, None])[:, :, 0], 0.0)
    return Prediction(rows @ models.nu.T, variance, np.matmul(models.nu, jacobian), 2.0 * np.matmul(solved, jacobian))


def joint_draws(models: Ensemble, x: Array, count: int, rng: np.random.Generator) -> Array:
    """Return joint draws from every model at `x (n, d)`, `(k, count, n)`.

    Near points that a sender has seen often, the covariance is far smaller than the numbers that it is computed from. Those are
    at most |phi(x)|^2 times the largest variance of a weight, so the jitter is relative to them.

    Raises NotPositiveDefinite when a Sigma_n^-1 is no covariance matrix.
    """
    rows = phi(models.features, x)
    (n, m), k = rows.shape, len(models.nu)
    covariance = rows @ (rows @ models.spread).reshape(n, k, m).transpose(1, 2, 0)
    normals = rng.standard_normal((k, count, n))
    largest = models.spread.reshape(m, k, m).diagonal(axis1=0, axis2=2).max(axis=1) * float((rows * rows).sum(axis=1).max())
    factors = [factorise(each, float(size))[0] for each, size in zip(covariance, largest, strict=True)]
    draws = [normal @ np.tril(factor).T for normal, factor in zip(normals, factors, strict=True)]
    return np.array(draws) + (models.nu @ rows.T)[:, None, :]


def leave_one_out_draws(posterior: Posterior, count: int, rng: np.random.Generator) -> Array:
    """Return draws of f at all n points of a Gaussian process, given all observations but one: `(n, count, n)`.

    Entry [j, s] is a joint draw at all points without observation j. Removing it raises the covariance by v v' and lowers the
    mean by v alpha_j / sqrt(A_jj). Here A = (K + sigma^2 I)^-1, alpha = A y and v = (e_j - sigma^2 A e_j) / sqrt(A_jj). The
    draws of different j share their other randomness.
    """
    x, n = posterior.x, len(posterior.x)
    noise = posterior.hyper.noise_variance + posterior.jitter
    half = np.linalg.solve(np.tril(posterior.factor), np.eye(n))
    inverse = half.T @ half
    root = np.sqrt(inverse.diagonal())
    away = (np.eye(n) - noise * inverse) / root
    mean = (posterior_predict(posterior, x)[0] - posterior.hyper.offset) / posterior.hyper.scale
    spread = posterior_covariance(posterior, x) / posterior.hyper.scale**2
    variance = posterior.hyper.variance
    factor = np.tril(factorise(spread + 1e-12 * variance * np.eye(n), variance)[0])
    common = rng.standard_normal((count, n)) @ factor.T
    shift = (rng.standard_normal((count, n)) - posterior.alpha / root)[:, :, None] * away.T
    draws = mean + common[:, None, :] + shift
    return posterior.hyper.offset + posterior.hyper.scale * draws.transpose(1, 0, 2)


def ranking_loss(draws: Array, y: Array) -> Array:
    """Return the number of ordered pairs of `y (n,)` that each of the draws `(..., n)` puts in another order, `(...)`.

    Feurer et al. 2018, equation (3): sum over j, k of [f_j < f_k] xor [y_j < y_k].
    """
    wrong = (draws[..., :, None] < draws[..., None, :]) != (y[:, None] < y)
    return np.asarray(wrong.sum(axis=(-1, -2)))


def leave_one_out_loss(draws: Array, y: Array) -> Array:
    """Return the ranking loss of `leave_one_out_draws (n, s, n)`, where row j is compared in draw j: `(s,)`."""
    n = len(y)
    own = draws[np.arange(n), :, np.arange(n)]
    wrong = (own[:, :, None] < draws) != (y[:, None] < y)[:, None, :]
    return np.asarray(wrong.sum(axis=(0, 2)))


def discordance(predicted: Array, y: Array) -> Array:
    """Share of the pairs of `y (n,)` that the predictions `(k, n)` put in another order, `(k,)`; 0 for one point."""
    n = len(y)
    return ranking_loss(predicted, y) / max(n * (n - 1), 1)
