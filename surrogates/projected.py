"""Acquisition maximisation in mixed spaces: whole numbers and categories are rounded before the function is evaluated.

What is maximised is f(P(u)), where P moves u to the point that would be evaluated (Garrido-Merchan and Hernandez-Lobato
2020). It is constant in the cells of whole numbers, so these axes are searched value by value, and Newton's method goes along
the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedbo.surrogates.newton_ascent import Surface, newton_ascent

Array = npt.NDArray[np.float64]
Values = Callable[[Array], Array]
COMBINATIONS = 2048  # of whole numbers, that are all tried
CANDIDATES = 1024  # points that are tried at first where there are more
SEED = 20201
STARTS = 12
ROUNDS = 12
NEAR = 24  # values of one axis that are tried from the best point


class Lattice(Protocol):
    """A mixed search space: which points of the unit cube can be evaluated."""

    def __hash__(self) -> int:
        """Equal ones have equal points."""

    @property
    def levels(self) -> tuple[int, ...]:
        """Count the cells of each axis; 0 for an axis of real numbers."""

    def project(self, u: Array) -> Array:
        """Move points `(n, d)` to those that stand for what would be evaluated."""

    def centres(self, axis: int) -> Array:
        """Give the coordinates of an axis's whole numbers, in ascending order."""


class ProjectedSpace(NamedTuple):
    """A mixed space with the coordinates in which the function to maximise is given.

    `into` turns points of the unit cube `(n, d)` into those coordinates, `back` turns them again.
    """

    lattice: Lattice
    into: Values = lambda u: u
    back: Values = lambda u: u

    def project(self, u: Array) -> Array:
        """Project points given in the function's coordinates `(n, d)`."""
        return self.into(self.lattice.project(self.back(u)))


def maximise_projected(
    values: Values, surface: Surface, space: ProjectedSpace, extra: Array | None = None, tolerance: float = 1e-8
) -> tuple[Array, float]:
    """The point `(d,)` that can be evaluated at which a function is largest, and its value there.

    `values` gives those at `(n, d)` and `surface` gradients and Hessians besides, in the function's coordinates; `extra (e, d)`
    are points to begin from besides, such as incumbents. Raises ValueError when a value is not finite.
    """
    levels = space.lattice.levels
    points = space.into(_candidates(space.lattice))
    if extra is not None and len(extra):
        points = np.vstack([points, space.project(extra)])
    at = values(points)
    if not np.isfinite(at).all():
        raise ValueError("the function has values that are not finite")
    order = np.argsort(-at, kind="stable")[:STARTS]
    best, top = points[order[0]], float(at[order[0]])
    if 0 in levels:
        best, top = _ascend(values, surface, space, points[order], best, top, tolerance)
    for _ in range(ROUNDS):
        near = space.project(space.into(_neighbours(space.back(best[None, :])[0], levels, space.lattice)))
        if not len(near):
            break
        found = values(near)
        place = int(found.argmax())
        if not found[place] > top:
            break
        best, top = near[place], float(found[place])
        if 0 in levels:
            best, top = _ascend(values, surface, space, best[None, :], best, top, tolerance)
    return best, top


def _ascend(
    values: Values, surface: Surface, space: ProjectedSpace, starts: Array, best: Array, top: float, tolerance: float
) -> tuple[Array, float]:
    """Ascend along the axes of real numbers; the end counts by its value at the nearest point that can be evaluated."""
    held = np.array([count > 0 for count in space.lattice.levels])

    def along(u: Array) -> tuple[Array, Array, Array]:
        value, gradient, hessian = surface(u)
        gradient = np.where(held, 0.0, gradient)
        hessian = np.where(held[:, None] | held[None, :], 0.0, hessian)
        hessian[:, held, held] = -1.0
        return value, gradient, hessian

    step_bound = np.full(starts.shape[1], 0.1)
    end = space.project(newton_ascent(along, starts, step_bound, tolerance, 30)[0][None, :])
    value = float(values(end)[0])
    return (end[0], value) if value > top else (best, top)


@lru_cache(maxsize=16)
def _candidates(lattice: Lattice) -> Array:
    """Points of the unit cube `(n, d)` that can be evaluated: all where they are few whole numbers, else by Sobol's."""
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
    """Points `(n, d)` that differ from u `(d,)` in one whole number: in all its values, or in near and far ones."""
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
