"""Distances between points, and changes of their coordinates, which `algorithms.components.coordinates` describes."""

from __future__ import annotations

from math import asin, expm1, log1p, pi, sin, sqrt
from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.jit import FLOAT, INT, MATRIX, VECTOR, compiled

Array = Any
ARCSINE, STRETCHED, STRETCH = 0, 2, 1000.0
KINDS = types.Array(INT, 1, "C", readonly=True)


@compiled(FLOAT(MATRIX, VECTOR))
def nearest(points: Array, x: Array) -> float:
    """Return the distance of x `(d,)` to the nearest of `points (n, d)`, in the coordinate in which they differ most."""
    least = np.inf
    for i in range(len(points)):
        most = 0.0
        for k in range(len(x)):
            most = max(most, abs(points[i, k] - x[k]))
        least = min(least, most)
    return float(least)


@compiled(types.void(MATRIX, KINDS, FLOAT[:, ::1]))
def into(points: Array, kinds: Array, found: Array) -> None:
    """Write points of the unit cube `(n, d)` in the coordinates of these kinds `(d,)`."""
    for i in range(len(points)):
        for k in range(len(kinds)):
            x = points[i, k]
            if kinds[k] == ARCSINE:
                x = (2.0 / pi) * asin(sqrt(x))
            elif kinds[k] == STRETCHED:
                near = log1p(2.0 * STRETCH * min(x, 1.0 - x)) / (2.0 * log1p(STRETCH))
                x = near if x <= 0.5 else 1.0 - near
            found[i, k] = x


@compiled(types.void(MATRIX, KINDS, FLOAT[:, ::1]))
def back(points: Array, kinds: Array, found: Array) -> None:
    """Write the points of the unit cube that have these coordinates `(n, d)`."""
    for i in range(len(points)):
        for k in range(len(kinds)):
            u = points[i, k]
            if kinds[k] == ARCSINE:
                sine = sin(0.5 * pi * u)
                u = sine * sine
            elif kinds[k] == STRETCHED:
                near = expm1(2.0 * log1p(STRETCH) * min(u, 1.0 - u)) / (2.0 * STRETCH)
                u = near if u <= 0.5 else 1.0 - near
            found[i, k] = u
