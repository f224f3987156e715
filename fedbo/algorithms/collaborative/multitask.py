"""One Gaussian process over all agents: y_n = f_n(x) + noise, cov(f_n(x), f_k(z)) = k(x, z) (rho + (1 - rho) [n = k]).

The intrinsic coregionalisation model with one number rho for all pairs (Bonilla, Chai, Williams 2007). f_n is sqrt(rho) times a
common function plus sqrt(1 - rho) times the agent's function. It needs the observations of all agents.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.draws import Draw, KernelPart
from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.posterior import Hyperparameters, Posterior, condition, factorise

Array = npt.NDArray[np.float64]
Tasks = npt.NDArray[np.int64]


class Observed(NamedTuple):
    """Observations of all agents: points `(n, d)`, values in standard units `(n,)`, and whose they are, `(n,)`."""

    x: Array
    y: Array
    task: Tasks


def evidence(hyper: Hyperparameters, rho: float, seen: Observed) -> float:
    """Return the log density of the values."""
    factor, _ = factorise(_covariance(hyper, rho, seen))
    alpha = scipy.linalg.lapack.dpotrs(factor, seen.y, lower=1)[0]
    half = float(np.log(factor.diagonal()).sum())
    return -0.5 * float(seen.y @ alpha) - half - 0.5 * len(seen.y) * float(np.log(2.0 * np.pi))


def multitask_posterior(hyper: Hyperparameters, rho: float, seen: Observed, target: int) -> Posterior:
    """Return the process f_target given all observations, as if they were its own with more noise.

    With c_i = 1 for the target's observations and rho for all others, their covariance with f_target(x) is c_i k(x, x_i). So
    the factor L / c and the solve c alpha give the moments of f_target with the kernel k alone.
    """
    if rho == 0.0:
        mine = seen.task == target
        return condition(hyper, seen.x[mine], seen.y[mine])
    share = np.where(seen.task == target, 1.0, rho)
    factor, jitter = factorise(_covariance(hyper, rho, seen))
    alpha = share * scipy.linalg.lapack.dpotrs(factor, seen.y, lower=1)[0]
    return Posterior(hyper, seen.x, seen.y, factor=np.asfortranarray(factor / share[:, None]), alpha=alpha, jitter=jitter)


def multitask_draw(
    hyper: Hyperparameters, rho: float, seen: Observed, target: int, rng: np.random.Generator, count: int = 200
) -> Draw:
    """Draw f_target from the posterior given all observations, by pathwise conditioning on `count` features."""
    features = draw_features(
        rng, seen.x.shape[1], count, hyper.length_scale, hyper.family, variance=hyper.variance, normalise=False
    )
    tasks, place = np.unique(np.append(seen.task, target), return_inverse=True)
    common, own = rng.standard_normal(count), rng.standard_normal((len(tasks), count))
    weights = sqrt(rho) * common + sqrt(1.0 - rho) * own
    prior = np.einsum("nm,nm->n", phi(features, seen.x), weights[place[:-1]])
    noise = sqrt(hyper.noise_variance) * rng.standard_normal(len(seen.y))
    factor, _ = factorise(_covariance(hyper, rho, seen))
    pull = scipy.linalg.lapack.dpotrs(factor, seen.y - prior - noise, lower=1)[0]
    pull *= np.where(seen.task == target, 1.0, rho)
    return Draw(features, weights[place[-1]], KernelPart(hyper.kernel, seen.x, pull))


def _covariance(hyper: Hyperparameters, rho: float, seen: Observed) -> Array:
    """Return the covariance of the values, `(n, n)`."""
    covariance = hyper.kernel(seen.x, seen.x)
    if rho < 1.0:
        covariance *= np.where(seen.task[:, None] == seen.task, 1.0, rho)
    covariance.flat[:: len(covariance) + 1] += hyper.noise_variance
    return covariance
