"""Coordinates in which a surrogate sees the unit cube.

"plain" leaves x as it is. "arcsine" is u = (2 / pi) arcsin(sqrt(x)) in each input, which keeps [0, 1] and stretches what lies
near the faces: a stationary kernel in u may then vary quickly where ranges end, as objectives do when a range spans several
orders of magnitude on a linear axis, and is nearly unchanged inside.
"""

from __future__ import annotations

import numpy as np

from fedbo.algorithms.base import Array

COORDINATES = ("arcsine", "plain")


def to_coordinates(x: Array, name: str) -> Array:
    """Turn points of the unit cube `(n, d)` into coordinates `(n, d)`."""
    return x if name == "plain" else (2 / np.pi) * np.arcsin(np.sqrt(x))


def from_coordinates(u: Array, name: str) -> Array:
    """Turn coordinates `(n, d)` into points of the unit cube `(n, d)`; the faces stay faces."""
    return u if name == "plain" else np.sin(0.5 * np.pi * u) ** 2
