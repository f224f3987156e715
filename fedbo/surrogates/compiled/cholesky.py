"""Cholesky factors with the jitter ladder of `posterior.factorise`, and linear solves with them."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from fedbo.surrogates.compiled.jit import compiled
from fedbo.surrogates.compiled.rows import WIDTH, add_rows

Array = Any
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)


@compiled()
def factorise(matrix: Array, factor: Array) -> float:
    """Write the upper factor U, U'U = matrix + jitter I, of a matrix stored above its diagonal; both `(n, w)`.

    The width w is `padded(n)`, here and below. Entries below the diagonal and beyond column n have no meaning, but should begin
    as 0: whatever memory holds may be so small a number that a product with it takes a hundred times as long. Return the
    jitter, or -1 at the top of the ladder or when a number is not finite.
    """
    n, level = len(matrix), 0.0
    for i in range(n):
        level += matrix[i, i]
    level /= max(n, 1)
    if not np.isfinite(level):
        return -1.0
    for rung in JITTERS:
        if _factorise(matrix, rung * level, factor):
            return rung * level
    return -1.0


@compiled()
def _factorise(matrix: Array, jitter: float, factor: Array) -> bool:
    n = len(matrix)
    for i in range(n):
        for j in range(i // WIDTH * WIDTH, n):
            factor[i, j] = matrix[i, j]
        factor[i, i] += jitter
        for at in range(i // WIDTH * WIDTH, n, WIDTH):
            add_rows(factor, factor, factor, (i, i, 0, i, at), True)
        if not factor[i, i] > 0.0:
            return False
        factor[i, i] = sqrt(factor[i, i])
        inverse = 1.0 / factor[i, i]
        for j in range(i + 1, n):
            factor[i, j] *= inverse
    return True


@compiled()
def solve(factor: Array, right: Array) -> None:
    """Turn the right side `(n,)` into (U'U)^-1 times it."""
    n = len(right)
    for i in range(n):
        right[i] /= factor[i, i]
        for j in range(i + 1, n):
            right[j] -= factor[i, j] * right[i]
    for i in range(n - 1, -1, -1):
        total = right[i]
        for j in range(i + 1, n):
            total -= factor[i, j] * right[j]
        right[i] = total / factor[i, i]


@compiled()
def invert(factor: Array, root: Array, inverse: Array) -> None:
    """Write U'^-1, lower triangular, to `root`, and the lower half of (U'U)^-1 to `inverse`, each `(n, w)`."""
    n = len(factor)
    for i in range(n):
        root[i] = 0.0
        root[i, i] = 1.0
        for at in range(0, i + 1, WIDTH):
            add_rows(root, factor, root, (i, i, at, i, at), True)
        scale = 1.0 / factor[i, i]
        for j in range(i + 1):
            root[i, j] *= scale
    for i in range(n):
        inverse[i] = 0.0
        for at in range(0, i + 1, WIDTH):
            add_rows(inverse, root, root, (i, i, i, n, at), False)
