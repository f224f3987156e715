"""Batched Lipschitz narrowing (Feng, Huang and Wang 2022, BLiN): cubes that shrink from batch to batch, every agent alone.

A batch pulls every cube that is left equally often. Cubes whose mean is too far below the largest are dropped, and the others
are cut into the smaller ones of the next batch. When no further batch fits into what remains of T, the cubes that are left are
pulled for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from fedbo.algorithms.bandits.trees.partitions import POINTS
from fedbo.algorithms.base import Array, Decision, Declaration, Inbound, Problem, horizon
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf

Whole = npt.NDArray[np.int64]
FINEST = 50  # halvings of the cube's side that doubles tell apart


class BLiNState(NamedTuple):
    """An agent's state: the pulls asked for, and the last batch.

    rounds: T.
    spent: the pulls asked for so far.
    batch: number of the batch, 1 for the first.
    rest: whether this batch is the last.
    halvings: log2 of one over the edge of the cubes.
    cubes `(n, d)`: numbers of the cubes along each input.
    x `(n, d)`: their points.
    pulls `(n,)`: pulls of each point.
    mean `(n,)`: mean of the observed values.
    told `(n,)`: number of the observed values.
    """

    rounds: int
    spent: int
    batch: int
    rest: bool
    halvings: int
    cubes: Whole
    x: Array
    pulls: Whole
    mean: Array
    told: Whole


@dataclass(frozen=True, slots=True)
class BLiN(LocalOnly):
    """BLiN. The objective changes by at most `lipschitz` L times the largest difference in any input.

    edges: how the edges r of the cubes shrink: "doubling", r_m = 2^(1 - m), or "ace" (see `ace`).
    zooming: the zooming dimension d_z, for "ace".
    batches: most batches before the rest; 0 for as many as fit into T.
    factor: a cube is pulled ceil(factor log T / (L r)^2) times in a batch, and dropped when its mean is more than 4 L r below
      the largest.
    point: the evaluated point of a cube, its "centre" or one "uniform" draw from it.
    """

    horizon_use: ClassVar[str] = "computes its batches from the budget"

    edges: Annotated[str, OneOf(("ace", "doubling"))] = "doubling"
    """How the edges of the cubes shrink: halved, or by `zooming` (ACE)."""
    zooming: Annotated[float, Ge(0)] = 0.0
    """Zooming dimension d_z of ACE edges."""
    batches: Annotated[int, Ge(0)] = 0
    """Most batches before the rest; 0: as many as fit."""
    lipschitz: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Lipschitz constant L in the maximum norm of the unit cube."""
    factor: Annotated[float, Gt(0), Lt(inf)] = 16.0
    """Factor of the pulls of a cube; 16 in the theory."""
    point: Annotated[str, OneOf(POINTS)] = "centre"
    """Evaluated point of a box: its centre, or a uniform draw."""

    @property
    def queries(self) -> None:
        """Unknown before: a batch has as many points as there are cubes."""
        return None

    def upload(self, problem: Problem) -> Declaration | None:
        """Return None, since nothing is sent; ValueError when the settings do not suit the problem."""
        horizon(problem)
        if self.zooming > problem.dim:
            raise SettingError("zooming", f"must be at most d = {problem.dim}, the number of parameters, not {self.zooming}")
        return None

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Return no points."""
        return uniform[:0]

    def agent_init(self, problem: Problem, streams: Streams) -> BLiNState:
        """Start with the whole cube as the first batch's result."""
        one, whole = np.ones(1, dtype=np.int64), np.zeros((1, problem.dim), dtype=np.int64)
        x = np.full((1, problem.dim), 0.5)
        return BLiNState(
            horizon(problem), 0, 0, rest=False, halvings=0, cubes=whole, x=x, pulls=one, mean=np.zeros(1), told=one
        )

    def ask(self, state: BLiNState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, BLiNState]:
        """Ask for the next batch, or for the same one again while none of its values is known."""
        if state.told.any():
            state = self._narrow(state, streams)
        left, pulls = state.rounds - state.spent, state.pulls
        if pulls.sum() > left:
            pulls = _spread(left, state)
        some = pulls > 0
        decision = Decision(state.x[some], "rest" if state.rest else "batch", pulls[some])
        return decision, state._replace(spent=state.spent + int(pulls.sum()))

    def tell(self, state: BLiNState, x: Array, y: Array) -> BLiNState:
        """Update the means of the last batch's cubes; ignore values of earlier batches."""
        numbers = {point.tobytes(): number for number, point in enumerate(state.x)}
        mean, told = state.mean.copy(), state.told.copy()
        for point, value in zip(x, y.tolist(), strict=True):
            number = numbers.get(point.tobytes())
            if number is not None:
                told[number] += 1
                mean[number] += (value - mean[number]) / told[number]
        return state._replace(mean=mean, told=told)

    def _narrow(self, state: BLiNState, streams: Streams) -> BLiNState:
        """Drop cubes (Alg. 1), and cut the others if the next batch fits; keep a cube whose evaluations all failed."""
        heard = state.told > 0
        near = state.mean >= state.mean[heard].max() - 4.0 * self.lipschitz * 0.5**state.halvings
        kept = near | ~heard
        mean, cubes = np.where(heard, state.mean, -np.inf)[kept], state.cubes[kept]
        state = state._replace(cubes=cubes, x=state.x[kept], mean=mean, told=np.zeros(len(cubes), dtype=np.int64))
        finer = self._next(state)
        if finer is None:
            return state._replace(rest=True, pulls=_spread(state.rounds - state.spent, state), mean=np.zeros(len(cubes)))
        cubes = _cut(cubes, 2 ** (finer - state.halvings))
        n, dim = cubes.shape
        pulls = np.full(n, self._each(state.rounds, finer), dtype=np.int64)
        none = np.zeros(n, dtype=np.int64)
        x: Array = (cubes + np.float64(0.5)) * 0.5**finer
        if self.point == "uniform":
            drawn = (cubes + streams.rng("points of cubes").random((n, dim))) * 0.5**finer
            x = np.minimum(drawn, np.nextafter((cubes + 1) * 0.5**finer, 0.0))
        return BLiNState(
            state.rounds,
            state.spent,
            state.batch + 1,
            rest=False,
            halvings=finer,
            cubes=cubes,
            x=x,
            pulls=pulls,
            mean=np.zeros(n),
            told=none,
        )

    def _next(self, state: BLiNState) -> int | None:
        """Return the halvings of the next batch, or None when no batch fits into the rest of T."""
        dim = state.cubes.shape[1]
        sequence = doubling() if self.edges == "doubling" else ace(state.rounds, dim, self.zooming)
        if state.rest or state.batch == (self.batches or len(sequence)) or state.batch == len(sequence):
            return None
        finer = sequence[state.batch]
        count = len(state.cubes) * 2 ** (dim * (finer - state.halvings))
        return finer if count * self._each(state.rounds, finer) <= state.rounds - state.spent else None

    def _each(self, rounds: int, halvings: int) -> int:
        """Return n_m = ceil(16 log T / r_m^2), the pulls of a cube."""
        return max(1, math.ceil(self.factor * math.log(rounds) * 4.0**halvings / self.lipschitz**2))


def doubling() -> tuple[int, ...]:
    """List log2(1 / r_m) for r_m = 2^(1 - m), as far as doubles go."""
    return tuple(range(FINEST))


@lru_cache(maxsize=64)
def ace(rounds: int, dim: int, zooming: float) -> tuple[int, ...]:
    """Return log2(1 / r) for the appropriate combined edge-length sequence, rounded, without edges that are no shorter.

    With c_1 = (d_z + 1) / ((d + 2) (d_z + 2)) log2(T / log T) and c_{i+1} = c_i (d + 1 - d_z) / (d + 2), the sum of the first i
    is rounded down for one batch and up for the next. All sums stay below log2(T / log T) / (d_z + 2), so the list ends.
    """
    if rounds < 3:
        return (0,)
    step = (zooming + 1) / ((dim + 2) * (zooming + 2)) * math.log2(rounds / math.log(rounds))
    total, halvings = 0.0, list[int]()
    while step > 1e-9:
        total += step
        step *= (dim + 1 - zooming) / (dim + 2)
        for whole in (math.floor(total), math.ceil(total)):
            if not halvings or whole > halvings[-1]:
                halvings.append(whole)
    return tuple(halvings)


def _spread(pulls: int, state: BLiNState) -> Whole:
    """Share pulls equally among all cubes (Alg. 1, cleanup); the remainder is for the cubes with the largest means."""
    each = np.full(len(state.cubes), pulls // len(state.cubes), dtype=np.int64)
    each[np.argsort(-state.mean, kind="stable")[: pulls % len(each)]] += 1
    return each


def _cut(cubes: Whole, parts: int) -> Whole:
    """Cut every cube `(n, d)` into so many parts along each input."""
    dim = cubes.shape[1]
    offsets = np.indices((parts,) * dim, dtype=np.int64).reshape(dim, -1).T
    return (cubes[:, None] * parts + offsets).reshape(-1, dim)


ALGORITHMS = {
    "d_blin": Entry(
        BLiN,
        {"edges": "doubling", "zooming": 0.0},
        summary="batched Lipschitz narrowing (BLiN) with halved edges, without communication",
    ),
    "a_blin": Entry(
        BLiN, {"edges": "ace"}, summary="batched Lipschitz narrowing (BLiN) with few batches, without communication"
    ),
}
