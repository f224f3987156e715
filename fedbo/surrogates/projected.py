"""Acquisition maximisation in mixed spaces: whole numbers and categories are rounded before the function is evaluated.

The function f(P(u)) is maximised, where P moves u to the point that would be evaluated (Garrido-Merchan and Hernandez-Lobato
2020). It is constant in the cells of whole numbers, so these axes are searched value by value. Newton's method searches the
others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from math import log
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedbo.surrogates.newton_ascent import Surface, newton_ascent

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Values = Callable[[Array], Array]
COMBINATIONS = 2048  # of whole numbers, that are all tried
CANDIDATES = 1024  # points that are tried at first where there are more
SAME_POINT = 1e-9  # two points that are this close in every coordinate count as one
SEED = 20201
STARTS = 12
ROUNDS = 12
NEAR = 24  # values of one axis that are tried from the best point
BEST, NEAR_BEST = 4, 128  # points about which there are candidates, and how many
WIDTHS = (1e-3, 0.3)  # least and largest standard deviation of those about a point
MOVED, CHANGED = 0.6, 0.2  # shares of their numbers that are moved, and of their categories that are changed


class Lattice(Protocol):
    """A mixed search space: which points of the unit cube can be evaluated."""

    def __hash__(self) -> int:
        """Return a hash; equal lattices have the same points."""

    @property
    def levels(self) -> tuple[int, ...]:
        """Count the cells of each axis; 0 for an axis of real numbers."""

    @property
    def unordered(self) -> tuple[int, ...]:
        """List the axes of categories without an order."""

    def project(self, u: Array) -> Array:
        """Move points `(n, d)` to the points that would be evaluated."""

    def inactive(self, u: Array) -> Mask:
        """Return a mask of the axes that have no effect at points `(n, d)`."""

    def by_name(self, axis: int) -> npt.NDArray[np.intp]:
        """List the cells of an axis, those of a category without an order by its choices' names."""

    def centres(self, axis: int) -> Array:
        """Return the coordinates of an axis's whole numbers, in ascending order."""


class ProjectedSpace(NamedTuple):
    """A mixed space, with the coordinates of the function to maximise, which may be more than its axes.

    into: maps points of the unit cube `(n, d)` to those coordinates, `(n, e)`.
    back: the inverse of `into`.
    movable: mask of the real coordinates at points; by default those of the lattice.
    low, high `(e,)`: if set, the search stays between them.
    taken `(m, e)`: evaluated points; the search returns another point while there is one.
    """

    lattice: Lattice
    into: Values = lambda u: u
    back: Values = lambda u: u
    movable: Callable[[Array], Mask] | None = None
    low: Array | None = None
    high: Array | None = None
    taken: Array | None = None

    def untaken(self, points: Array) -> Array:
        """Return the points `(n, e)` that were not evaluated; all of them where real numbers set points apart."""
        if self.taken is None or not len(self.taken) or not len(points) or 0 in self.lattice.levels:
            return points
        far: Array = np.abs(points[:, None] - self.taken[None]).max(axis=2).min(axis=1)
        left: Array = points[far >= SAME_POINT]
        return left

    def project(self, points: Array) -> Array:
        """Project points given in the function's coordinates `(n, e)`."""
        if self.low is not None:
            points = np.clip(points, self.low, self.high)
        return self.into(self.lattice.project(self.back(points)))

    def candidates(self) -> Array:
        """Return points to try first, in the function's coordinates."""
        points = self.into(_candidates(self.lattice))
        if self.low is None or self.high is None or 0 not in self.lattice.levels:
            return points
        return self.project(self.low + (self.high - self.low) * points)

    def free(self, points: Array) -> Mask:
        """Return a mask of the coordinates of points `(n, e)` that may move by less than a cell."""
        if self.movable is not None:
            return self.movable(points)
        return np.broadcast_to([count == 0 for count in self.lattice.levels], points.shape)


def maximise_projected(
    values: Values, ascend: Values, space: ProjectedSpace, extra: Array | None = None, rng: np.random.Generator | None = None
) -> tuple[Array, float]:
    """Return the point `(e,)` that can be evaluated at which a function is largest, and its value there.

    `values` returns values at `(n, e)`, in the function's coordinates. `ascend` returns the ends `(r, e)` of climbs along the
    real coordinates. `extra (m, e)` are further starts, incumbents for example; with `rng`, points near the best of these are
    tried too.

    Raises ValueError when a value is not finite.
    """
    levels = space.lattice.levels
    points = space.candidates()
    if extra is not None and len(extra):
        points = np.vstack([points, space.project(extra)])
        if rng is not None:
            centres = extra[np.argsort(-values(extra), kind="stable")[:BEST]]
            points = np.vstack([points, space.project(nearby(centres, space, rng))])
    left = space.untaken(points)
    points = left if len(left) else points
    at = values(points)
    if not np.isfinite(at).all():
        raise ValueError("the function has values that are not finite")
    order = np.argsort(-at, kind="stable")[:STARTS]
    best, top = points[order[0]], float(at[order[0]])
    if 0 in levels:
        best, top = _higher(values, space.project(ascend(points[order])), best, top)
    for _ in range(ROUNDS):
        near = space.untaken(space.project(space.into(_neighbours(space.back(best[None, :])[0], levels, space.lattice))))
        if not len(near):
            break
        found = values(near)
        place = int(found.argmax())
        if not found[place] > top:
            break
        best, top = near[place], float(found[place])
        if 0 in levels:
            best, top = _higher(values, space.project(ascend(best[None, :])), best, top)
    return best, top


def _higher(values: Values, ends: Array, best: Array, top: float) -> tuple[Array, float]:
    """Return the best of the points `(r, e)` and its value if it exceeds `top`; else `best` and `top`."""
    found = values(ends)
    place = int(found.argmax())
    return (ends[place], float(found[place])) if found[place] > top else (best, top)


def newton(surface: Surface, space: ProjectedSpace, tolerance: float = 1e-8) -> Values:
    """Return a function that climbs from `(r, e)` along the real numbers by Newton's method to the best end, `(1, e)`."""

    def along(u: Array) -> tuple[Array, Array, Array]:
        value, gradient, hessian = surface(u)
        held = ~space.free(u)
        gradient = np.where(held, 0.0, gradient)
        hessian = np.where(held[:, :, None] | held[:, None, :], 0.0, hessian)
        hessian -= held[:, :, None] * np.eye(u.shape[1])
        return value, gradient, hessian

    return lambda starts: newton_ascent(along, starts, np.full(starts.shape[1], 0.1), tolerance, 30)[0][None, :]


def nearby(centres: Array, space: ProjectedSpace, rng: np.random.Generator, count: int = NEAR_BEST) -> Array:
    """Return points `(m, e)` near the centres `(c, e)`, with some of their numbers and few of their categories changed."""
    lattice = space.lattice
    u = np.repeat(space.back(centres), count, axis=0)
    widths = np.exp(rng.uniform(log(WIDTHS[0]), log(WIDTHS[1]), (len(u), 1)))
    moved = u + widths * rng.standard_normal(u.shape) * (rng.random(u.shape) < MOVED)
    changed = np.where(rng.random(u.shape) < CHANGED, rng.random(u.shape), u)
    categories = np.isin(np.arange(u.shape[1]), lattice.unordered)
    return space.into(np.clip(np.where(categories, changed, moved), 0.0, 1.0))


@lru_cache(maxsize=16)
def _candidates(lattice: Lattice) -> Array:
    """Return points of the unit cube `(n, d)` that can be evaluated: all of a small discrete space, else Sobol points."""
    levels, count = lattice.levels, 1
    for level in levels:
        count *= level or COMBINATIONS + 1
    if count <= COMBINATIONS:
        points = np.array(list(itertools.product(*(lattice.centres(axis) for axis in range(len(levels))))))
    else:
        from scipy.stats import qmc  # takes a second, which processes that only evaluate need not spend

        points = qmc.Sobol(len(levels), rng=np.random.default_rng(SEED)).random(CANDIDATES)
    found: Array = np.unique(lattice.project(points), axis=0)
    found.setflags(write=False)
    return found


def _neighbours(u: Array, levels: tuple[int, ...], lattice: Lattice) -> Array:
    """Return points `(n, d)` that differ from u `(d,)` in one integer: in all its values, or in near and far ones."""
    found = []
    for axis, count in enumerate(levels):
        if not count:
            continue
        if count <= NEAR:
            places = lattice.centres(axis)
        else:
            steps = np.concatenate([np.arange(1, NEAR // 4 + 1) / count, np.geomspace(1 / count, 0.5, NEAR // 4)])
            places = np.clip(np.concatenate([u[axis] - steps, u[axis] + steps]), 0.0, 1.0)
        near = np.repeat(u[None, :], len(places), axis=0)
        near[:, axis] = places
        found.append(near)
    return np.vstack(found) if found else np.empty((0, len(u)))
