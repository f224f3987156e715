"""The fit of hyperparameters: L-BFGS-B on the log posterior density."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.surrogates.compiled.evidence import evidence_of, negative_log_posterior, squares_of
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, compiled
from fedbo.surrogates.compiled.minimise import descend

Array = Any


@compiled(BOOL(INT, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX, INT, FLOAT[:, ::1], FLOAT[::1]))
def fit(
    family: int,
    x: Array,
    values: Array,
    common: Array,
    prior: Array,
    starts: Array,
    bounds: Array,
    most: int,
    best: Array,
    density: Array,
) -> bool:
    """Write the best end of climbs for each of `values (k, n)` to `best (k, p)`.

    For the first values they begin at `starts (r, p)`, and the first climb wins a tie. For the others the one climb begins
    where the best one for the values before ended. Shapes: `x (d, n)`, `common (n, n)` or `(0, 0)`, `prior (3, p)`,
    `bounds (p, 2)`. A climb has at most `most` steps.

    Unless `density (k,)` is empty, the log densities of the values there, without the prior, are added to what it holds. Once
    that falls from one to the next, the others are left out, and have -inf.

    Return whether every covariance matrix had a Cholesky factor.
    """
    squares, nothing = squares_of(x), np.zeros(prior.shape)
    for row in range(len(values)):
        model, lowest = evidence_of(family, squares, values[row], prior, bounds, common), np.inf
        for start in range(len(starts) if row == 0 else 1):
            theta = starts[start].copy() if row == 0 else best[row - 1].copy()
            value = descend(model, theta, most)
            if not value < np.inf:
                return False
            if value < lowest:
                lowest = value
                best[row] = theta
        if len(density):
            alone = evidence_of(family, squares, values[row], nothing, bounds, common)
            density[row] -= negative_log_posterior(alone, best[row], np.empty(len(bounds)))
            if row and density[row] < density[row - 1]:
                density[row + 1 :] = -np.inf
                break
    return True
