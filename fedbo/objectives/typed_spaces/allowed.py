"""The nearest allowed combination of the axes of forbidden clauses, for all combinations at once or for single points."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array

Mask = npt.NDArray[np.bool_]


class NearestAllowed(NamedTuple):
    """The nearest allowed combination of each combination.

    axes: the axes of the forbidden clauses.
    low `(k,)`, sizes: their first whole numbers, and how many each has.
    to `(n, k)`: the combination in the place of each one, in native units.
    """

    axes: tuple[int, ...]
    low: Array
    sizes: tuple[int, ...]
    to: Array

    def moved(self, x: Array) -> Array:
        """Replace forbidden points among `x (m, d)`, in native units; the others stay as they are."""
        x, axes = x.copy(), list(self.axes)
        x[:, axes] = self.to[np.ravel_multi_index(tuple((x[:, axes] - self.low).astype(np.int64).T), self.sizes)]
        return x


def nearest_allowed(axes: tuple[int, ...], combined: Array, unit: Array, wrong: Mask) -> NearestAllowed:
    """Find the nearest allowed combination of each of `combined (n, k)`, whose places in the unit cube are `unit (n, k)`.

    `wrong (n,)` says which are forbidden; some are not. The first of equally near ones is chosen.
    """
    allowed, to = np.flatnonzero(~wrong), combined.copy()
    places = unit[allowed]
    for row in np.flatnonzero(wrong):
        to[row] = combined[allowed[int(((places - unit[row]) ** 2).sum(axis=1).argmin())]]
    low = combined.min(axis=0)
    return NearestAllowed(axes, low, tuple(int(count) for count in combined.max(axis=0) - low + 1), to)


def moved_singly(
    x: Array, forbidden: Callable[[Array], Mask], searched: tuple[list[int], Array, Array], defaults: tuple[float, ...]
) -> Array:
    """Replace forbidden points among `x (m, d)`, where other axes decide too which combinations are allowed.

    `searched` are the axes, all their combinations `(n, k)`, and the places of these in the unit cube, `(n, k)`.
    """
    wrong = np.flatnonzero(forbidden(x))
    if not len(wrong):
        return x
    x, (axes, combined, unit) = x.copy(), searched
    for row in wrong:
        tried = np.repeat(x[row][None, :], len(combined), axis=0)
        tried[:, axes] = combined
        allowed = ~forbidden(tried)
        if not allowed.any():  # whatever they are, something else forbids it
            x[row] = defaults
            continue
        here = unit[np.flatnonzero((combined == x[row, axes]).all(axis=1))[0]]
        far = ((unit - here) ** 2).sum(axis=1)
        x[row] = tried[int(np.where(allowed, far, np.inf).argmin())]
    return x
