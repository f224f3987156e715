"""Coordinates in which a surrogate sees the unit cube.

"plain" leaves x as it is. "arcsine" is u = (2 / pi) arcsin(sqrt(x)) in each input, which keeps [0, 1] and stretches what lies
near the faces: a stationary kernel in u may then vary quickly where ranges end, as objectives do when a range spans several
orders of magnitude on a linear axis, and is nearly unchanged inside. "stretched" does so more strongly: on either half u grows
with the logarithm of the distance e from the face, log(1 + 2 K e) / (2 log(1 + K)) with K = 1,000.
"""

from __future__ import annotations

import numpy as np

from fedbo.algorithms.base import Array

COORDINATES = ("arcsine", "plain", "stretched")
STRETCH = 1000.0


def to_coordinates(x: Array, name: str) -> Array:
    """Turn points of the unit cube `(n, d)` into coordinates `(n, d)`."""
    if name == "plain":
        return x
    if name == "arcsine":
        return (2 / np.pi) * np.arcsin(np.sqrt(x))
    near = np.log1p(2.0 * STRETCH * np.minimum(x, 1.0 - x)) / (2.0 * np.log1p(STRETCH))
    return np.where(x <= 0.5, near, 1.0 - near)


def from_coordinates(u: Array, name: str) -> Array:
    """Turn coordinates `(n, d)` into points of the unit cube `(n, d)`; the faces stay faces."""
    if name == "plain":
        return u
    if name == "arcsine":
        return np.sin(0.5 * np.pi * u) ** 2
    near = np.expm1(2.0 * np.log1p(STRETCH) * np.minimum(u, 1.0 - u)) / (2.0 * STRETCH)
    return np.where(u <= 0.5, near, 1.0 - near)


def slopes(u: Array, name: str) -> Array:
    """Give the derivatives dx / du at coordinates `(n, d)`."""
    if name == "plain":
        return np.ones_like(u)
    if name == "arcsine":
        return 0.5 * np.pi * np.sin(np.pi * u)
    rate = np.log1p(STRETCH)
    return (rate / STRETCH) * np.exp(2.0 * rate * np.minimum(u, 1.0 - u))
