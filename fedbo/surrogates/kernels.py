"""Stationary kernels and their derivatives.

A kernel is `variance * c(u)` with `u = sum_j ((x_j - z_j) / length_scale_j)^2`; everything that is specific to a family
is the correlation c and its first two derivatives with respect to u.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

Array = npt.NDArray[np.float64]
LengthScale = float | tuple[float, ...]


class _Stationary:
    """Base class of the kernel families; a family adds the correlation and its derivatives."""

    __slots__ = ()
    length_scale: LengthScale
    variance: float

    @property
    def number(self) -> int:
        """The family as compiled code knows it."""
        raise NotImplementedError

    def slopes(self, u: Array) -> tuple[Array, Array, Array]:
        raise NotImplementedError

    def squared_distance(self, x: Array, z: Array) -> Array:
        """Return the scaled squared distances u, `(n, n')`."""
        scale = np.asarray(self.length_scale)
        return scipy.spatial.distance.cdist(x / scale, z / scale, "sqeuclidean")

    def __call__(self, x: Array, z: Array) -> Array:
        """Return the covariances of `x (n, d)` with `z (n', d)`, shape `(n, n')`."""
        found, inverse = np.empty((len(x), len(z))), np.empty(x.shape[1])
        inverse[:] = self.length_scale
        points = np.ascontiguousarray(x), np.ascontiguousarray(z)
        _compiled().covariances(self.number, *points, 1.0 / inverse, self.variance, found)
        return found

    def gradient(self, x: Array, z: Array) -> Array:
        """Return the gradients of k(x, z) with respect to x, shape `(n, n', d)`."""
        slope = self.slopes(self.squared_distance(x, z))[1]
        scale = np.asarray(self.length_scale) ** 2
        return np.asarray((2.0 * self.variance) * slope[:, :, None] * (x[:, None, :] - z[None, :, :]) / scale)


@dataclass(frozen=True, slots=True)
class SE(_Stationary):
    """Squared exponential kernel, `variance * exp(-u / 2)`; the length scale is one number or one per input."""

    length_scale: LengthScale = 1.0
    variance: float = 1.0

    @property
    def number(self) -> int:
        """The family as compiled code knows it."""
        return 0

    def slopes(self, u: Array) -> tuple[Array, Array, Array]:
        """Return the correlation with its first and second derivative with respect to `u`."""
        c = np.exp(-0.5 * u)
        return c, -0.5 * c, 0.25 * c


@dataclass(frozen=True, slots=True)
class Matern(_Stationary):
    """Matern kernel with smoothness `nu`, 1.5 or 2.5; raises ValueError for another."""

    length_scale: LengthScale = 1.0
    variance: float = 1.0
    nu: float = 2.5

    def __post_init__(self) -> None:
        if self.nu not in (1.5, 2.5):
            raise ValueError(f"no Matern kernel with nu = {self.nu}; available: 1.5, 2.5")

    @property
    def number(self) -> int:
        """The family as compiled code knows it."""
        return 1 if self.nu == 1.5 else 2

    def slopes(self, u: Array) -> tuple[Array, Array, Array]:
        """Return the correlation with its first and second derivative with respect to `u`."""
        r = sqrt(2.0 * self.nu) * np.sqrt(u)
        e = np.exp(-r)
        if self.nu == 1.5:
            # The curvature grows like 1/r at an observation, where it is multiplied by a squared distance of order r^2.
            return (1.0 + r) * e, -1.5 * e, 2.25 * e / np.maximum(r, 1e-12)
        return (1.0 + r + r * r / 3.0) * e, (-5.0 / 6.0) * (1.0 + r) * e, (25.0 / 12.0) * e


@cache
def _compiled() -> Any:
    """Import the compiled routines, once."""
    from fedbo.surrogates.compiled import values

    return values


Kernel = SE | Matern
FAMILIES: dict[str, Kernel] = {"se": SE(), "matern32": Matern(nu=1.5), "matern52": Matern(nu=2.5)}


def make_kernel(family: str, length_scale: Any, variance: float) -> Kernel:
    """Return the kernel of a family by name, "se", "matern32" or "matern52"; raises ValueError for another name."""
    if family not in FAMILIES:
        raise ValueError(f"no kernel {family!r}; available: {', '.join(FAMILIES)}")
    scales = np.atleast_1d(np.asarray(length_scale, dtype=np.float64))
    scale: LengthScale = float(scales[0]) if scales.size == 1 else tuple(float(s) for s in scales)
    return replace(FAMILIES[family], length_scale=scale, variance=float(variance))
