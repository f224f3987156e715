"""Candidate points as a product of two small sets, and the most promising of them.

The first inputs come from a set U, the others from a set V, and every pair is a candidate. By the addition theorem, cos(s.(u +
v) + b) = cos(s.u + b) cos(s.v) - sin(s.u + b) sin(s.v). A x B values of m features therefore need A + B rows of cosines in
place of A x B (`compiled.grid`). Up to three inputs U x V is a grid; beyond that both sets are scrambled Sobol points.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.surrogates.draws import Draw

Array = npt.NDArray[np.float64]
Sizes = tuple[int, ...]
SOBOL_SEED = 20200
# Fewest and most points per axis of a grid in 1, 2 and 3 inputs; a grid step is then at most 0.8 / 100 in two.
AXIS_LIMITS = {1: (64, 2048), 2: (16, 160), 3: (12, 32)}
HALF_SIZES = (64, 128)


class Product(NamedTuple):
    """Sets U `(A, d_u)` and V `(B, d_v)`, d_u + d_v = d, and the shape of the grid, empty when they form none."""

    u: Array
    v: Array
    shape: Sizes

    def points(self, index: npt.NDArray[np.intp]) -> Array:
        """Return the candidates with flat indices `(q,)`, shape `(q, d)`."""
        return np.hstack([self.u[index // len(self.v)], self.v[index % len(self.v)]])


def frequencies(draw: Draw, dim: int) -> Array:
    """Return the draw's typical frequency along every input, `(d,)`: sigma for frequencies N(0, sigma^2)."""
    rough = np.zeros(dim)
    if draw.features is not None:
        s = draw.features.frequencies
        # From sixth moments, 15 sigma^6 for Gaussian frequencies: the heavy tails of Matern features need finer grids.
        cubes = s * s * s
        rough = (np.einsum("ij,ij->j", cubes, cubes) / (15.0 * len(s))) ** (1.0 / 6.0)
    if draw.kernel_part is not None:
        rough = np.maximum(rough, 1.0 / np.asarray(draw.kernel_part.kernel.length_scale))
    return rough


def grid_sizes(rough: Array, spacing: float) -> Sizes:
    """Return the numbers of points per axis for steps of about `spacing / frequency`, within limits, as multiples of 8."""
    if len(rough) > 3:
        size = HALF_SIZES[int(rough.max() > 1.5)]
        return (size, size)
    low, high = AXIS_LIMITS[len(rough)]
    return tuple(min(max(8 * ceil((f / spacing + 1.0) / 8.0), low), high) for f in rough.tolist())


@lru_cache(maxsize=64)
def product(dim: int, sizes: Sizes) -> Product:
    """Return candidates of `dim` inputs: points per axis for dim <= 3, otherwise the numbers of points of U and of V."""
    if dim > 3:
        half = (dim + 1) // 2
        return Product(_sobol(half, sizes[0], SOBOL_SEED), _sobol(dim - half, sizes[1], SOBOL_SEED + 1), ())
    axes = [np.linspace(0.0, 1.0, size)[:, None] for size in sizes]
    if dim == 1:
        return Product(axes[0], np.empty((1, 0)), sizes)
    if dim == 2:
        return Product(axes[0], axes[1], sizes)
    pairs = np.hstack([np.repeat(axes[0], sizes[1], axis=0), np.tile(axes[1], (sizes[0], 1))])
    return Product(pairs, axes[2], sizes)


def _sobol(dim: int, count: int, seed: int) -> Array:
    """Return scrambled Sobol points `(count, dim)`, a power of two of them, the same in every process."""
    from scipy.stats import qmc  # takes a second, which processes that only evaluate need not spend

    points = qmc.Sobol(dim, rng=np.random.default_rng(seed)).random_base2(int(count - 1).bit_length())
    return np.asarray(points, dtype=np.float64)
