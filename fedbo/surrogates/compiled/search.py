"""The search for the highest point of an acquisition: candidates, and climbs within the unit cube by L-BFGS-B."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.grid import largest, to_covariances
from fedbo.surrogates.compiled.improvement import Acquisition, acquisition
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, VECTOR, Tuple, compiled
from fedbo.surrogates.compiled.minimise import descend

Array = Any
AT_ONCE = 256  # points whose covariances stay in the processor's cache
TOLERANCE = 1e-6  # of the gain of a step, which ends a climb
PROCESS = Tuple((INT, MATRIX, VECTOR, FLOAT, VECTOR, MATRIX, MATRIX))
CRITERION = Tuple((FLOAT, BOOL))


@compiled()
def _model(process: Any, criterion: Any, bounds: Array) -> Acquisition:
    family, centres, inverse, variance, alpha, root, turned = process
    room = np.empty((6, len(alpha)))
    level, bounding = criterion
    return Acquisition(family, centres, inverse, variance, alpha, root, turned, level, bounding, bounds, room)


@compiled(types.void(PROCESS, CRITERION, MATRIX, FLOAT[::1]))
def values(process: Any, criterion: Any, points: Array, found: Array) -> None:
    """Write the acquisition at `points (c, d)` to `found (c,)`."""
    family, centres, inverse, prior, alpha, root, _ = process
    for first in range(0, len(points), AT_ONCE):
        at = np.ascontiguousarray((points[first : first + AT_ONCE] * inverse).T)
        cross = np.zeros((len(alpha), at.shape[1]))
        for i in range(len(alpha)):
            for k in range(len(at)):
                for j in range(at.shape[1]):
                    cross[i, j] += (at[k, j] - centres[k, i]) * (at[k, j] - centres[k, i])
            to_covariances(family, prior, cross[i])
        mean, scaled, variance = np.dot(alpha, cross), np.dot(root, cross), np.full(at.shape[1], prior)
        for i in range(len(alpha)):
            variance -= scaled[i] * scaled[i]
        for j in range(at.shape[1]):
            found[first + j] = acquisition(criterion[0], criterion[1], mean[j], max(variance[j], 0.0))[0]


@compiled(FLOAT(PROCESS, CRITERION, MATRIX, MATRIX, Tuple((INT,) * 3), FLOAT[::1]))
def climb(process: Any, criterion: Any, bounds: Array, points: Array, limits: tuple[int, int, int], best: Array) -> float:
    """Write the highest end `(d,)` of climbs within `bounds (d, 2)` from the best of `points (c, d)`; return its value.

    limits: how many of the points are of a first kind, from how many of each kind a climb begins, and its most steps.

    A climb that ends at a value that is not finite stays at its start. Return NaN, and write nothing, when the value of a point
    is not finite.
    """
    model, highest, found = _model(process, criterion, bounds), -np.inf, np.empty(len(points))
    values(process, criterion, points, found)
    if not np.isfinite(found).all():
        return np.nan
    for kind in range(2):
        first = limits[0] if kind else 0
        places, _ = largest(found[first:] if kind else found[: limits[0]], limits[1])
        for place in places:
            start = first + place
            x = points[start].copy()
            top = -descend(model, x, limits[2], TOLERANCE)
            if not np.isfinite(top):
                x, top = points[start].copy(), found[start]
            if top > highest:
                highest = top
                best[:] = x
    return highest
