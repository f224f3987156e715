"""The fit of hyperparameters: L-BFGS-B on the log posterior density."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.surrogates.compiled.evidence import Evidence
from fedbo.surrogates.compiled.jit import FLOAT, INT, MATRIX, VECTOR, compiled
from fedbo.surrogates.compiled.minimise import descend

Array = Any


@compiled(FLOAT(INT, MATRIX, VECTOR, MATRIX, MATRIX, MATRIX, INT, FLOAT[::1]))
def fit(family: int, x: Array, y: Array, prior: Array, starts: Array, bounds: Array, most: int, best: Array) -> float:
    """Write the best end of one climb from each of `starts (r, p)` to `best (p,)`; the first one wins a tie.

    Gives minus the log posterior density there, up to a constant; infinite where a covariance matrix has no Cholesky factor.
    `x (d, n)`, `prior (2, p)` and `bounds (p, 2)`; a climb has at most so many steps.
    """
    lowest, room = np.inf, np.empty((5, len(y), len(y)))
    for start in range(len(starts)):
        theta = starts[start].copy()
        value = descend(Evidence(family, x, y, prior, bounds, room), theta, most)
        if not value < np.inf:
            return np.inf
        if value < lowest:
            lowest = value
            best[:] = theta
    return lowest
