"""Posterior draws straight from the data: `linear.draw_weights` and `draws.pathwise_draw`."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.cholesky import factorise, solve
from fedbo.surrogates.compiled.grid import correlation, waves
from fedbo.surrogates.compiled.jit import FLOAT, INT, MATRIX, VECTOR, compiled
from fedbo.surrogates.compiled.rows import padded

Array = Any


@compiled()
def _products(rows: Array, weights: Array, product: Array) -> None:
    """Return the product of `rows (n, m)` and `weights (m,)`, four rows at a time, each summed in the order of the features."""
    n, m = rows.shape
    whole = n - n % 4
    for a in range(0, whole, 4):
        s, t, u, v = 0.0, 0.0, 0.0, 0.0
        for j in range(m):
            w = weights[j]
            s += w * rows[a, j]
            t += w * rows[a + 1, j]
            u += w * rows[a + 2, j]
            v += w * rows[a + 3, j]
        product[a], product[a + 1], product[a + 2], product[a + 3] = s, t, u, v
    for a in range(whole, n):
        s = 0.0
        for j in range(m):
            s += weights[j] * rows[a, j]
        product[a] = s


@compiled(INT(MATRIX, FLOAT, INT, FLOAT[::1]))
def extend(rows: Array, noise_variance: float, done: int, factor: Array) -> int:
    """Write the upper factor U of Phi Phi' + sigma^2 I to `factor (n (n + 1) / 2,)` by columns, from column `done` on.

    Phi are the feature rows `(n, m)`. Return the number of columns in the factor: fewer than n where rounding leaves no factor.
    A column depends only on those before it, so one more row costs O(n m).
    """
    n, m = rows.shape
    for c in range(done, n):
        at = c * (c + 1) // 2
        column = factor[at : at + c + 1]
        _products(rows[: c + 1], rows[c], column)
        column[c] += noise_variance
        for k in range(c):
            before = k * (k + 1) // 2
            total = column[k]
            for i in range(k):
                total -= factor[before + i] * column[i]
            column[k] = total * (1.0 / factor[before + k])
        for k in range(c):
            column[c] -= column[k] * column[k]
        if not (column[c] > 0.0 and np.isfinite(column[c])):
            return c
        column[c] = sqrt(column[c])
    return len(rows)


@compiled()
def _solve(factor: Array, right: Array) -> None:
    """Turn the right side `(n,)` into (U'U)^-1 times it, U being given by columns."""
    n = len(right)
    for j in range(n):
        at, total = j * (j + 1) // 2, right[j]
        for i in range(j):
            total -= factor[at + i] * right[i]
        right[j] = total / factor[at + j]
    for i in range(n - 1, -1, -1):
        total = right[i]
        for j in range(i + 1, n):
            total -= factor[j * (j + 1) // 2 + i] * right[j]
        right[i] = total / factor[i * (i + 1) // 2 + i]


@compiled(types.void(MATRIX, VECTOR, VECTOR, VECTOR, FLOAT, FLOAT, FLOAT[::1]))
def matheron(rows: Array, y: Array, factor: Array, normals: Array, prior: float, noise: float, omega: Array) -> None:
    """Draw weights `omega (m,)` from the posterior given feature rows `(n, m)` and `y (n,)`, by Matheron's rule.

    The weights are written in place, since returning an array costs two microseconds. `factor` is that of `extend`. Of the
    standard normal draws `(m + n,)` the first m are for the prior and the others for the noise. Their standard deviations are
    `prior` and `noise`.
    """
    n, m = rows.shape
    residual = np.empty(n)
    for j in range(m):
        omega[j] = prior * normals[j]
    for a in range(0, n, 4):
        last = min(a + 4, n)
        for i in range(a, last):
            residual[i] = y[i] - noise * normals[m + i]
        if last < a + 4:
            for i in range(a, last):
                for j in range(m):
                    residual[i] -= omega[j] * rows[i, j]
            continue
        s, t, u, v = residual[a], residual[a + 1], residual[a + 2], residual[a + 3]
        for j in range(m):  # four sums at once, each in the order of the features
            w = omega[j]
            s -= w * rows[a, j]
            t -= w * rows[a + 1, j]
            u -= w * rows[a + 2, j]
            v -= w * rows[a + 3, j]
        residual[a], residual[a + 1], residual[a + 2], residual[a + 3] = s, t, u, v
    _solve(factor, residual)
    for i in range(n):
        for j in range(m):
            omega[j] += residual[i] * rows[i, j]


@compiled(types.void(MATRIX, INT, FLOAT[::1]))
def absorb(rows: Array, done: int, root: Array) -> None:
    """Turn the root R of some Sigma into that of Sigma + Phi'Phi for feature rows `(n, m)` from number `done` on.

    R is upper triangular with R'R = Sigma, given by rows, `(m (m + 1) / 2,)`. Each feature row takes m Givens rotations, so it
    costs O(m^2), and the bits do not depend on how many are added at a time.
    """
    n, m = rows.shape
    new = np.empty(m)
    for i in range(done, n):
        for j in range(m):
            new[j] = rows[i, j]
        at = 0
        for k in range(m):
            width = m - k
            row, rest = root[at : at + width], new[k:]
            length = sqrt(row[0] * row[0] + rest[0] * rest[0])
            c, s = row[0] / length, rest[0] / length
            for j in range(width):
                above, below = row[j], rest[j]
                row[j] = c * above + s * below
                rest[j] = c * below - s * above
            at += width


@compiled()
def _back(root: Array, right: Array) -> None:
    """Turn the right side `(m,)` into R^-1 times it, R being given by rows."""
    m = len(right)
    at = m * (m + 1) // 2
    for k in range(m - 1, -1, -1):
        at -= m - k
        row, known = root[at + 1 : at + m - k], right[k + 1 :]
        whole = len(row) - len(row) % 4
        s, t, u, v = right[k], 0.0, 0.0, 0.0
        for j in range(0, whole, 4):
            s -= row[j] * known[j]
            t -= row[j + 1] * known[j + 1]
            u -= row[j + 2] * known[j + 2]
            v -= row[j + 3] * known[j + 3]
        for j in range(whole, len(row)):
            s -= row[j] * known[j]
        right[k] = ((s + t) + (u + v)) / root[at]


@compiled(types.void(MATRIX, VECTOR, FLOAT[::1], VECTOR, FLOAT, FLOAT, FLOAT[::1]))
def rooted(rows: Array, y: Array, root: Array, normals: Array, noise_variance: float, spread: float, omega: Array) -> None:
    """Draw weights `omega (m,)` from the posterior given feature rows `(n, m)`, `y (n,)` and the root R of Sigma, by rows.

    omega is Sigma^-1 Phi'y - spread R^-1 normals: LAPACK's root, which `linear.draw` uses, is -R. The mean is found by the
    seminormal equations R'R omega = Phi'y and corrected once by its residual. It is then as exact as from an orthogonal
    factorisation, where the condition number of R is well below 1e8 (Bjorck 1987).
    """
    n, m = rows.shape
    step, residual = np.zeros(m), np.empty(n)
    for j in range(m):
        omega[j] = 0.0
    for i in range(n):
        residual[i] = y[i]
    for _ in range(2):
        for j in range(m):
            step[j] = -noise_variance * omega[j]
        for i in range(n):
            for j in range(m):
                step[j] += residual[i] * rows[i, j]
        at = 0
        for k in range(m):
            step[k] /= root[at]
            for j in range(1, m - k):
                step[k + j] -= root[at + j] * step[k]
            at += m - k
        _back(root, step)
        for j in range(m):
            omega[j] += step[j]
        _products(rows, omega, residual)
        for i in range(n):
            residual[i] = y[i] - residual[i]
    for j in range(m):
        step[j] = -spread * normals[j]
    _back(root, step)
    for j in range(m):
        omega[j] += step[j]


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
    """Write (K + sigma^2 I)^-1 (y - f_0(X) - eps) over eps in `residual (n,)`; return the jitter, or -1 without a factor.

    `x (n, d)` are the points and `inverse (d,)` is 1 over the length scale. f_0 has these frequencies, phases and weights
    `(m,)`.
    """
    n, d = x.shape
    covariance, factor, distance = np.zeros((n, padded(n))), np.zeros((n, padded(n))), np.empty(n)
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
