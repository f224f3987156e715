"""Posterior draws on shared features, their maxima and distances for a block of agents, each with separate arrays."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.distance import nearest
from fedbo.surrogates.compiled.draws import absorb, extend, matheron, rooted
from fedbo.surrogates.compiled.elementary import cosine as cosine_of
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, VECTOR, Tuple, compiled
from fedbo.surrogates.compiled.maximise import LIMITS, POINTS, SETS, SHAPE, maximum

Array = Any
FEATURES = Tuple((MATRIX, VECTOR, FLOAT, BOOL))  # frequencies (m, d), phases (m,), variance, whether |phi(x)| is constant
SCALING = Tuple((FLOAT, BOOL))
COUNTS = types.Array(INT, 1, "C", readonly=True)
DATA, PLACES = Tuple((MATRIX, VECTOR)), Tuple((COUNTS,) * 3)


@compiled()
def _squares(vector: Array) -> float:
    """Return the sum of squares, as eight sums of every eighth number."""
    m = len(vector)
    whole = m - m % 8
    a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(0, whole, 8):
        a += vector[j] * vector[j]
        b += vector[j + 1] * vector[j + 1]
        c += vector[j + 2] * vector[j + 2]
        d += vector[j + 3] * vector[j + 3]
        e += vector[j + 4] * vector[j + 4]
        f += vector[j + 5] * vector[j + 5]
        g += vector[j + 6] * vector[j + 6]
        h += vector[j + 7] * vector[j + 7]
    for j in range(whole, m):
        a += vector[j] * vector[j]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@compiled(types.void(FEATURES, MATRIX, FLOAT[:, ::1]))
def feature_rows(features: Any, points: Array, rows: Array) -> None:
    """Write the feature rows `(n, m)` of points `(n, d)`: `features.phi`."""
    frequencies, phases, variance, constant = features
    m, d = frequencies.shape
    turned, cosine = np.ascontiguousarray(frequencies.T), np.empty(m)
    for i in range(len(points)):
        for j in range(m):
            cosine[j] = phases[j]
        for k in range(d):
            x = points[i, k]
            for j in range(m):
                cosine[j] += turned[k, j] * x
        for j in range(m):
            cosine[j] = cosine_of(cosine[j])
        level = sqrt(variance / _squares(cosine)) if constant else sqrt(2.0 * variance / m)
        for j in range(m):
            rows[i, j] = level * cosine[j]


@compiled(FLOAT(FLOAT[::1], FLOAT, BOOL))
def scale(y: Array, clip: float, standardise: bool) -> float:
    """Raise values `(n,)` to their quantile `clip`, optionally scale them to mean 0 and variance 1; return the divisor."""
    n = len(y)
    if n == 0:
        return 1.0
    if clip > 0.0:
        least = np.sort(y)[int(clip * (n - 1))]
        for i in range(n):
            y[i] = max(y[i], least)
    if not standardise:
        return 1.0
    mean, squares = 0.0, 0.0
    for i in range(n):
        mean += y[i]
    mean /= n
    for i in range(n):
        y[i] -= mean
        squares += y[i] * y[i]
    spread = sqrt(squares / n)
    if spread == 0.0:
        return 1.0
    for i in range(n):
        y[i] /= spread
    return spread


@compiled(types.void(FEATURES, SCALING, FLOAT, DATA, PLACES, VECTOR, VECTOR, FLOAT[::1], INT[::1], FLOAT[:, ::1], FLOAT[::1]))
def draw_weights(
    features: Any,
    scaling: Any,
    noise_variance: float,
    data: Any,
    places: Any,
    normals: Array,
    beta: Array,
    factors: Array,
    known: Array,
    omega: Array,
    spread: Array,
) -> None:
    """Write the weights `omega (k, m)` of a draw for each agent that a factor can serve.

    data: points `(r, d)` and values `(r,)` of all agents, which are scaled as `scaling` says.
    places: where an agent's data begins, its number n of observations, and where its factor begins in `factors`, each `(k,)`.
    normals: the normal draws of one agent after another.
    beta `(k,)`: the width of the draw over that of the posterior.
    known `(k,)`: the number of observations that each agent's factor holds, at most n; afterwards the new one. A factor of m
        and more is the root of Sigma, by rows.
    spread `(k,)`: written, what the values were divided by.

    An agent ends with fewer than n where rounding leaves no factor, or a number is not finite. It then gets no weights.
    """
    x, y = data
    begins, counts, places_of_factors = places
    m, most, drawn = omega.shape[1], 1, 0
    for a in range(len(counts)):
        most = max(most, counts[a])
    rows, values = np.empty((most, m)), np.empty(most)
    for a in range(len(counts)):
        n, first, new = counts[a], begins[a], places_of_factors[a]
        own = values[:n]
        for i in range(n):
            own[i] = y[first + i]
        spread[a] = scale(own, scaling[0], scaling[1])
        feature_rows(features, x[first : first + n], rows[:n])
        if n >= m:
            root, at = factors[new : new + m * (m + 1) // 2], 0
            if known[a] < m:
                known[a], root[:] = 0, 0.0
                for k in range(m):
                    root[at] = sqrt(noise_variance)
                    at += m - k
            absorb(rows[:n], known[a], root)
            rooted(rows[:n], own, root, normals[drawn : drawn + m], noise_variance, beta[a] * sqrt(noise_variance), omega[a])
            known[a] = n if np.isfinite(omega[a].sum()) else 0
        else:
            factor = factors[new : new + n * (n + 1) // 2]
            known[a] = extend(rows[:n], noise_variance, known[a], factor)
            if known[a] == n:
                some, wide = normals[drawn : drawn + m + n], beta[a]
                matheron(rows[:n], own, factor, some, wide, wide * sqrt(noise_variance), omega[a])
            drawn += n
        drawn += m


@compiled(FLOAT(FEATURES, MATRIX, SETS, POINTS, SHAPE, VECTOR, LIMITS, FLOAT, FLOAT[:, ::1]))
def maxima(
    features: Any,
    omega: Array,
    table: Any,
    points: Any,
    shape: Any,
    bounds: Array,
    limits: Any,
    tolerance: float,
    places: Array,
) -> float:
    """Write the points `(k, d)` where functions with weights `omega (k, m)` are largest; 0, or NaN when one is not finite."""
    frequencies, phases, variance, constant = features
    level = sqrt(variance) if constant else sqrt(2.0 * variance / len(phases))
    none = 0, np.empty((0, len(bounds))), np.empty(0), np.ones(len(bounds))
    for a in range(len(omega)):
        waves = frequencies, phases, omega[a] * level, constant
        if np.isnan(maximum(waves, none, 0.0, table, points, shape, bounds, limits, tolerance, places[a])):
            return np.nan
    return 0.0


@compiled(types.void(MATRIX, COUNTS, COUNTS, MATRIX, FLOAT[::1]))
def distances(points: Array, begins: Array, counts: Array, x: Array, found: Array) -> None:
    """Write the distance of each point of `x (k, d)` to the nearest of its agent's: `counts[a]` points from `begins[a]` on."""
    for a in range(len(counts)):
        found[a] = nearest(points[begins[a] : begins[a] + counts[a]], x[a])
