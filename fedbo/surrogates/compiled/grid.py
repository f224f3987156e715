"""Values of a draw at all candidates, and the most promising of them."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from fedbo.surrogates.compiled.elementary import exponential, sine_cosine
from fedbo.surrogates.compiled.jit import compiled

Array = Any  # a NumPy array outside, and Numba's inside
PROMISE = 4.0
SE, MATERN32, MATERN52 = 0, 1, 2


@compiled()
def waves(s: Array, b: Array, points: Array, of: int) -> tuple[Array, Array]:
    """Return cosine and sine of s.x + b at points `(A, d)` of the inputs from number `of` on, each `(m, A)`."""
    m, count = len(b), len(points)
    cosine, sine = np.empty((m, count)), np.empty((m, count))
    for j in range(m):
        for i in range(count):
            cosine[j, i] = b[j]
        for k in range(points.shape[1]):
            for i in range(count):
                cosine[j, i] += s[j, of + k] * points[i, k]
        for i in range(count):
            sine[j, i], cosine[j, i] = sine_cosine(cosine[j, i])
    return cosine, sine


@compiled()
def sum_of_products(weights: Array, u: tuple[Array, Array], v: tuple[Array, Array]) -> Array:
    """Return the sum over features of weights (cos_u cos_v - sin_u sin_v), `(A, B)`."""
    m, rows, columns = len(weights), u[0].shape[1], v[0].shape[1]
    total = np.zeros((rows, columns))
    (cos_u, sin_u), (cos_v, sin_v) = u, v
    for j in range(0, m, 2):
        other = j + 1 if j + 1 < m else j
        w0, w1 = weights[j], weights[other] if other > j else 0.0
        for a in range(rows):
            f0, g0, f1, g1 = w0 * cos_u[j, a], w0 * sin_u[j, a], w1 * cos_u[other, a], w1 * sin_u[other, a]
            for i in range(columns):  # two features at once: a row is read and written half as often
                total[a, i] += (f0 * cos_v[j, i] - g0 * sin_v[j, i]) + (f1 * cos_v[other, i] - g1 * sin_v[other, i])
    return total


@compiled()
def norms(u: tuple[Array, Array], v: tuple[Array, Array]) -> Array:
    """Return 1 / |cos(s.x + b)| at every candidate, `(A, B)`."""
    # |raw phi|^2 = sum cos^2 = m / 2 + sum cos(2 (s.x + b)) / 2, and doubled angles need no new cosines.
    m = len(u[0])
    double_u = 2.0 * u[0] * u[0] - 1.0, 2.0 * u[1] * u[0]
    double_v = 2.0 * v[0] * v[0] - 1.0, 2.0 * v[1] * v[0]
    squares = sum_of_products(np.ones(m), double_u, double_v)
    return 1.0 / np.sqrt(np.maximum(0.5 * (m + squares), 1e-300))


@compiled()
def correlation(family: int, u: float) -> float:
    """Return the correlation of a stationary kernel at the scaled squared distance u."""
    if family == SE:
        return exponential(-0.5 * u)
    if family == MATERN32:
        r = sqrt(3.0) * sqrt(u)
        return (1.0 + r) * exponential(-r)
    r = sqrt(5.0) * sqrt(u)
    return (1.0 + r + r * r / 3.0) * exponential(-r)


@compiled()
def to_covariances(family: int, variance: float, squares: Array) -> None:
    """Turn scaled squared distances `(n,)` into covariances."""
    if family == SE:
        for i in range(len(squares)):
            squares[i] = variance * correlation(SE, squares[i])
    elif family == MATERN32:
        for i in range(len(squares)):
            squares[i] = variance * correlation(MATERN32, squares[i])
    else:
        for i in range(len(squares)):
            squares[i] = variance * correlation(MATERN52, squares[i])


@compiled()
def add_kernel(total: Array, family: int, centres: Array, weights: Array, u: Array, v: Array) -> None:
    """Add k(x, X)weights at every candidate to `total (A, B)`; centres `(n, d)` and points are over the length scale."""
    rows, columns = total.shape
    split = u.shape[1]
    from_u, from_v, factor = np.empty(rows), np.empty(columns), np.empty(columns)
    for i in range(len(centres)):
        for a in range(rows):
            from_u[a] = 0.0
            for k in range(split):
                from_u[a] += (u[a, k] - centres[i, k]) ** 2
        for j in range(columns):
            from_v[j] = 0.0
            for k in range(v.shape[1]):
                from_v[j] += (v[j, k] - centres[i, split + k]) ** 2
        if family == SE:  # it splits into a product
            for j in range(columns):
                factor[j] = exponential(-0.5 * from_v[j])
        for a in range(rows):
            here = from_u[a]
            if family == SE:
                weight = weights[i] * exponential(-0.5 * here)
                for j in range(columns):
                    total[a, j] += weight * factor[j]
            elif family == MATERN32:
                for j in range(columns):
                    total[a, j] += weights[i] * correlation(MATERN32, here + from_v[j])
            else:
                for j in range(columns):
                    total[a, j] += weights[i] * correlation(MATERN52, here + from_v[j])


@compiled()
def largest(values: Array, count: int) -> tuple[Array, Array]:
    """Return the places and values of the `count` largest; ties keep their order."""
    places, top, held = np.empty(count, np.int64), np.empty(count), 0
    for i in range(len(values)):
        value = values[i]
        if held == count and not value > top[count - 1]:
            continue
        place = held if held < count else count - 1
        while place > 0 and value > top[place - 1]:
            top[place], places[place] = top[place - 1], places[place - 1]
            place -= 1
        top[place], places[place] = value, i
        held = min(held + 1, count)
    return places[:held], top[:held]


@compiled()
def _beside(values: Array, i: int, index: int, size: int, stride: int) -> tuple[float, float]:
    """Return the values of the neighbours along an axis, mirrored at its ends."""
    below = i - stride if index > 0 else i + stride
    above = i + stride if index + 1 < size else i - stride
    return values[below], values[above]


@compiled()
def _rise(values: Array, i: int, index: int, size: int, stride: int) -> float:
    """Return an eighth of the curvature at a value along an axis; -1 where one of its neighbours exceeds it."""
    if size == 1:
        return 0.0
    below, above = _beside(values, i, index, size, stride)
    if not (values[i] > below and values[i] >= above):
        return -1.0
    eighth: float = 0.125 * (2.0 * values[i] - below - above)
    return eighth


@compiled()
def peaks(values: Array, shape: tuple[int, int, int], count: int) -> Array:
    """Return points `(q, 3)` of at most `count` peaks of grid values `(s_0 s_1 s_2,)`, refined by one parabola per axis.

    An axis with a single point has coordinate 0.
    """
    size = len(values)
    found, height, promise = np.empty(size, np.int64), np.empty(size), np.empty(size)
    strides = (shape[1] * shape[2], shape[2], 1)
    held, highest, i = 0, -np.inf, -1
    for first in range(shape[0]):
        for second in range(shape[1]):
            for third in range(shape[2]):  # no place is divided by a stride, which took most of the time
                i += 1
                rise = _rise(values, i, first, shape[0], strides[0])
                if rise < 0.0:
                    continue
                more = _rise(values, i, second, shape[1], strides[1])
                if more < 0.0:
                    continue
                last = _rise(values, i, third, shape[2], strides[2])
                if last < 0.0:
                    continue
                found[held], height[held], promise[held] = i, values[i], rise + more + last
                held += 1
                highest = max(highest, values[i])
    # A parabola rises at most an eighth of its bend above the grid; the factor allows for diagonal ridges and higher orders.
    kept = 0
    for i in range(held):
        if height[i] + PROMISE * promise[i] >= highest:
            found[kept], promise[kept] = found[i], height[i] + promise[i]
            kept += 1
    order, _ = largest(promise[:kept], min(count, kept))
    points = np.zeros((len(order), 3))
    for row in range(len(order)):
        i = place = found[order[row]]
        for axis in range(3):
            if shape[axis] == 1:
                continue
            index = place // strides[axis]
            place -= index * strides[axis]
            below, above = _beside(values, i, index, shape[axis], strides[axis])
            bend = 2.0 * values[i] - below - above
            points[row, axis] = (index + (above - below) / max(2.0 * bend, 1e-300)) / (shape[axis] - 1.0)
    return points
