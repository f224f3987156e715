"""The fit of hyperparameters: L-BFGS-B on the log posterior density."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.evidence import evidence_of, negative_log_posterior, squares_of
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, compiled
from fedbo.surrogates.compiled.minimise import descend

Array = Any
STARTS = types.Array(FLOAT, 3, "C", readonly=True)


@compiled(BOOL(INT, MATRIX, MATRIX, MATRIX, STARTS, MATRIX, INT, FLOAT[:, ::1], FLOAT[::1]))
def fit(
    family: int, x: Array, values: Array, prior: Array, starts: Array, bounds: Array, most: int, best: Array, density: Array
) -> bool:
    """Write the best end of climbs from each of `starts (k, r, p)` for each of `values (k, n)` to `best (k, p)`.

    The first climb wins a tie. Unless `density (k,)` is empty, it receives the log densities of the values there, without the
    prior. Shapes: `x (d, n)`, `prior (3, p)`, `bounds (p, 2)`. A climb has at most `most` steps.

    Return whether every covariance matrix had a Cholesky factor.
    """
    squares, nothing = squares_of(x), np.zeros(prior.shape)
    for row in range(len(values)):
        model, lowest = evidence_of(family, squares, values[row], prior, bounds), np.inf
        for start in range(starts.shape[1]):
            theta = starts[row, start].copy()
            value = descend(model, theta, most)
            if not value < np.inf:
                return False
            if value < lowest:
                lowest = value
                best[row] = theta
        if len(density):
            alone = evidence_of(family, squares, values[row], nothing, bounds)
            density[row] = -negative_log_posterior(alone, best[row], np.empty(len(bounds)))
    return True
