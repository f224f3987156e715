"""Coordinates in which a surrogate sees the unit cube, distances in them, and design points that all agents compute alike.

- "plain" leaves x as it is.
- "arcsine" is u = (2 / pi) arcsin(sqrt(x)) in each input. It keeps [0, 1] and stretches the regions near the faces: a
  stationary kernel in u may then vary quickly where ranges end. Objectives do so when a range spans several orders of magnitude
  on a linear axis. Inside, u is nearly x.
- "stretched" does so more strongly. On either half u grows with the logarithm of the distance e from the face: log(1 + 2 K e) /
  (2 log(1 + K)) with K = 1,000.
- A tuple has one name for each input.
- "learned" begins with arcsine in up to two inputs and with plain in more, where most of the cube lies near some face. The
  surrogate then chooses by the evidence (`surrogate.Surrogate`).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import scipy

from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Numbers

COORDINATES = ("arcsine", "plain", "stretched")
LEARNED = (*COORDINATES, "learned")
STRETCH = 1000.0
FEW = 2  # inputs


def to_coordinates(x: Array, name: str | tuple[str, ...]) -> Array:
    """Turn points of the unit cube `(n, d)` or `(d,)` into coordinates of the same shape."""
    return _turned(x, name, "into")


def from_coordinates(u: Array, name: str | tuple[str, ...]) -> Array:
    """Turn coordinates `(n, d)` or `(d,)` into points of the unit cube of the same shape; the faces stay faces."""
    return _turned(u, name, "back")


def _turned(points: Array, name: str | tuple[str, ...], way: str) -> Array:
    kinds = _kinds(name, points.shape[-1])
    if kinds is None or not points.size:
        return points
    found = np.empty(points.shape)
    rows = -1, points.shape[-1]
    getattr(_compiled(), way)(np.ascontiguousarray(points).reshape(rows), kinds, found.reshape(rows))
    return found


@lru_cache(maxsize=256)
def _kinds(name: str | tuple[str, ...], dim: int) -> Numbers | None:
    """Return the place in `COORDINATES` of the coordinates of each of the inputs; None where they are those of the cube."""
    names = name if isinstance(name, tuple) else (beginning(name, dim),) * dim
    return np.array([COORDINATES.index(one) for one in names]) if set(names) != {"plain"} else None


def slopes(u: Array, name: str) -> Array:
    """Return the derivatives dx / du at coordinates `(n, d)`."""
    if name == "plain":
        return np.ones_like(u)
    if name == "arcsine":
        return 0.5 * np.pi * np.sin(np.pi * u)
    rate = np.log1p(STRETCH)
    return np.asarray((rate / STRETCH) * np.exp(2.0 * rate * np.minimum(u, 1.0 - u)))


def beginning(name: str, dim: int) -> str:
    """Return the coordinates with which "learned" ones begin."""
    return name if name != "learned" else "arcsine" if dim <= FEW else "plain"


@lru_cache(maxsize=16)
def design_points(count: int, dim: int) -> Array:
    """Return about `count` points `(M, d)` of the unit cube; in up to two inputs a grid with the faces, M its largest size.

    The spacing is even in the mean of plain and stretched coordinates, so it is dense enough for both.
    """
    if dim <= 2:
        side = np.linspace(0.0, 1.0, max(int(count ** (1.0 / dim) + 1e-9), 2))
        even = np.stack(np.meshgrid(*[side] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    else:
        even = scipy.stats.qmc.Sobol(dim, scramble=False).random(2 ** int(np.ceil(np.log2(count + 1))))[1 : count + 1]
    x = np.linspace(0.0, 0.5, 100_001) ** 3 * 4.0  # dense near 0
    half = 0.5 * (x + to_coordinates(x[:, None], "stretched")[:, 0])
    near = np.interp(np.minimum(even, 1.0 - even), half, x)
    points = np.where(even <= 0.5, near, 1.0 - near)
    points.flags.writeable = False
    return points


def distance(points: Array, u: Array) -> float:
    """Return the distance of u `(d,)` to the nearest of `points (n, d)`, in the coordinate where they differ most."""
    found: float = _compiled().nearest(points, u)
    return found


def distances(points: Array, begins: Numbers, counts: Numbers, u: Array) -> Array:
    """Return the `distance (k,)` of each point of `u (k, d)` to its own points: `counts (k,)` of them from `begins (k,)` on."""
    found = np.empty(len(u))
    _compiled_block().distances(points, begins, counts, u, found)
    return found


@cache
def _compiled() -> Any:
    """Import the compiled routines, once: an import that has been made still costs half a microsecond."""
    from fedbo.surrogates.compiled import distance

    return distance


@cache
def _compiled_block() -> Any:
    from fedbo.surrogates.compiled import block

    return block
