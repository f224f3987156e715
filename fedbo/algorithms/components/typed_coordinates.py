"""Coordinates in which a surrogate sees a typed space: categories have no order, and inactive axes have no effect.

A number has one column, in the coordinates of its axis. A category with more than two choices has one column for each, so that
all choices are equally far apart. An inactive axis has its middle value, whatever its default is, so that points without it
agree in it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.surrogates.kernels import LengthScale
from fedbo.surrogates.projected import Lattice
from fedbo.surrogates.trust_region import box

APART = np.sqrt(0.5)  # of a category's columns, so that two choices are as far apart as the ends of a range
MIDDLE = 0.5


@lru_cache(maxsize=64)
def columns(lattice: Lattice) -> tuple[tuple[int, int], ...]:
    """Return the first and the last column, exclusively, of each axis."""
    widths = [count if axis in lattice.unordered and count > 2 else 1 for axis, count in enumerate(lattice.levels)]
    ends = np.cumsum(widths).tolist()
    return tuple((end - width, end) for end, width in zip(ends, widths, strict=True))


def embedded(x: Array, axes: str | tuple[str, ...], lattice: Lattice) -> Array:
    """Turn points of the unit cube `(n, d)` into the surrogate's coordinates `(n, e)`."""
    off, numbers = lattice.inactive(x), np.where(lattice.inactive(x), MIDDLE, to_coordinates(x, axes))
    blocks = []
    for axis, (first, last) in enumerate(columns(lattice)):
        if last - first == 1:
            blocks.append(numbers[:, axis : axis + 1])
            continue
        count = last - first
        block = APART * np.eye(count)[np.minimum((x[:, axis] * count).astype(int), count - 1)]
        block[off[:, axis]] = APART / count
        blocks.append(block)
    return np.hstack(blocks)


def restored(u: Array, axes: tuple[str, ...], lattice: Lattice) -> Array:
    """Turn the surrogate's coordinates `(n, e)` into points of the unit cube `(n, d)`, which need not be projected."""
    blocks = []
    for first, last in columns(lattice):
        count = last - first
        blocks.append(u[:, first] if count == 1 else (u[:, first:last].argmax(axis=1) + 0.5) / count)
    x = np.column_stack(blocks)
    numbers = [axis for axis, (first, last) in enumerate(columns(lattice)) if last - first == 1]
    x[:, numbers] = from_coordinates(x[:, numbers], tuple(axes[axis] for axis in numbers)) if numbers else x[:, numbers]
    return x


def movable(u: Array, axes: tuple[str, ...], lattice: Lattice) -> npt.NDArray[np.bool_]:
    """Return which of the coordinates `(n, e)` are active real numbers."""
    moves, active = np.zeros(u.shape, dtype=np.bool_), ~lattice.inactive(restored(u, axes, lattice))
    for axis, (first, _) in enumerate(columns(lattice)):
        if not lattice.levels[axis]:
            moves[:, first] = active[:, axis]
    return moves


def region(centre: Array, side_length: float, length_scale: LengthScale, lattice: Lattice) -> tuple[Array, Array]:
    """Return the corners `(e,)` of a trust region about a centre `(e,)`; only its active numbers are bounded.

    Whole numbers reach to their neighbours at least.
    """
    low, high = np.zeros(len(centre)), np.ones(len(centre))
    off = lattice.inactive(restored(centre[None, :], ("plain",) * len(lattice.levels), lattice))[0]
    bounded = [axis for axis in range(len(lattice.levels)) if axis not in lattice.unordered and not off[axis]]
    if not bounded:
        return low, high
    at = [columns(lattice)[axis][0] for axis in bounded]
    scales = np.broadcast_to(np.asarray(length_scale, dtype=np.float64), centre.shape)[at]
    first, last = box(centre[at], side_length, tuple(scales.tolist()))
    cell = np.array([1.0 / lattice.levels[axis] if lattice.levels[axis] else 0.0 for axis in bounded])
    low[at] = np.maximum(np.minimum(first, centre[at] - cell), 0.0)
    high[at] = np.minimum(np.maximum(last, centre[at] + cell), 1.0)
    return low, high
