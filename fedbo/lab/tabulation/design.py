"""The design of a table: a scrambled Sobol sequence, then steps from the best points, each drawn by its number."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Array

BLOCK = 8  # steps that set out from the same knowledge
_PARENTS = 2
_WIDEST, _HALVINGS = 0.25, 12  # steps of 0.25 to 0.00006 of the cube, whatever scale the surface has on an axis


class DesignHistory(NamedTuple):
    """The evaluations before a step: points `(n, d)` of the unit cube, values `(n,)`; NaN where one failed."""

    u: Array
    value: Array


def sobol(seed: int, dim: int, count: int) -> Array:
    """Give the first `count` points `(count, dim)` of the scrambled Sobol sequence of a seed; more points keep the first."""
    if count == 0:
        return np.empty((0, dim))
    chosen = int(Streams(seed).rng("tabulated design").integers(2**63))
    sequence = scipy.stats.qmc.Sobol(dim, scramble=True, seed=chosen)
    # A power of two is what the sequence is balanced for, and what SciPy does not warn of.
    points: npt.NDArray[np.float64] = sequence.random_base2(math.ceil(math.log2(count)))[:count]
    return np.ascontiguousarray(points)


def step(index: int, seen: DesignHistory, streams: Streams) -> Array:
    """Give step number `index` of a refinement, a point `(d,)`: normally about one of the best points that were `seen`.

    What was `seen` is all that was evaluated before the step's block, so that the number of steps asked for changes none.
    Its size on each axis is drawn from wide to narrow, evenly in its logarithm; a step that leaves the cube is reflected.
    `streams` are the agent's at this number.
    """
    rng = streams.rng("refinement")
    known = np.flatnonzero(~np.isnan(seen.value))
    if not len(known):
        return rng.random((seen.u.shape[1],))
    best = known[np.argsort(-seen.value[known], kind="stable")[:_PARENTS]]
    parent = seen.u[best[index % len(best)]]
    size = _WIDEST * 0.5 ** (_HALVINGS * rng.random(len(parent)))
    return _reflected(parent + size * rng.standard_normal(len(parent)))


def _reflected(u: Array) -> Array:
    return np.asarray(np.clip(1.0 - np.abs(1.0 - np.mod(u, 2.0)), 0.0, 1.0))
