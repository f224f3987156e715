"""A network with one hidden layer of rectified units: its value, its gradient by the weights in closed form, its fit.

f(x) = outer . max(0, inner x + shift) + offset. The weights are one vector `(p,)`, p = w (d + 2) + 1 with w units: inner
(w, d) row by row, shift (w,), outer (w,), offset.

Its gradients are the features g of a ridge regression, which keeps the inverse of V = lambda I + sum of g g'.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.posterior import Diverged, factorise

Array = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """Values at inputs: `x (n, d)`, how many of each, `times (n,)`, and the sums of them, `total (n,)`."""

    x: Array
    times: Array
    total: Array


MOST = 1e60  # no number of a message is larger


def parameters(dim: int, width: int) -> int:
    """Return the number of weights p."""
    return width * (dim + 2) + 1


def _parts(weights: Array, dim: int) -> tuple[Array, Array, Array, float]:
    width = (len(weights) - 1) // (dim + 2)
    split = width * dim
    inner = weights[:split].reshape(width, dim)
    return inner, weights[split : split + width], weights[split + width : -1], float(weights[-1])


def value(weights: Array, x: Array) -> Array:
    """Return the values `(n,)` at the inputs `x (n, d)`."""
    inner, shift, outer, offset = _parts(weights, x.shape[1])
    return np.asarray(np.maximum(x @ inner.T + shift, 0.0) @ outer + offset)


def jacobian(weights: Array, x: Array) -> Array:
    """Return the gradients `(n, p)` of the values at `x (n, d)` by the weights; a unit at exactly 0 counts as off."""
    inner, shift, outer, _ = _parts(weights, x.shape[1])
    active = np.maximum(x @ inner.T + shift, 0.0)
    by_shift = np.where(active > 0.0, outer, 0.0)
    by_inner = (by_shift[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    return np.hstack([by_inner, by_shift, active, np.ones((len(x), 1))])


def empty(dim: int) -> Sample:
    """Return a sample without values, of inputs `(d,)`."""
    return Sample(np.empty((0, dim)), np.empty(0), np.empty(0))


def added(sample: Sample, x: Array, y: float) -> Sample:
    """Add one value at `x (d,)`; a fit needs only the mean and the number of an input's values."""
    same = np.flatnonzero((sample.x == x).all(axis=1))
    if not len(same):
        return Sample(np.vstack([sample.x, x]), np.append(sample.times, 1.0), np.append(sample.total, y))
    times, total = sample.times.copy(), sample.total.copy()
    times[same[0]] += 1.0
    total[same[0]] += y
    return sample._replace(times=times, total=total)


def descend(weights: Array, sample: Sample, steps: int, rate: float, decay: float) -> Array:
    """Return the weights after gradient descent on the mean squared error plus `decay` |weights|^2 / 2; raises Diverged."""
    y, share = sample.total / sample.times, 2.0 * rate * sample.times / sample.times.sum()
    inputs = np.hstack([sample.x, np.ones((len(y), 1))])
    inner, shift, outer, offset = _parts(weights, sample.x.shape[1])
    planes, kept = np.column_stack([inner, shift]), 1.0 - rate * decay
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            active = np.maximum(inputs @ planes.T, 0.0)
            move = share * (active @ outer + (offset - y))
            back = np.where(active > 0.0, move[:, None] * outer, 0.0)
            outer = kept * outer - move @ active
            planes = kept * planes - back.T @ inputs
            offset = kept * offset - float(move.sum())
    weights = np.concatenate([planes[:, :-1].ravel(), planes[:, -1], outer, [offset]])
    if not np.abs(weights).max() <= MOST:
        raise Diverged(f"the network's weights diverge at a learning rate of {rate:g}; use a lower rate, or fewer units")
    return weights


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
