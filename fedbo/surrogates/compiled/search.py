"""The search for the highest point of an acquisition: candidates, and climbs within the unit cube by L-BFGS-B."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.surrogates.compiled.grid import largest
from fedbo.surrogates.compiled.improvement import Acquisition, acquisition, negative_acquisition
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, VECTOR, Tuple, compiled
from fedbo.surrogates.compiled.minimise import descend

Array = Any
TOLERANCE = 1e-6  # of the gain of a step, which ends a climb
PROCESS = Tuple((INT, MATRIX, VECTOR, FLOAT, VECTOR, MATRIX, MATRIX))
CRITERION = Tuple((FLOAT, BOOL))


@compiled()
def _model(process: Any, criterion: Any, bounds: Array) -> Acquisition:
    family, centres, inverse, variance, alpha, root, turned = process
    room = np.empty((6, len(alpha)))
    level, bounding = criterion
    return Acquisition(family, centres, inverse, variance, alpha, root, turned, level, bounding, bounds, room)


@compiled(FLOAT(PROCESS, CRITERION, MATRIX, VECTOR, FLOAT[::1]))
def value_and_gradient(process: Any, criterion: Any, bounds: Array, x: Array, gradient: Array) -> float:
    """Return the acquisition at `x (d,)`; write its gradient `(d,)`."""
    value = -negative_acquisition(_model(process, criterion, bounds), x, gradient)
    for k in range(len(x)):
        gradient[k] = -gradient[k]
    return value


@compiled(FLOAT(PROCESS, CRITERION, MATRIX, MATRIX, Tuple((INT,) * 3), FLOAT[::1]))
def climb(process: Any, criterion: Any, bounds: Array, points: Array, limits: tuple[int, int, int], best: Array) -> float:
    """Write the highest end `(d,)` of climbs within `bounds (d, 2)` from the best of `points (c, d)`; return its value.

    limits: how many of the points are of a first kind, from how many of each kind a climb begins, and its most steps.

    A climb that ends at a value that is not finite stays at its start. Return NaN, and write nothing, when the value of a point
    is not finite.
    """
    model, highest, values = _model(process, criterion, bounds), -np.inf, np.empty(len(points))
    for i in range(len(points)):
        values[i] = acquisition(model, points[i])[0]
        if not np.isfinite(values[i]):
            return np.nan
    for kind in range(2):
        first = limits[0] if kind else 0
        places, _ = largest(values[first:] if kind else values[: limits[0]], limits[1])
        for place in places:
            start = first + place
            x = points[start].copy()
            top = -descend(model, x, limits[2], TOLERANCE)
            if not np.isfinite(top):
                x, top = points[start].copy(), values[start]
            if top > highest:
                highest = top
                best[:] = x
    return highest
