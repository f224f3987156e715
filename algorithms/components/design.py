"""Design points that all agents can compute alike: a grid in up to two inputs, a Sobol sequence in more."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.stats import qmc

from fedbo.algorithms.base import Array
from fedbo.algorithms.components.coordinates import to_coordinates


@lru_cache(maxsize=16)
def design_points(count: int, dim: int) -> Array:
    """Give about `count` points `(M, d)` of the unit cube, in up to two inputs a grid with the faces on it, M its largest size.

    They are dense enough near the faces for stretched coordinates and inside for plain ones: evenly spaced in the mean of both.
    """
    if dim <= 2:
        side = np.linspace(0.0, 1.0, max(int(count ** (1.0 / dim) + 1e-9), 2))
        even = np.stack(np.meshgrid(*[side] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    else:
        even = qmc.Sobol(dim, scramble=False).random(2 ** int(np.ceil(np.log2(count + 1))))[1 : count + 1]
    x = np.linspace(0.0, 0.5, 100_001) ** 3 * 4.0  # dense near 0
    half = 0.5 * (x + to_coordinates(x, "stretched"))
    near = np.interp(np.minimum(even, 1.0 - even), half, x)
    points = np.where(even <= 0.5, near, 1.0 - near)
    points.flags.writeable = False
    return points
