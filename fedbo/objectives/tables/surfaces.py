"""Surfaces through evaluated points of the unit cube: the nearest point's value, or a Gaussian process's mean.

The process has a Matérn-5/2 kernel with a length scale for each axis (Rasmussen and Williams 2006, eq. 4.17). Its
hyperparameters maximise the marginal likelihood on a sample. Its mean at a point is conditioned on the nearby points alone
(Vecchia 1988), so that it costs the same for any number of points.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.objectives.base import Array

SAMPLE = (256, 64)  # of the design and of the refinement: what hyperparameters are fitted on
ABOUT = (32, 8)  # of the design and of the refinement: what the mean at a point is conditioned on
# Where hyperparameters are sought; noise as a share of the variance. A larger amplitude would only lengthen the scales, until
# rounding spoils what could be had from points that lie close together.
LENGTHS, AMPLITUDES, NOISES = (5e-3, 5.0), (1e-2, 10.0), (1e-10, 1.0)


@dataclass(frozen=True, slots=True)
class Process:
    """The hyperparameters of a Gaussian process: a length scale for each axis, the noise's share of the variance, the mean."""

    length_scales: tuple[float, ...]
    noise: float
    mean: float


def fit(u: Array, y: Array) -> Process:
    """Fit a process to points `(n, d)` and values `(n,)`; always the same one for the same points."""
    from sklearn.exceptions import ConvergenceWarning  # not imported where nothing is fitted: it takes half a second
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    mean, spread = float(y.mean()), float(y.std())
    if len(y) < 3 or spread == 0.0:
        return Process((1.0,) * u.shape[1], NOISES[0], mean)
    lengths = Matern(np.full(u.shape[1], 0.3), LENGTHS, nu=2.5)
    kernel = ConstantKernel(1.0, AMPLITUDES) * lengths + WhiteKernel(1e-3, (1e-10, 10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a value at its bound will do
        found: Any = GaussianProcessRegressor(kernel).fit(u, (y - mean) / spread).kernel_
    noise = found.k2.noise_level / found.k1.k1.constant_value
    scales = np.atleast_1d(found.k1.k2.length_scale)
    return Process(tuple(float(scale) for scale in scales), float(np.clip(noise, *NOISES)), mean)


class Nearest:
    """The value of the nearest point; ties are decided by the tree."""

    def __init__(self, u: Array, y: Array) -> None:
        self._y, self._tree = y, scipy.spatial.cKDTree(u)

    def __call__(self, u: Array) -> float:
        """Return the value at u `(d,)`."""
        return float(self._y[self._tree.query(u)[1]])

    def through(self, y: Array) -> Nearest:
        """Return the surface of other values `(n,)` at the same points."""
        other = copy(self)
        other._y = y
        return other

    def without(self, place: int) -> float:
        """Return the value at a point, as if it had not been evaluated."""
        _, near = self._tree.query(self._tree.data[place], min(2, len(self._y)))
        others = [one for one in np.atleast_1d(near) if one != place]
        return float(self._y[others[0]]) if others else float("nan")


class PosteriorMean:
    """The posterior mean of a process, cut off below `low` and above `high`.

    The first `designed` points are a design that covers the cube; the others were evaluated near the best value. Neighbours
    come from both, because a cluster of the latter alone has no information about its surroundings.
    """

    def __init__(self, process: Process, points: tuple[Array, Array], designed: int) -> None:
        u, y = points
        self._process, self._scales = process, np.array(process.length_scales)
        self._z, self._gap, self._designed = u / self._scales, y - process.mean, designed
        starts = ((0, self._z[:designed]), (designed, self._z[designed:]))
        self._trees = [
            (start, scipy.spatial.cKDTree(z), most) for (start, z), most in zip(starts, ABOUT, strict=True) if len(z)
        ]
        self.low, self.high = float(y.min()), float(y.max())

    def __call__(self, u: Array) -> float:
        """Return the mean at u `(d,)`."""
        return self._at(u / self._scales, None)

    def through(self, y: Array) -> PosteriorMean:
        """Return the mean of a process with the same length scales and noise through other values `(n,)` at the same points."""
        other = copy(self)
        other._process = replace(self._process, mean=float(y.mean()))
        other._gap = y - other._process.mean
        other.low, other.high = float(y.min()), float(y.max())
        return other

    def without(self, place: int) -> float:
        """Return the mean at a point, as if it had not been evaluated."""
        return self._at(self._z[place], place)

    def _at(self, z: Array, left_out: int | None) -> float:
        near, distance = self._about(z, 0 if left_out is None else 1)
        if left_out is not None:
            near, distance = near[near != left_out], distance[near != left_out]
        gaps = self._z[near][:, None, :] - self._z[near][None, :, :]
        among = _matern(np.sqrt(np.einsum("abd,abd->ab", gaps, gaps)))
        among.flat[:: len(near) + 1] += self._process.noise
        _, weights, failed = scipy.linalg.lapack.dposv(among, self._gap[near])
        if failed:
            raise np.linalg.LinAlgError(
                f"the points about {z * self._scales} are too close to each other relative to their noise"
            )
        mean = self._process.mean + float(_matern(distance) @ weights)
        return min(max(mean, self.low), self.high)

    def _about(self, z: Array, more: int) -> tuple[npt.NDArray[np.intp], Array]:
        """List the neighbours of a point, with their distances in length scales."""
        near, far = [], []
        for start, tree, most in self._trees:
            distance, place = tree.query(z, min(most + more, tree.n))
            near.append(np.atleast_1d(place) + start)
            far.append(np.atleast_1d(distance))
        return np.concatenate(near), np.concatenate(far)


def _matern(distance: Array) -> Array:
    scaled = np.sqrt(5.0) * distance
    kernel: Array = (1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled)
    return kernel
