"""Posterior draws straight from the data: `linear.draw_weights` and `draws.pathwise_draw`."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from fedbo.surrogates.compiled.cholesky import factorise, solve
from fedbo.surrogates.compiled.grid import correlation, waves
from fedbo.surrogates.compiled.jit import FLOAT, INT, MATRIX, VECTOR, compiled

Array = Any


@compiled(FLOAT(MATRIX, VECTOR, FLOAT, FLOAT[::1], VECTOR))
def matheron(rows: Array, y: Array, noise_variance: float, omega: Array, noise: Array) -> float:
    """Turn a prior draw `omega (m,)` into one from the posterior given feature rows `(n, m)` and `y (n,)`, by Matheron's rule.

    `noise (n,)` is a draw of the noise. Gives the jitter, and leaves the draw as it is unless that is 0.
    """
    n, m = rows.shape
    columns, gram, factor = np.empty((m, n)), np.zeros((n, n)), np.empty((n, n))
    for i in range(n):
        for j in range(m):
            columns[j, i] = rows[i, j]
    for j in range(m):
        for i in range(n):
            weight = columns[j, i]
            for k in range(i, n):
                gram[i, k] += weight * columns[j, k]
    for i in range(n):
        gram[i, i] += noise_variance
    jitter = factorise(gram, factor)
    if jitter != 0.0:
        return jitter
    residual = np.empty(n)
    for i in range(n):
        residual[i] = y[i] - noise[i]
    for j in range(m):
        for i in range(n):
            residual[i] -= omega[j] * columns[j, i]
    solve(factor, residual)
    for i in range(n):
        for j in range(m):
            omega[j] += residual[i] * rows[i, j]
    return 0.0


@compiled(FLOAT(INT, MATRIX, VECTOR, VECTOR, FLOAT, FLOAT, MATRIX, VECTOR, VECTOR, FLOAT[::1]))
def pathwise(
    family: int,
    x: Array,
    y: Array,
    inverse: Array,
    variance: float,
    noise_variance: float,
    frequencies: Array,
    phases: Array,
    weights: Array,
    residual: Array,
) -> float:
    """Write (K + sigma^2 I)^-1 (y - f_0(X) - eps) where `residual (n,)` has eps; gives the jitter, or -1 without a factor.

    `x (n, d)` are the points, `inverse (d,)` is 1 over the length scale; f_0 has these frequencies, phases and weights `(m,)`.
    """
    n, d = x.shape
    covariance, factor, distance = np.empty((n, n)), np.empty((n, n)), np.empty(n)
    for i in range(n):
        for j in range(i + 1, n):
            distance[j] = 0.0
        for k in range(d):
            for j in range(i + 1, n):
                distance[j] += ((x[i, k] - x[j, k]) * inverse[k]) ** 2
        for j in range(i + 1, n):
            covariance[i, j] = variance * correlation(family, distance[j])
        covariance[i, i] = variance + noise_variance
    jitter = factorise(covariance, factor)
    if jitter < 0.0:
        return jitter
    cosine, _ = waves(frequencies, phases, x, 0)
    level = sqrt(2.0 * variance / len(phases))
    for i in range(n):
        residual[i] = y[i] - residual[i]
    for j in range(len(phases)):
        for i in range(n):
            residual[i] -= level * weights[j] * cosine[j, i]
    solve(factor, residual)
    return jitter
