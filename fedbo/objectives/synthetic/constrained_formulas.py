"""Published test problems with constraints or several objectives, as functions of points `(n, d)` in native units.

Objectives `f1`, `f2`, … are minimised. Constraints `g1`, `g2`, … have the limits of their sources, in `tables`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbo.objectives.base import Array, Parameter

SPACING = 513  # points on a side of a known front
BNH_DEPTH, BNH_WIDTH = 3.0, 5.0  # the corner of the box that is nearest to (5, 5)


@dataclass(frozen=True, eq=False)
class ConstrainedProblem:
    """A problem over a box.

    function: returns the quantities `(n, k)` at points `(n, d)`.
    names: the k quantities; the first is the value.
    tables: the `[[metric]]` tables of the published problem.
    least: least value of `f1` over the box, whether feasible or not.
    optima: the exact optimum `(1, d)`, or points `(n, d)` of the exact Pareto set.
    """

    function: Callable[[Array], Array] = field(repr=False)
    parameters: tuple[Parameter, ...]
    tables: tuple[dict[str, Any], ...]
    least: float
    optima: Array = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Name the quantities in their order."""
        return tuple(table["name"] for table in self.tables)


def _minimised(number: int, reference: float | None = None) -> dict[str, Any]:
    return {"name": f"f{number}", "mode": "min"} | ({} if reference is None else {"reference": reference})


def _box(*highs: float) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"x{axis}", 0.0, high) for axis, high in enumerate(highs, start=1))


def gardner() -> ConstrainedProblem:
    """Return the second simulation of Gardner et al. 2014 (ICML, section 4): a feasible region of 1.8 % of the box.

    Its optimum is asin(0.95) - 1 at (3 pi / 2, asin(0.95)), where both terms of the value are least.
    """
    place = np.array([[1.5 * np.pi, np.arcsin(0.95) + 1e-15]])  # rounding must not make it infeasible
    return ConstrainedProblem(
        function=_gardner,
        parameters=_box(6.0, 6.0),
        tables=(_minimised(1), {"name": "g1", "at_most": -0.95}),
        least=-1.0,
        optima=place,
    )


def _gardner(x: Array) -> Array:
    return np.column_stack([np.sin(x[:, 0]) + x[:, 1], np.sin(x[:, 0]) * np.sin(x[:, 1])])


def hernandez_lobato() -> ConstrainedProblem:
    """Return the problem of Gramacy et al. 2016 that Hernández-Lobato et al. 2016 use: a line below a sine and in a circle."""
    tables = (_minimised(1), {"name": "g1", "at_most": 0.0}, {"name": "g2", "at_most": 0.0})
    return ConstrainedProblem(
        function=_hernandez_lobato,
        parameters=_box(1.0, 1.0),
        tables=tables,
        least=0.0,
        optima=np.array([[0.19512268487113818, 0.4046653671389294]]),
    )


def _hernandez_lobato(x: Array) -> Array:
    first, second = x.T
    sine = 1.5 - first - 2.0 * second - 0.5 * np.sin(2.0 * np.pi * (first**2 - 2.0 * second))
    return np.column_stack([first + second, sine, first**2 + second**2 - 1.5])


def mystery() -> ConstrainedProblem:
    """Return the mystery function of Sasena 2002 (thesis, Michigan): the optimum lies on the limit of the constraint."""
    tables = (_minimised(1), {"name": "g1", "at_most": 0.0})
    place = np.array([[2.744951044629267, 2.3522519629305427]])
    return ConstrainedProblem(
        function=_mystery, parameters=_box(5.0, 5.0), tables=tables, least=-1.4565258194894417, optima=place
    )


def _mystery(x: Array) -> Array:
    first, second = x.T
    waves = 7.0 * np.sin(0.5 * first) * np.sin(0.7 * first * second)
    bowl = 2.0 + 0.01 * (second - first**2) ** 2 + (1.0 - first) ** 2 + 2.0 * (2.0 - second) ** 2
    return np.column_stack([bowl + waves, -np.sin(first - second - np.pi / 8.0)])


def bnh() -> ConstrainedProblem:
    """Return the problem of Binh and Korn 1997 (BNH): two bowls, outside one circle and inside another.

    Its Pareto set is the diagonal up to (3, 3), and from there the upper side of the box.
    """
    along = np.linspace(0.0, BNH_WIDTH, SPACING)
    tables = (_minimised(1, 140.0), _minimised(2, 50.0), {"name": "g1", "at_most": 25.0}, {"name": "g2", "at_least": 7.7})
    places = np.column_stack([along, np.minimum(along, BNH_DEPTH)])
    return ConstrainedProblem(function=_bnh, parameters=_box(BNH_WIDTH, BNH_DEPTH), tables=tables, least=0.0, optima=places)


def _bnh(x: Array) -> Array:
    first, second = x.T
    bowls = 4.0 * first**2 + 4.0 * second**2, (first - 5.0) ** 2 + (second - 5.0) ** 2
    return np.column_stack([*bowls, (first - 5.0) ** 2 + second**2, (first - 8.0) ** 2 + (second + 3.0) ** 2])


def dtlz2(dimensions: int, objectives: int) -> ConstrainedProblem:
    """Return DTLZ2 (Deb et al. 2002): the front is the part of the unit sphere with no negative coordinate."""
    sides = 2 + int(SPACING ** (1.0 / (objectives - 1)))  # a grid of angles that is finer the fewer there are
    angles = np.meshgrid(*[np.linspace(0.0, 1.0, sides)] * (objectives - 1), indexing="ij")
    grid = np.column_stack([each.ravel() for each in angles])
    places = np.hstack([grid, np.full((len(grid), dimensions - objectives + 1), 0.5)])
    tables = tuple(_minimised(number, 2.5) for number in range(1, objectives + 1))
    return ConstrainedProblem(
        function=_Sphere(objectives), parameters=_box(*[1.0] * dimensions), tables=tables, least=0.0, optima=places
    )


@dataclass(frozen=True, slots=True)
class _Sphere:
    objectives: int

    def __call__(self, x: Array) -> Array:
        """Return the objectives `(n, m)`: a point of the sphere by m - 1 angles, times 1 plus its distance from the front."""
        m = self.objectives
        radius = 1.0 + ((x[:, m - 1 :] - 0.5) ** 2).sum(axis=1)
        angles = 0.5 * np.pi * x[:, : m - 1]
        quantities = []
        for number in range(m):
            turned = np.cos(angles[:, : m - 1 - number]).prod(axis=1)
            quantities.append(radius * turned * (np.sin(angles[:, m - 1 - number]) if number else 1.0))
        return np.column_stack(quantities)
