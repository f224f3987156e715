"""The maximum of a draw over the unit cube: the compiled `maximise`, from the candidates to the end of the climb."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.ascent import ascent, ascent_one_by_one
from fedbo.surrogates.compiled.grid import add_kernel, largest, norms, peaks, sum_of_products, waves
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, VECTOR, Tuple, compiled
from fedbo.surrogates.compiled.surface import KERNELS, WAVES, Kernels, Waves, derivatives

Array = Any
SETS = Tuple((types.Array(FLOAT, 2, "C"),) * 5)
POINTS, SHAPE, LIMITS = Tuple((MATRIX,) * 4), Tuple((INT,) * 3), Tuple((INT,) * 4)


@compiled(SETS(MATRIX, VECTOR, BOOL, MATRIX, MATRIX))
def tables(frequencies: Array, phases: Array, constant: bool, u: Array, v: Array) -> Any:
    """Return cosine and sine of s.u + b, each `(m, A)`, of s.v, each `(m, B)`; if `constant`, 1 / |cos(s.x + b)|, `(A, B)`."""
    at_u = waves(frequencies, phases, u, 0)
    at_v = waves(frequencies, np.zeros(len(phases)), v, u.shape[1])
    if constant:
        return at_u[0], at_u[1], at_v[0], at_v[1], norms(at_u, at_v)
    return at_u[0], at_u[1], at_v[0], at_v[1], np.ones((1, 1))


@compiled()
def _values(features: Waves, kernels: Kernels, table: Any, u: Array, v: Array) -> Array:
    """Return the values of the draw less its offset at every candidate, `(A B,)`."""
    total = np.zeros((len(u), len(v)))
    if len(features[1]):
        if len(table[0]) == 0:
            table = tables(features[0], features[1], features[3], u, v)
        total = sum_of_products(features[2], (table[0], table[1]), (table[2], table[3]))
        if features[3]:
            total *= table[4]
    if len(kernels[2]):
        inverse, split = kernels[3], u.shape[1]
        add_kernel(total, kernels[0], kernels[1], kernels[2], u * inverse[:split], v * inverse[split:])
    return total.ravel()


@compiled()
def _starts(waves: Waves, kernels: Kernels, values: Array, points: Any, shape: Any, limits: Any) -> Array:
    """Return the most promising candidates, and the best of the further starts, `(k, d)`."""
    u, v, extra, _ = points
    d = u.shape[1] + v.shape[1]
    if shape[0]:
        found = peaks(values, shape, limits[0])
        if len(found) == 0:
            found = np.full((1, 3), 0.5)
    else:
        places, _ = largest(values, limits[0])
        found = np.empty((len(places), d))
        for row in range(len(places)):
            found[row, : u.shape[1]] = u[places[row] // len(v)]
            found[row, u.shape[1] :] = v[places[row] % len(v)]
    more = np.empty(0, np.int64)
    if len(extra):
        at_extra, _, _ = derivatives(waves, kernels, 0.0, np.ascontiguousarray(extra.T))
        more, _ = largest(at_extra, min(limits[1], len(extra)))
    starts = np.empty((len(found) + len(more), d))
    starts[: len(found)] = found[:, :d]
    for row in range(len(more)):
        starts[len(found) + row] = extra[more[row]]
    return starts


@compiled()
def _scattered(waves: Waves, kernels: Kernels, starts: Array, normals: Array, bounds: Array, count: int) -> Array:
    """Return the starts and the best of some points scattered about the first."""
    cloud = np.empty((starts.shape[1], len(normals)))
    for k in range(starts.shape[1]):
        width = min(bounds[k], 0.2)
        for i in range(len(normals)):
            cloud[k, i] = min(max(starts[0, k] + normals[i, k] * width, 0.0), 1.0)
    value, _, _ = derivatives(waves, kernels, 0.0, cloud)
    order, _ = largest(value, max(count, 1))
    more = np.empty((len(order), starts.shape[1]))
    for row in range(len(order)):
        more[row] = cloud[:, order[row]]
    return np.vstack((starts, more))


@compiled(FLOAT(WAVES, KERNELS, FLOAT, SETS, POINTS, SHAPE, VECTOR, LIMITS, FLOAT, FLOAT[::1]))
def maximum(
    waves: Waves,
    kernels: Kernels,
    offset: float,
    table: Any,
    points: tuple[Array, Array, Array, Array],
    shape: tuple[int, int, int],
    bounds: Array,
    limits: tuple[int, int, int, int],
    tolerance: float,
    place: Array,
) -> float:
    """Write the point `(d,)` of the cube where a draw is largest; return its value, or NaN when one is not finite.

    table: the features' `tables`, or empty ones.
    points: U `(A, d_u)`, V `(B, d_v)`, further starts `(e, d)`, and normal draws `(c, d)` for candidates near the best one.
    shape: the shape of the grid, all 0 without a grid.
    limits: the numbers of starts, of further starts, of starts that are climbed one by one, and of iterations.
    """
    values = _values(waves, kernels, table, points[0], points[1])
    for i in range(len(values)):
        if not np.isfinite(values[i]):
            return np.nan
    starts = _starts(waves, kernels, values, points, shape, limits)
    if len(bounds) <= 2 and len(starts) <= limits[2] and len(kernels[2]) == 0:
        return offset + ascent_one_by_one(waves, starts, bounds, tolerance, limits[3], place)
    if len(bounds) > 3:
        starts = _scattered(waves, kernels, starts, points[3], bounds, limits[0] // 8)
    return ascent(waves, kernels, offset, np.ascontiguousarray(starts.T), bounds, tolerance, limits[3], place)
