"""Fronts of several objectives: which points no other one dominates, and the volume that they dominate; larger is better."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
MOST = 4  # objectives; the cost of an exact volume grows steeply with their number


def non_dominated(values: Array) -> Mask:
    """Return a mask `(n,)` of the points whose values `(n, m)` no other point dominates.

    A point dominates another one if it is at least as good in all objectives and better in one. Equal points do not dominate
    each other, so all copies of a point of the front are in it. A row with NaN is never in the front and dominates no other.
    """
    found = np.zeros(len(values), dtype=np.bool_)
    known = np.flatnonzero(~np.isnan(values).any(axis=1))
    if not len(known):
        return found
    # Points of one order: none is dominated by a later one, since a dominating point comes first.
    rows, copies = np.unique(-values[known], axis=0, return_inverse=True)
    kept = _staircase(rows) if values.shape[1] == 2 else _filtered(rows)
    found[known] = kept[copies.reshape(-1)]
    return found


def hypervolume(values: Array, reference: Array) -> float:
    """Return the volume between `reference (m,)` and the points with `values (n, m)`, 1 <= m <= 4, exactly up to rounding.

    Points that are not better than the reference in every objective, and rows with NaN, add nothing.

    Raises ValueError for another number of objectives, or a reference of another length.
    """
    at = _above(values, reference)
    return _volume(at[non_dominated(at)])


def hypervolumes(values: Array, reference: Array) -> Array:
    """Return the hypervolume `(n,)` of the first 1, 2, ..., n points; it never falls.

    Each point adds its own volume less that of what it shares with the front before it.
    """
    at = np.where(np.isnan(values), -np.inf, values) - np.asarray(reference, dtype=np.float64)
    front = _above(values[:0], reference)
    total, found = 0.0, np.empty(len(values))
    for place, point in enumerate(at):
        if (point > 0.0).all() and not (front >= point).all(axis=1).any():
            shared = np.minimum(front, point)
            total += max(float(point.prod()) - _volume(shared[non_dominated(shared)]), 0.0)
            front = np.vstack([front[~(front <= point).all(axis=1)], point])
        found[place] = total
    return found


def _above(values: Array, reference: Array) -> Array:
    """Return the points `(k, m)` above the reference in every objective, less it."""
    reference = np.asarray(reference, dtype=np.float64)
    m = reference.size
    if not 1 <= m <= MOST or values.ndim != 2 or values.shape[1] != m or not np.isfinite(reference).all():
        raise ValueError(f"need values (n, m), a finite reference (m,), 1 <= m <= {MOST}; got {values.shape}, {reference}")
    with np.errstate(invalid="ignore"):
        return np.asarray(values[(values > reference).all(axis=1)] - reference)


def _volume(front: Array) -> float:
    """Return the volume between the origin and the points `(k, m)` of a front, by slices along the last objective."""
    if not len(front):
        return 0.0
    m = front.shape[1]
    if m == 1:
        return float(front.max())
    front = front[np.argsort(-front[:, -1], kind="stable")]
    if m == 2:
        widths = np.maximum.accumulate(front[:, 0])
        return float(widths @ -np.diff(front[:, 1], append=0.0))
    heights = -np.diff(front[:, -1], append=0.0)
    total, slice_front = 0.0, front[:0, :-1]
    for point, height in zip(front[:, :-1], heights, strict=True):
        if not (slice_front >= point).all(axis=1).any():
            slice_front = np.vstack([slice_front[~(slice_front <= point).all(axis=1)], point])
        if height > 0.0:
            total += height * _volume(slice_front)
    return total


def _staircase(rows: Array) -> Mask:
    """Return the front of distinct points `(k, 2)` to be minimised, in lexicographic order."""
    before = np.minimum.accumulate(rows[:, 1])
    return np.concatenate([[True], rows[1:, 1] < before[:-1]])


def _filtered(rows: Array) -> Mask:
    """Return the front of distinct points `(k, m)` to be minimised, in lexicographic order."""
    left, kept = np.arange(len(rows)), np.zeros(len(rows), dtype=np.bool_)
    while len(left):
        first = left[0]
        kept[first] = True
        left = left[1:][(rows[left[1:]] < rows[first]).any(axis=1)]
    return kept
