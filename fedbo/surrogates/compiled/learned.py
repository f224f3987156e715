"""Mean and variance of a Gaussian process with a learned mean and directions, with gradients, at many points.

The process is that of `algorithms.learned_prior.learned_prior`. Loops run over the points, so that they are vectorised.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.elementary import exponential
from fedbo.surrogates.compiled.jit import FLOAT, MATRIX, VECTOR, Tuple, compiled

Array = Any
AT_ONCE = 256  # points whose numbers stay in the processor's cache
LEARNED, RESIDUAL = Tuple((MATRIX, FLOAT, MATRIX, VECTOR, MATRIX, FLOAT)), Tuple((MATRIX, VECTOR, FLOAT, VECTOR, MATRIX))


@compiled()
def _squares(points: Array, at: Array) -> Array:
    """Return the squared distances of `points (d, m)` to `at (d, b)`, `(m, b)`."""
    total = np.zeros((points.shape[1], at.shape[1]))
    for i in range(len(total)):
        for k in range(len(at)):
            for j in range(at.shape[1]):
                total[i, j] += (at[k, j] - points[k, i]) * (at[k, j] - points[k, i])
    return total


@compiled()
def _add_pulls(points: Array, at: Array, inverse: float, weights: Array, k: int, total: Array) -> None:
    """Add the sums of the ways from `at (d, b)` to `points (d, m)` along input k, by `weights (m, b)`, to `total (b,)`."""
    for i in range(len(weights)):
        for j in range(len(total)):
            total[j] += inverse * weights[i, j] * (points[k, i] - at[k, j])


@compiled(types.void(LEARNED, RESIDUAL, MATRIX, FLOAT[:, ::1], FLOAT[:, :, ::1]))
def predict(prior: Any, residual: Any, points: Array, moments: Array, gradients: Array) -> None:
    """Write mean and variance `(2, c)` at `points (d, c)`, and their gradients `(2, d, c)` unless there is no room for them.

    prior: the design `(d, M)` and 1, both over its length scale; coefficients of the mean and of r directions `(1 + r, M)`;
      those of the posterior mean `(M,)`; the directions at the observed points `(n, r)`; tau.
    residual: the observed points `(d, n)` over its length scales, and 1 over them `(d,)`; its variance; the solve of the values
      `(n,)`; the inverse of the lower Cholesky factor `(n, n)`.
    """
    design, inverse, coefficients, of_mean, known, tau = prior
    centres, inverses, level, alpha, root = residual
    for first in range(0, points.shape[1], AT_ONCE):
        part = points[:, first : first + AT_ONCE]
        at, own = inverse * part, inverses.reshape(-1, 1) * part
        near, cross = _squares(design, at), _squares(centres, own)
        slope, (n, size) = np.empty_like(cross), cross.shape
        for i in range(len(near)):
            for j in range(size):
                near[i, j] = exponential(-0.5 * near[i, j])
        for i in range(n):
            for j in range(size):
                u = sqrt(5.0) * sqrt(cross[i, j])
                e = level * exponential(-u)
                cross[i, j], slope[i, j] = (1.0 + u + u * u / 3.0) * e, (5.0 / 3.0) * (1.0 + u) * e
        rows = np.dot(coefficients, near)
        cross += np.dot(tau * known, rows[1:])
        scaled, mean, variance = np.dot(root, cross), rows[0], np.full(size, level)
        for k in range(1, len(rows)):
            variance += tau * rows[k] * rows[k]
        for i in range(n):
            mean += alpha[i] * cross[i]
            variance -= scaled[i] * scaled[i]
        moments[0, first : first + size], moments[1, first : first + size] = mean, np.maximum(variance, 0.0)
        if not gradients.shape[1]:
            continue
        solved = np.dot(root.T, scaled)
        of_variance = near * np.dot(coefficients[1:].T, 2.0 * tau * (rows[1:] - np.dot(known.T, solved)))
        near *= of_mean.reshape(-1, 1)
        solved *= -2.0 * slope
        slope *= alpha.reshape(-1, 1)
        for k in range(len(points)):
            for which, of_design, of_points in ((0, near, slope), (1, of_variance, solved)):
                total = gradients[which, k, first : first + size]
                _add_pulls(design, at, inverse, of_design, k, total)
                _add_pulls(centres, own, inverses[k], of_points, k, total)
