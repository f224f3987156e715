"""The fit of hyperparameters, and of the coordinates of inputs: L-BFGS-B on the log posterior density."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from fedbo.surrogates.compiled.evidence import Evidence, evidence_of, negative_log_posterior, squares_of
from fedbo.surrogates.compiled.jit import BOOL, FLOAT, INT, MATRIX, VECTOR, Tuple, compiled
from fedbo.surrogates.compiled.minimise import descend

Array = Any
FEW = 8  # steps of a climb in other coordinates, after which it is seen whether they are likelier
LIMITS, POINTS = Tuple((INT, FLOAT)), types.Array(FLOAT, 3, "C", readonly=True)
TRIALS = Tuple((types.Array(INT, 1, "C", readonly=True), INT, FLOAT))


@compiled()
def _density(model: Evidence, theta: Array) -> float:
    """Return the log density of the values without the prior."""
    family, squares, y, prior, bounds, common, pairs, room = model
    alone = Evidence(family, squares, y, np.zeros(prior.shape), bounds, common, pairs, room)
    return -negative_log_posterior(alone, theta, np.empty(len(theta)))


@compiled(BOOL(INT, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX, LIMITS, FLOAT[:, ::1], FLOAT[::1]))
def fit(
    family: int,
    x: Array,
    values: Array,
    common: Array,
    prior: Array,
    starts: Array,
    bounds: Array,
    limits: tuple[int, float],
    best: Array,
    density: Array,
) -> bool:
    """Write the best end of climbs for each of `values (k, n)` to `best (k, p)`.

    For the first values they begin at `starts (r, p)`, and the first climb wins a tie. For the others the one climb begins
    where the best one for the values before ended. Shapes: `x (d, n)`, `common (n, n)` or `(0, 0)`, `prior (3, p)`,
    `bounds (p, 2)`. `limits` are the most steps of a climb, and the gain of a step that ends it.

    Unless `density (k,)` is empty, the log densities of the values there, without the prior, are added to what it holds. Once
    that falls from one to the next, the others are left out, and have -inf.

    Return whether every covariance matrix had a Cholesky factor.
    """
    squares, theta = squares_of(x), np.empty(len(bounds))
    for row in range(len(values)):
        model, lowest = evidence_of(family, squares, values[row], prior, bounds, common), np.inf
        for start in range(len(starts) if row == 0 else 1):
            theta[:] = starts[start] if row == 0 else best[row - 1]
            value = descend(model, theta, limits[0], limits[1])
            if not value < np.inf:
                return False
            if value < lowest:
                lowest = value
                best[row] = theta
        if len(density):
            density[row] += _density(model, best[row])
            if row and density[row] < density[row - 1]:
                density[row + 1 :] = -np.inf
                break
    return True


@compiled(FLOAT(INT, POINTS, VECTOR, MATRIX, MATRIX, MATRIX, LIMITS, TRIALS, INT[::1], FLOAT[::1]))
def choose(
    family: int,
    points: Array,
    y: Array,
    common: Array,
    prior: Array,
    bounds: Array,
    limits: tuple[int, float],
    trials: tuple[Array, int, float],
    kinds: Array,
    theta: Array,
) -> float:
    """Try other coordinates for some inputs, one at a time, and keep the likelier ones; return the gain in log density.

    points `(c, d, n)`: the points in each kind of coordinates.
    trials: the inputs to try `(t,)`, the kind that an input has at first, and by how much any other one must be likelier.
    kinds `(d,)`: the kind of each input, which is changed.
    theta `(p,)`: the log hyperparameters with these kinds, as from `fit`, which are changed.
    """
    squares, there = [squares_of(points[kind]) for kind in range(len(points))], theta.copy()
    own = np.empty(squares[0].shape)
    for k in range(len(kinds)):
        own[k] = squares[kinds[k]][k]
    model, (inputs, first, cost) = evidence_of(family, own, y, prior, bounds, common), trials
    begun = density = _density(model, theta)
    for k in inputs:
        for kind in range(len(points)):
            if kind == kinds[k]:
                continue
            own[k], there[:] = squares[kind][k], theta
            needed = density + cost * (int(kind != first) - int(kinds[k] != first))
            if descend(model, there, FEW, limits[1]) < np.inf and _density(model, there) > needed:
                descend(model, there, limits[0], limits[1])
                kinds[k], theta[:], density = kind, there, _density(model, there)
            own[k] = squares[kinds[k]][k]
    return density - begun
