"""Distances between points."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.surrogates.compiled.jit import FLOAT, MATRIX, VECTOR, compiled

Array = Any


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
