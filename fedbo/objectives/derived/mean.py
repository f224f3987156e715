"""The mean of all agents' functions, which a federation of bandits maximises, and its largest value.

The search for the largest value runs once, densely, in two independent halves: every other point of a grid, or with several
dimensions either half of Sobol's sequence. The difference of their results is the tolerance. Known cusps of agents are
evaluated too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy

from fedbo.objectives.base import Array, Federation, Objective, Parameter
from fedbo.objectives.space import from_unit, to_unit

DENSE = 2**15  # points of both searches, unless a federation of smooth functions says how many it needs: `dense`
PLACES = 32  # from which each search is refined, at most; one for each 32 points of it
FEW = 1e-9, 1e-3  # in boxes smaller than this only the four best places are looked at: on a line there may be cusps
CUSP, SMOOTH = 1e-16, 1e-6  # half the side of the last box about a place


@runtime_checkable
class BatchFunction(Protocol):
    """An objective with noise-free values at many points at once; `x (n, d)` is in native units."""

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` at points `(n, d)`."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The largest value of a mean of functions, where it is, `x (d,)` in native units, and how far two searches differed."""

    value: float
    x: tuple[float, ...]
    tolerance: float


@dataclass(frozen=True)
class MeanFunction:
    """The mean of all agents' noise-free values; TypeError where an agent cannot compute many points at once."""

    agents: Sequence[Objective]
    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        if unable := [type(agent).__name__ for agent in self.agents if not isinstance(agent, BatchFunction)]:
            raise TypeError(
                f"{unable[0]} has no `scores` method, so the mean of all agents cannot be computed; use another objective"
            )

    def __call__(self, x: Array) -> Array:
        """Return the mean `(n,)` at points `(n, d)` in native units."""
        total = np.zeros(len(x))
        for agent in self.agents:
            total += agent.scores(x)  # type: ignore[attr-defined]  # asked above
        return total / len(self.agents)

    def unit(self, u: Array) -> Array:
        """Return the mean at points of the unit cube."""
        return self(from_unit(self.parameters, u))


def optimum(mean: MeanFunction, federation: Federation) -> Optimum:
    """Return the largest value of the mean: the federation's `mean_best`, or else the result of a search."""
    known = getattr(federation, "mean_best", None)
    if known is not None:
        return Optimum(*known)
    d, count = len(mean.parameters), int(getattr(federation, "dense", DENSE))
    u = even_points(d, count)
    y, halves = mean.unit(u), (slice(0, None, 2), slice(1, None, 2)) if d == 1 else (slice(count // 2), slice(count // 2, None))
    last = CUSP if d == 1 and count >= DENSE else SMOOTH
    found = [_refined(mean, u[half], y[half], last) for half in halves]
    value, place = max([*found, *_at_cusps(mean)], key=lambda pair: pair[0])
    native = from_unit(mean.parameters, place)
    return Optimum(value, tuple(native.tolist()), value - min(found[0][0], found[1][0]))


def even_points(d: int, count: int) -> Array:
    """Return points `(count, d)` that fill the unit cube evenly: a grid, or with several dimensions Sobol's sequence."""
    if d == 1:
        return np.linspace(0.0, 1.0, count)[:, None]
    return np.asarray(scipy.stats.qmc.Sobol(d, scramble=False).random(count))


def _at_cusps(mean: MeanFunction) -> list[tuple[float, Array]]:
    """Return the best of the agents' declared cusps, if there are any."""
    said = [agent.cusps for agent in mean.agents if len(mean.parameters) == 1 and hasattr(agent, "cusps")]
    places = to_unit(mean.parameters, np.concatenate(said)) if said else np.empty((0, 1))
    if not len(places):
        return []
    values = mean.unit(places)
    return [(float(values.max()), places[values.argmax()])]


def _refined(mean: MeanFunction, u: Array, y: Array, last: float) -> tuple[float, Array]:
    """Search again around the best places `(n, d)` of a search, in ever smaller boxes, and polish the best of them.

    In one dimension the last box is as small as floats are close, since a cusp reaches its height only at its place.
    """
    d, reach = u.shape[1], 2.0 * len(u) ** (-1.0 / u.shape[1])
    centres, values = _best_apart(u, y, reach)
    cloud = np.linspace(-1.0, 1.0, 17)[:, None] if d == 1 else 2.0 * scipy.stats.qmc.Sobol(d, scramble=False).random(128) - 1.0
    while reach > last:
        near = np.clip(centres[:, None] + reach * cloud, 0.0, 1.0)
        seen = mean.unit(near.reshape(-1, d)).reshape(near.shape[:2])
        best = seen.argmax(axis=1)
        better = seen.max(axis=1) > values
        centres = np.where(better[:, None], near[np.arange(len(near)), best], centres)
        values = np.maximum(values, seen.max(axis=1))
        if reach < FEW[d > 1]:
            keep = np.argsort(-values, kind="stable")[:4]
            centres, values = centres[keep], values[keep]
        reach *= 0.8 if d > 1 else 0.5 if last == CUSP else 0.25
    winner = int(np.argmax(values))
    return _polished(mean, centres[winner], float(values[winner]))


def _best_apart(u: Array, y: Array, reach: float) -> tuple[Array, Array]:
    """Return the best places that are apart from each other; on a line these are higher than their neighbours."""
    chosen: list[int] = []
    order = np.argsort(-y, kind="stable")
    if u.shape[1] == 1:
        beside = np.pad(y, 1, constant_values=-np.inf)
        order = order[((y >= beside[:-2]) & (y >= beside[2:]))[order]]
    for place in order:
        if all(np.abs(u[place] - u[other]).max() > 0.5 * reach for other in chosen):
            chosen.append(int(place))
        if len(chosen) == min(PLACES, max(1, len(u) // 32)):
            break
    return u[chosen], y[chosen]


def _polished(mean: MeanFunction, u: Array, value: float) -> tuple[float, Array]:
    """Continue from a place by the simplex method of Nelder and Mead; return one-dimensional places unchanged, for cusps."""
    if len(u) == 1:
        return value, u
    limits: Any = [(0.0, 1.0)] * len(u)
    simplex = np.abs(np.vstack([u, u - 1e-5 * np.eye(len(u))]))
    options: Any = {"xatol": 1e-9, "fatol": 1e-13, "initial_simplex": simplex}

    def depth(v: Array) -> float:
        return -float(mean.unit(np.clip(v, 0.0, 1.0)[None])[0])

    made = scipy.optimize.minimize(depth, u, method="Nelder-Mead", bounds=limits, options=options)
    return (-float(made.fun), np.clip(made.x, 0.0, 1.0)) if -made.fun > value else (value, u)
