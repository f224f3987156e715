"""The space in which a federated prior is learned: design points that all agents know, and coordinates of the processes.

Where all inputs are numbers these are `coordinates` of one name. A space with categories or conditions has the coordinates of
`ts` and `gp_ei`: a category has no order, and an inactive axis has no effect (`typed_coordinates`). There the residual process
has the length scales of the agent's process, and acquisitions are compared at new configurations only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import scipy

from fedbo.algorithms.base import Array, Decision, Origin
from fedbo.algorithms.components.coordinates import beginning, design_points, distance, to_coordinates
from fedbo.algorithms.components.inner_search import maximise_acquisition, maximise_typed_acquisition
from fedbo.algorithms.components.surrogate import LocalState, Surrogate, settings_of_typed
from fedbo.algorithms.components.typed_coordinates import embedded, restored
from fedbo.algorithms.learned_prior.learned_prior import PriorParameters
from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed
from fedbo.surrogates.gp import ROBUST, SCALED, fit_gp
from fedbo.surrogates.projected import SAME_POINT, Lattice

LEARNED = ("arcsine", "stretched")
REFIT = 5  # observations after which coordinates are chosen anew
SEED = 20203  # of the design points of typed spaces, the same in every process
POINTS = 64  # by which it is seen which axes are active
LEAST = -1e10  # below the logarithm of any improvement
SPARE = 4  # points that are drawn for each design point: several may be the same configuration
MEDIAN = PriorParameters().length_scale


class CriterionFunction(Protocol):
    """A function to maximise at points `(n, e)` in coordinates."""

    def __call__(self, u: Array, slopes: bool = True) -> tuple[Array, Array]:
        """Return values `(n,)` and gradients `(n, e)`; without `slopes` the gradients are empty, `(n, 0)`."""


@dataclass(frozen=True, slots=True)
class PriorSpace:
    """A space of `dim` inputs in `coordinates` of a name; one with categories or conditions has a `lattice`, others None."""

    dim: int
    coordinates: str
    lattice: Lattice | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """Name the coordinates of each input."""
        return (self.coordinates,) * self.dim

    @property
    def own(self) -> Surrogate:
        """Return the settings of the agent's process where all inputs are numbers."""
        return Surrogate(coordinates=self.coordinates, clip=0.0)

    @property
    def refit(self) -> int:
        """Return the number of observations between two fits of the agent's process; 1 in a typed space."""
        return REFIT if self.lattice is None else 1

    def seen(self, x: Array) -> Array:
        """Turn points of the unit cube `(n, d)` into the coordinates of the processes, `(n, e)`."""
        return to_coordinates(x, self.coordinates) if self.lattice is None else embedded(x, self.axes, self.lattice)

    def fit(self, last: LocalState, x: Array, y: Array, count: int, streams: Streams) -> LocalState:
        """Return the agent's own process given values `y (n,)` at points of the unit cube `(n, d)`, n > 0, of `count` in all.

        Its hyperparameters are fitted where `refit` observations are new.
        """
        state = changed(last, u=self.seen(x), y=y)
        if last.hyper is not None and count - last.fitted < self.refit:
            return state
        settings = ROBUST if self.lattice is None else settings_of_typed(SCALED, x, self.lattice)
        return changed(state, hyper=fit_gp(state.u, y, settings, streams.rng("restarts"), last.hyper), fitted=count)

    def lengths(self, fitted: LocalState) -> tuple[float, ...] | None:
        """Return the factors of a residual process's length scale in each coordinate, None for one scale of all.

        In a typed space its median is then that of the agent's process, in each coordinate.
        """
        if self.lattice is None:
            return None
        settings = settings_of_typed(SCALED, common_points(POINTS, self.dim, self.lattice), self.lattice)
        scale = settings.length_scale.start if fitted.hyper is None else fitted.hyper.length_scale
        columns = self.seen(np.zeros((1, self.dim))).shape[1]
        return tuple((np.broadcast_to(np.asarray(scale, dtype=np.float64), (columns,)) / MEDIAN).tolist())

    def decide(self, function: CriterionFunction, local: LocalState, streams: Streams, origin: Origin) -> Decision:
        """Decide for the point where an acquisition is largest; `local` is in the coordinates of `seen`."""
        if self.lattice is None:
            u = maximise_acquisition(function, local, self.coordinates, streams, lambda u: function(u, slopes=False)[0])
            return self.own.fresh(u, local, streams, origin)
        u = maximise_typed_acquisition(partial(untaken, function, local.taken), function, local, self.axes, streams)
        x = self.lattice.project(restored(u[None, :], self.axes, self.lattice))
        return self.own.unrepeated(x, distance(local.taken, u), local, streams, origin)


def choices(dim: int, coordinates: str, lattice: Lattice | None) -> tuple[PriorSpace, ...]:
    """Return the spaces to choose from: two with "learned" coordinates, else the named one."""
    lattice = lattice if is_typed(lattice) else None
    first = LEARNED[0] if lattice is None else beginning("learned", dim)
    if coordinates != "learned":
        return (PriorSpace(dim, coordinates, lattice),)
    if lattice is not None and len(lattice.unordered) == dim:
        return (PriorSpace(dim, first, lattice),)
    return PriorSpace(dim, first, lattice), PriorSpace(dim, LEARNED[1], lattice)


def untaken(function: CriterionFunction, taken: Array, u: Array) -> Array:
    """Return the values `(n,)` of an acquisition, with a very low value at the excluded points `taken (m, e)`.

    With few configurations the best one is often in `taken`; a repeated choice would be replaced by a random one.
    """
    values = function(u, slopes=False)[0]
    cdist = scipy.spatial.distance.cdist
    again = (cdist(u, taken, "chebyshev") < SAME_POINT).any(axis=1) if len(taken) else np.zeros(len(u), dtype=np.bool_)
    return np.where(again, LEAST, values)


@lru_cache(maxsize=64)
def is_typed(lattice: Lattice | None) -> bool:
    """Return whether a space has categories without an order, or axes that are not always active."""
    if lattice is None:
        return False
    return bool(lattice.unordered) or bool(lattice.inactive(_even(POINTS, len(lattice.levels))).any())


@lru_cache(maxsize=64)
def common_points(count: int, dim: int, lattice: Lattice | None) -> Array:
    """Return about `count` design points `(M, d)` of the unit cube; in a typed space at most that many configurations.

    Those of a typed space depend on its parameters alone, and not on the order in which a category's choices are listed.
    """
    if lattice is None or not is_typed(lattice):
        return design_points(count, dim)
    points = _even(SPARE * count, dim)
    for axis in lattice.unordered:
        cells = (points[:, axis] * lattice.levels[axis]).astype(int)
        points[:, axis] = lattice.centres(axis)[lattice.by_name(axis)[cells]]
    points = lattice.project(points)
    kept = np.sort(np.unique(points, axis=0, return_index=True)[1])[:count]
    points = points[kept]
    points.flags.writeable = False
    return points


def _even(count: int, dim: int) -> Array:
    """Return scrambled Sobol points of the unit cube, a power of two of at least `count`, without its faces."""
    power = int(np.ceil(np.log2(count)))
    points = scipy.stats.qmc.Sobol(dim, rng=np.random.default_rng(SEED)).random_base2(power)
    return np.asarray(np.clip(points, 0.0, 1.0 - 1e-12), dtype=np.float64)
