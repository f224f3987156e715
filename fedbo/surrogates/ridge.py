"""The inverse of a precision matrix V = lambda I + sum of g g', kept as rows g are added one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.posterior import factorise

Array = npt.NDArray[np.float64]


class Ridge(NamedTuple):
    """V^-1 `(p, p)`, the diagonal `(p,)` of V, and by what V has grown since it was made.

    `volume` is the log of the ratio of the determinants, `width` that of the products of the diagonals.
    """

    inverse: Array
    diagonal: Array
    volume: float = 0.0
    width: float = 0.0


def ridge(precision: Array, regulariser: float) -> Ridge:
    """Return the ridge of lambda I + `precision (p, p)`, a sum of g g'; NotPositiveDefinite for another matrix."""
    matrix = precision.copy()
    matrix.flat[:: len(matrix) + 1] += regulariser
    factor, jitter = factorise(matrix)
    matrix.flat[:: len(matrix) + 1] += jitter
    half = np.tril(scipy.linalg.lapack.dpotri(factor, lower=1)[0])
    return Ridge(np.ascontiguousarray(half + np.tril(half, -1).T), matrix.diagonal().copy())


def updated(before: Ridge, row: Array) -> Ridge:
    """Return the ridge of V + g g' for `row` g `(p,)`; O(p^2) (Sherman and Morrison)."""
    turned = before.inverse @ row
    growth = float(row @ turned)
    scaled = turned / np.sqrt(1.0 + growth)
    squares = row * row
    return Ridge(
        before.inverse - np.outer(scaled, scaled),
        before.diagonal + squares,
        before.volume + float(np.log1p(growth)),
        before.width + float(np.log1p(squares / before.diagonal).sum()),
    )


def norms(rows: Array, inverse: Array) -> Array:
    """Return sqrt(g' V^-1 g) for the `rows (n, p)`, `(n,)`."""
    squares: Array = np.einsum("np,np->n", rows @ inverse, rows)
    return np.sqrt(np.maximum(squares, 0.0))
