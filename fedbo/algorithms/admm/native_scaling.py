"""Scaling between the unit cube, the surrogate's coordinates, and the native units of a constraint that couples agents.

Points have three names: `x` in the unit cube, `u` in the surrogate's coordinates (see `coordinates`), and `z` in native units,
those of the constraint. `v` in `[0, 1]^d` is the agent's own box in u, where maximisers work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedbo.algorithms.base import Array, Problem
from fedbo.algorithms.components.coordinates import from_coordinates, slopes, to_coordinates
from fedbo.settings.errors import SettingError

Row = tuple[float, ...]
Rows = tuple[Row, ...]


class NativeScaling(NamedTuple):
    """The cube's corners `low (d,)`, `high (d,)` and those of the agent's own box, `start (d,)`, `end (d,)`, all native."""

    low: Array
    high: Array
    start: Array
    end: Array
    coordinates: str

    def to_native(self, x: Array) -> Array:
        """Turn points of the cube `(n, d)` into native units."""
        return self.low + (self.high - self.low) * x

    def to_native_u(self, u: Array) -> Array:
        """Turn the surrogate's coordinates `(n, d)` into native units."""
        return self.to_native(from_coordinates(u, self.coordinates))

    def to_cube(self, z: Array) -> Array:
        """Turn native points `(n, d)` into points of the cube, the nearest ones in the agent's own box."""
        inside = np.clip(z, self.start, self.end)
        return np.clip((inside - self.low) / (self.high - self.low), 0.0, 1.0)

    def v(self, z: Array) -> Array:
        """Return the places `(n, d)` of native points `(n, d)` in the agent's box; points outside move to the nearest place."""
        first, last = self._sides()
        return np.clip((to_coordinates(self.to_cube(z), self.coordinates) - first) / (last - first), 0.0, 1.0)

    def at(self, v: Array) -> tuple[Array, Array, Array, Array]:
        """Return u and z at places `v (n, d)`, each `(n, d)`, and their derivatives by v, `(d,)` and `(n, d)`."""
        first, last = self._sides()
        u = first + (last - first) * v
        z = self.to_native(from_coordinates(u, self.coordinates))
        return u, z, last - first, (self.high - self.low) * (last - first) * slopes(u, self.coordinates)

    def _sides(self) -> tuple[Array, Array]:
        wide = self.high - self.low
        first = to_coordinates(np.clip((self.start - self.low) / wide, 0.0, 1.0), self.coordinates)
        return first, to_coordinates(np.clip((self.end - self.low) / wide, 0.0, 1.0), self.coordinates)


def scaling_of(corners: tuple[Row, Row], boxes: tuple[Rows, Rows], problem: Problem, coordinates: str) -> NativeScaling:
    """Make an agent's scaling: the native corners of the cube, empty for 0 and 1, and own boxes, empty for the whole cube."""
    low = np.array(corners[0]) if corners[0] else np.zeros(problem.dim)
    high = np.array(corners[1]) if corners[1] else np.ones(problem.dim)
    start, end = (_row(rows, problem.agent, otherwise) for rows, otherwise in zip(boxes, (low, high), strict=True))
    return NativeScaling(low, high, start, end, coordinates)


def check_scaling(corners: tuple[Row, Row], boxes: tuple[Rows, Rows], problem: Problem) -> None:
    """Refuse corners that are no box, and own boxes that do not lie within it; SettingError names the setting."""
    for name, corner in zip(("low", "high"), corners, strict=True):
        if len(corner) not in (0, problem.dim):
            raise SettingError(name, f"must have {problem.dim} numbers, one for each parameter, not {corner}")
    for name, rows in zip(("box_low", "box_high"), boxes, strict=True):
        check_rows(rows, name, problem.n_agents, problem.dim)
    for agent in range(problem.n_agents):
        scaling = scaling_of(corners, boxes, replace(problem, agent=agent), "plain")
        if not (scaling.low < scaling.high).all():
            raise SettingError("high", f"must be above low = {corners[0] or 0} in every parameter, not {corners[1] or 1}")
        if not ((scaling.low <= scaling.start) & (scaling.start < scaling.end) & (scaling.end <= scaling.high)).all():
            raise SettingError(
                "box_low", f"must be below box_high, and both must be between low and high; those of agent {agent} are not"
            )


def check_rows(rows: Rows, name: str, n_agents: int, length: int) -> None:
    """Refuse rows that are neither none, one, nor one for each agent, or of another length; SettingError names the setting."""
    if len(rows) not in (0, 1, n_agents):
        raise SettingError(name, f"must have one row, or one row for each of the {n_agents} agents, not {len(rows)}")
    if any(len(row) != length for row in rows):
        raise SettingError(name, f"must have {length} numbers in each row, not {rows}")


def _row(rows: Rows, agent: int, otherwise: Array) -> Array:
    return np.array(rows[agent if len(rows) > 1 else 0]) if rows else otherwise
