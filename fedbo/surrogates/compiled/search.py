"""Climbs of an acquisition within the unit cube by L-BFGS-B."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.surrogates.compiled.improvement import Acquisition, acquisition, negative_acquisition
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, VECTOR, Tuple, compiled
from fedbo.surrogates.compiled.minimise import descend

Array = Any
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


@compiled(FLOAT(PROCESS, CRITERION, MATRIX, MATRIX, INT, FLOAT[::1]))
def climb(process: Any, criterion: Any, bounds: Array, starts: Array, most: int, best: Array) -> float:
    """Write the highest end `(d,)` of climbs from `starts (r, d)` within `bounds (d, 2)`, of at most so many steps; its value.

    A climb that ends at a value that is not finite stays at its start.
    """
    model, highest = _model(process, criterion, bounds), -np.inf
    for i in range(len(starts)):
        x = starts[i].copy()
        top = -descend(model, x, most)
        if not np.isfinite(top):
            x = starts[i].copy()
            top = acquisition(model, x)[0]
        if top > highest:
            highest = top
            best[:] = x
    return highest
