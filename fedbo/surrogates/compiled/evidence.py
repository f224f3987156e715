"""The log marginal likelihood of a Gaussian process and its gradient: `posterior.evidence_function`, with log-normal priors.

The covariance may have one more part, a given matrix times a fitted factor, which is then the last hyperparameter.
"""

from __future__ import annotations

from math import exp, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np

from fedbo.surrogates.compiled.cholesky import factorise, invert, solve
from fedbo.surrogates.compiled.elementary import exponential
from fedbo.surrogates.compiled.grid import MATERN32, SE
from fedbo.surrogates.compiled.jit import compiled
from fedbo.surrogates.compiled.rows import padded

Array = Any


class Evidence(NamedTuple):
    """The data of `negative_log_posterior`, besides the log hyperparameters.

    squares `(d, n (n - 1) / 2)`: squared differences of pairs of points in each input, row after row below the diagonal.
    prior `(3, p)`: medians m, precisions q and a vector g; the log hyperparameters are N(m, (diag(q) - g g')^-1).
    bounds `(p, 2)`: bounds of the log hyperparameters.
    common `(n, n)`: the given part of the covariance; `(0, 0)` if there is none.
    pairs, room: scratch space.
    """

    family: int
    squares: Array
    y: Array
    prior: Array
    bounds: Array
    common: Array
    pairs: Array
    room: Array


@compiled()
def squares_of(x: Array) -> Array:
    """Return the squared differences of points `x (d, n)`, `(d, n (n - 1) / 2)`."""
    d, n = x.shape
    squares = np.empty((d, n * (n - 1) // 2))
    for k in range(d):
        at = 0
        for i in range(n):
            for j in range(i):
                squares[k, at + j] = (x[k, i] - x[k, j]) * (x[k, i] - x[k, j])
            at += i
    return squares


@compiled()
def evidence_of(family: int, squares: Array, y: Array, prior: Array, bounds: Array, common: Array) -> Evidence:
    """Return the evidence of values `y (n,)`."""
    n = len(y)
    return Evidence(family, squares, y, prior, bounds, common, np.empty((2, squares.shape[1])), np.zeros((4, n, padded(n))))


@compiled()
def negative_log_posterior(model: Evidence, theta: Array, gradient: Array) -> float:
    """Return minus the log posterior density at `theta (p,)`, the log hyperparameters, up to a constant; write its gradient.

    The result is infinite where the covariance matrix has no Cholesky factor.
    """
    y, prior, scales = model.y, model.prior, _scales(model, theta)
    n = len(y)
    covariance, factor, root, inverse = model.room[0], model.room[1], model.room[2], model.room[3]
    variance, noise = exp(theta[scales]), exp(theta[scales + 1])
    _covariances(model, theta, covariance)
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
    _slopes(model, alpha, inverse, gradient[:scales])
    for k in range(scales):
        gradient[k] *= 2.0 * variance * exp(-2.0 * theta[k])
    excess = 0.5 * (size - trace)
    gradient[scales] = (noise + jitter) * excess - 0.5 * (quadratic - n)
    gradient[scales + 1] = -noise * excess
    if len(model.common):
        gradient[scales + 2] = -exp(theta[scales + 2]) * _slope_of_common(model.common, alpha, inverse)
        gradient[scales] -= gradient[scales + 2]
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
def _scales(model: Evidence, theta: Array) -> int:
    """Count the length scales among the hyperparameters."""
    return len(theta) - 2 - min(len(model.common), 1)


@compiled()
def _slope_of_common(common: Array, alpha: Array, inverse: Array) -> float:
    """Return half of the sum over all pairs of (alpha alpha' - inverse) times the given part."""
    total = 0.0
    for i in range(len(alpha)):
        for j in range(i):
            total += (alpha[i] * alpha[j] - inverse[i, j]) * common[i, j]
        total += 0.5 * (alpha[i] * alpha[i] - inverse[i, i]) * common[i, i]
    return total


@compiled()
def _covariances(model: Evidence, theta: Array, covariance: Array) -> None:
    """Write covariances above the diagonal, and the derivatives of correlations by squared distances to `pairs[1]`."""
    d, count = model.squares.shape
    n, scales, common = len(model.y), _scales(model, theta), model.common
    variance, noise = exp(theta[scales]), exp(theta[scales + 1])
    value, slope, precisions = model.pairs[0], model.pairs[1], np.exp(-2.0 * theta[:scales])
    for p in range(count):
        value[p] = 0.0
    for k in range(d):
        precision, squares = precisions[min(k, scales - 1)], model.squares[k]
        for p in range(count):
            value[p] += precision * squares[p]
    if model.family == SE:
        for p in range(count):
            e = exponential(-0.5 * value[p])
            value[p], slope[p] = variance * e, -0.5 * e
    elif model.family == MATERN32:
        for p in range(count):
            r = sqrt(3.0) * sqrt(value[p])
            e = exponential(-r)
            value[p], slope[p] = variance * (1.0 + r) * e, -1.5 * e
    else:
        for p in range(count):
            r = sqrt(5.0) * sqrt(value[p])
            e = exponential(-r)
            value[p] = variance * (1.0 + r + r * r / 3.0) * e
            slope[p] = (-5.0 / 6.0) * (1.0 + r) * e
    at = 0
    for i in range(n):
        for j in range(i):
            covariance[j, i] = value[at + j]
        covariance[i, i] = variance + noise
        at += i
    for i in range(len(common)):
        factor = exp(theta[scales + 2])
        for j in range(i, n):
            covariance[i, j] += factor * common[i, j]


@compiled()
def _slopes(model: Evidence, alpha: Array, inverse: Array, gradient: Array) -> None:
    """Write the sums over pairs of (alpha alpha' - inverse) slope (x - x')^2, one for each length scale."""
    n, scales = len(alpha), len(gradient)
    pull, slope = model.pairs[0], model.pairs[1]
    at = 0
    for i in range(n):
        for j in range(i):
            pull[at + j] = (alpha[i] * alpha[j] - inverse[i, j]) * slope[at + j]
        at += i
    sums = np.zeros((scales, n))
    at = 0
    for i in range(n):
        for k in range(len(model.squares)):
            of = min(k, scales - 1)
            for j in range(i):
                sums[of, j] += pull[at + j] * model.squares[k, at + j]
        at += i
    for k in range(scales):
        gradient[k] = 0.0
        for j in range(n):
            gradient[k] += sums[k, j]
