"""The log marginal likelihood of a Gaussian process and its gradient: `evidence.evidence_function`, with log-normal priors."""

from __future__ import annotations

from math import exp, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np

from fedbo.surrogates.compiled.cholesky import factorise, invert, solve
from fedbo.surrogates.compiled.elementary import exponential
from fedbo.surrogates.compiled.grid import MATERN32, SE
from fedbo.surrogates.compiled.jit import compiled

Array = Any


class Evidence(NamedTuple):
    """What `negative_log_posterior` takes, and `bounds (p, 2)` of the log hyperparameters."""

    family: int
    x: Array
    y: Array
    prior: Array
    bounds: Array
    room: Array


@compiled()
def negative_log_posterior(family: int, x: Array, y: Array, prior: Array, theta: Array, room: Array, gradient: Array) -> float:
    """Minus the log posterior density of the log hyperparameters `theta (p,)`, up to a constant; its gradient is written.

    `x (d, n)` has a point in each column; `prior (3, p)` are medians m and precisions q of the log hyperparameters, and a
    vector g: their prior is N(m, (diag(q) - g g')^-1). `room (5, n, n)` is scratch space. Infinite where the covariance matrix
    has no Cholesky factor.
    """
    n, scales = len(y), len(theta) - 2
    covariance, slope, factor, root, inverse = room[0], room[1], room[2], room[3], room[4]
    variance, noise = exp(theta[scales]), exp(theta[scales + 1])
    _covariances(family, x, theta, covariance, slope)
    jitter = factorise(covariance, factor)
    if jitter < 0.0:
        return np.inf
    alpha = y.copy()
    solve(factor, alpha)
    invert(factor, root, inverse)
    quadratic, size, logarithm, trace = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        quadratic += y[i] * alpha[i]
        size += alpha[i] * alpha[i]
        logarithm += log(factor[i, i])
        trace += inverse[i, i]
    value = 0.5 * quadratic + logarithm + 0.5 * n * log(2.0 * pi)
    _slopes(x, alpha, slope, inverse, gradient)
    for k in range(scales):
        gradient[k] *= 2.0 * variance * exp(-2.0 * theta[k])
    excess = 0.5 * (size - trace)
    gradient[scales] = (noise + jitter) * excess - 0.5 * (quadratic - n)
    gradient[scales + 1] = -noise * excess
    together = 0.0
    for k in range(len(theta)):
        away = theta[k] - prior[0, k]
        value += 0.5 * prior[1, k] * away * away
        gradient[k] += prior[1, k] * away
        together += prior[2, k] * away
    for k in range(len(theta)):
        gradient[k] -= prior[2, k] * together
    return value - 0.5 * together * together


@compiled()
def _covariances(family: int, x: Array, theta: Array, covariance: Array, slope: Array) -> None:
    """Write covariances above the diagonal, and the derivative of the correlation by the squared distance below it."""
    d, n = x.shape
    scales = len(theta) - 2
    variance, noise = exp(theta[scales]), exp(theta[scales + 1])
    distance, precisions = np.empty(n), np.exp(-2.0 * theta[:scales])
    for i in range(n):
        for j in range(i):
            distance[j] = 0.0
        for k in range(d):
            precision = precisions[min(k, scales - 1)]
            for j in range(i):
                distance[j] += precision * ((x[k, i] - x[k, j]) * (x[k, i] - x[k, j]))
        if family == SE:
            for j in range(i):
                e = exponential(-0.5 * distance[j])
                distance[j], slope[i, j] = variance * e, -0.5 * e
        elif family == MATERN32:
            for j in range(i):
                r = sqrt(3.0) * sqrt(distance[j])
                e = exponential(-r)
                distance[j], slope[i, j] = variance * (1.0 + r) * e, -1.5 * e
        else:
            for j in range(i):
                r = sqrt(5.0) * sqrt(distance[j])
                e = exponential(-r)
                distance[j] = variance * (1.0 + r + r * r / 3.0) * e
                slope[i, j] = (-5.0 / 6.0) * (1.0 + r) * e
        for j in range(i):
            covariance[j, i] = distance[j]
        covariance[i, i] = variance + noise


@compiled()
def _slopes(x: Array, alpha: Array, slope: Array, inverse: Array, gradient: Array) -> None:
    """Write the sums over pairs of (alpha alpha' - inverse) slope (x - x')^2, one for each length scale."""
    d, n = x.shape
    scales = len(gradient) - 2
    sums, pull = np.zeros((scales, n)), np.empty(n)
    for i in range(n):
        for j in range(i):
            pull[j] = (alpha[i] * alpha[j] - inverse[i, j]) * slope[i, j]
        for k in range(d):
            of = min(k, scales - 1)
            for j in range(i):
                sums[of, j] += pull[j] * ((x[k, i] - x[k, j]) * (x[k, i] - x[k, j]))
    for k in range(scales):
        gradient[k] = 0.0
        for j in range(n):
            gradient[k] += sums[k, j]
