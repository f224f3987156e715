"""The maximum of an acquisition over the unit cube: the best of many candidates, and climbs by L-BFGS-B from some of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.surrogates.compiled.grid import largest
from fedbo.surrogates.compiled.improvement import Acquisition, acquisition, negative_acquisition
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, VECTOR, Tuple, compiled
from fedbo.surrogates.compiled.minimise import descend

Array = Any
PROCESS = Tuple((INT, MATRIX, VECTOR, FLOAT, VECTOR, MATRIX, MATRIX))
CRITERION = Tuple((FLOAT, BOOL, MATRIX))


@compiled()
def _model(process: Any, criterion: Any, bounds: Array) -> Acquisition:
    family, centres, inverse, variance, alpha, root, turned = process
    room = np.empty((6, len(alpha)))
    level, bounding, guides = criterion
    return Acquisition(family, centres, inverse, variance, alpha, root, turned, level, bounding, bounds, room, guides)


@compiled(FLOAT(PROCESS, CRITERION, MATRIX, VECTOR, FLOAT[::1]))
def value_and_gradient(process: Any, criterion: Any, bounds: Array, x: Array, gradient: Array) -> float:
    """Return the acquisition at `x (d,)`; write its gradient `(d,)`."""
    value = -negative_acquisition(_model(process, criterion, bounds), x, gradient)
    for k in range(len(x)):
        gradient[k] = -gradient[k]
    return value


@compiled(FLOAT(PROCESS, CRITERION, MATRIX, MATRIX, MATRIX, Tuple((INT, INT, INT)), FLOAT[::1]))
def climb(process: Any, criterion: Any, bounds: Array, far: Array, near: Array, limits: Any, best: Array) -> float:
    """Write the highest end `(d,)` of climbs from the best of the candidates `far (a, d)` and `near (b, d)`; its value, or NaN.

    `limits` are the numbers of climbs from the one and from the other, and of steps of a climb; `bounds (d, 2)` those of the
    cube.
    """
    model, highest = _model(process, criterion, bounds), -np.inf
    for points, count in ((far, limits[0]), (near, limits[1])):
        values = np.empty(len(points))
        for i in range(len(points)):
            values[i] = acquisition(model, points[i])[0]
            if not np.isfinite(values[i]):
                return np.nan
        places, tops = largest(values, min(count, len(points)))
        for i in range(len(places)):
            x = points[places[i]].copy()
            top = -descend(model, x, limits[2])
            if not np.isfinite(top):
                x, top = points[places[i]].copy(), tops[i]
            if top > highest:
                highest = top
                best[:] = x
    return highest
