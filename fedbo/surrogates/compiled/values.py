"""Values and derivatives of a draw at many points at once: `draws.value`, with gradients and Hessians."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.elementary import cosine, exponential
from fedbo.surrogates.compiled.grid import MATERN32, SE, to_covariances
from fedbo.surrogates.compiled.jit import FLOAT, INT, MATRIX, VECTOR, Tuple, compiled
from fedbo.surrogates.compiled.surface import KERNELS, WAVES, Derivatives, Kernels, Waves, derivatives

Array = Any
AT_ONCE = 256  # points whose numbers stay in the processor's cache


@compiled()
def _add_waves(waves: Waves, x: Array, total: Array) -> None:
    """Add the sum over the features, at points `x (d, k)`."""
    frequencies, phases, weights, constant = waves
    d, count = x.shape
    angle, norm = np.empty(count), np.zeros(count)
    for j in range(len(phases)):
        for i in range(count):
            angle[i] = phases[j]
        for k in range(d):
            for i in range(count):
                angle[i] += frequencies[j, k] * x[k, i]
        for i in range(count):
            angle[i] = cosine(angle[i])
        for i in range(count):
            total[i] += weights[j] * angle[i]
        if constant:
            for i in range(count):
                norm[i] += angle[i] * angle[i]
    if constant:
        for i in range(count):
            total[i] /= sqrt(norm[i])


@compiled()
def _add_kernels(kernels: Kernels, x: Array, total: Array) -> None:
    """Add the sum over the centres of a kernel, at points `x (d, k)`."""
    family, centres, weights, inverse = kernels
    d, count = x.shape
    scaled, squares = np.empty((d, count)), np.empty(count)
    for k in range(d):
        for i in range(count):
            scaled[k, i] = x[k, i] * inverse[k]
    for j in range(len(weights)):
        for i in range(count):
            squares[i] = 0.0
        for k in range(d):
            for i in range(count):
                apart = scaled[k, i] - centres[j, k]
                squares[i] += apart * apart
        _add_correlations(family, weights[j], squares, total)


@compiled()
def _add_correlations(family: int, weight: float, squares: Array, total: Array) -> None:
    """Add a weight times the correlation at these squared distances `(k,)`, over the length scale."""
    if family == SE:
        for i in range(len(total)):
            total[i] += weight * exponential(-0.5 * squares[i])
    elif family == MATERN32:
        for i in range(len(total)):
            r = sqrt(3.0) * sqrt(squares[i])
            total[i] += weight * ((1.0 + r) * exponential(-r))
    else:
        for i in range(len(total)):
            r = sqrt(5.0) * sqrt(squares[i])
            total[i] += weight * ((1.0 + r + r * r / 3.0) * exponential(-r))


@compiled(FLOAT[::1](WAVES, KERNELS, FLOAT, MATRIX))
def values(waves: Waves, kernels: Kernels, offset: float, x: Array) -> Array:
    """Return values `(n,)` at points `x (n, d)`."""
    count, d = x.shape
    total = np.empty(count)
    for first in range(0, count, AT_ONCE):
        size = min(AT_ONCE, count - first)
        points, part = np.empty((d, size)), np.zeros(size)
        for k in range(d):
            for i in range(size):
                points[k, i] = x[first + i, k]
        _add_waves(waves, points, part)
        _add_kernels(kernels, points, part)
        for i in range(size):
            total[first + i] = part[i] + offset
    return total


@compiled(types.void(INT, MATRIX, MATRIX, VECTOR, FLOAT, FLOAT[:, ::1]))
def covariances(family: int, x: Array, z: Array, inverse: Array, variance: float, found: Array) -> None:
    """Write the covariances `(n, m)` of `x (n, d)` with `z (m, d)`; `inverse (d,)` is 1 over the length scales."""
    count, d = z.shape
    turned = np.empty((d, count))
    for k in range(d):
        for j in range(count):
            turned[k, j] = z[j, k] * inverse[k]
    for i in range(len(x)):
        row = found[i]
        for j in range(count):
            row[j] = 0.0
        for k in range(d):
            at = x[i, k] * inverse[k]
            for j in range(count):
                row[j] += (at - turned[k, j]) * (at - turned[k, j])
        to_covariances(family, variance, row)


@compiled(Tuple((FLOAT[::1], FLOAT[:, ::1], FLOAT[:, :, ::1]))(WAVES, KERNELS, FLOAT, MATRIX))
def derivatives_at(waves: Waves, kernels: Kernels, offset: float, x: Array) -> Derivatives:
    """Return value `(n,)`, gradient `(n, d)` and Hessian `(n, d, d)` at points `x (n, d)`."""
    value, gradient, hessian = derivatives(waves, kernels, offset, np.ascontiguousarray(x.T))
    return value, np.ascontiguousarray(gradient.T), np.ascontiguousarray(hessian.T)
