"""Uniform random search: every agent alone, the baseline of every comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge

from fedbo.algorithms.base import ORIGINS_IN_ORDER, AnswerColumns, Array, Decision, Inbound, Problem, StatelessColumns
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.streams import Numbers, StreamBlock, Streams
from fedbo.surrogates.projected import COMBINATIONS, SAME_POINT, Lattice, ProjectedSpace


class RandomState(NamedTuple):
    """The state of random search.

    - `dim` is the dimension.
    - `space` is the space where it may run out of points, else None; the points `seen (n, d)` and `waiting (p, d)` are of it.
    """

    dim: int
    space: Lattice | None = None
    seen: Array | None = None
    waiting: Array | None = None


class RandomColumns(StatelessColumns):
    """Uniform random search of many agents."""

    def __init__(self, queries: int, dim: int) -> None:
        self._queries, self._dim = queries, dim

    def state(self, slot: int) -> RandomState:
        """Return the state of an agent."""
        return RandomState(self._dim)

    def ask(self, slots: Numbers, streams: StreamBlock, answers: AnswerColumns | None) -> tuple[Array, npt.NDArray[np.int8]]:
        """Draw the points of each agent."""
        counts = np.full(len(slots), self._queries * self._dim)
        x = streams.uniforms("random search", counts).reshape(-1, self._dim)
        return x, np.full(len(x), ORIGINS_IN_ORDER.index("random"), np.int8)


@dataclass(frozen=True, slots=True)
class Random(LocalOnly):
    """Uniform random search, `queries` points for each decision; without replacement where the space is small and discrete."""

    horizon_use: ClassVar[str] = ""

    queries: Annotated[int, Ge(1)] = 1
    """Points of a decision."""

    def agent_init(self, problem: Problem, streams: Streams) -> RandomState:
        """Store the dimension, and the space if it may run out of points."""
        space, none = problem.lattice, np.empty((0, problem.dim))
        if space is None or 0 in space.levels or math.prod(space.levels) > COMBINATIONS:
            return RandomState(problem.dim)
        return RandomState(problem.dim, space, none, none)

    def ask(self, state: RandomState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, RandomState]:
        """Draw uniform points; in a space that may run out, only new ones as long as there are any."""
        x = streams.rng("random search").random((self.queries, state.dim))
        if state.space is not None and state.seen is not None and state.waiting is not None:
            x, every = state.space.project(x), ProjectedSpace(state.space).candidates()
            rng, taken = streams.rng("instead of a repeated point"), np.concatenate([state.seen, state.waiting])
            for place, point in enumerate(x):
                left = ProjectedSpace(state.space, taken=np.concatenate([taken, x[:place]])).untaken(every)
                if len(left) and np.abs(left - point).max(axis=1).min() >= SAME_POINT:
                    x[place] = left[rng.integers(len(left))]
        return Decision(x, "random"), state

    def columns(self, problem: Problem, streams: Streams) -> RandomColumns | None:
        """Decide for many agents at once, which need no state unless the space may run out."""
        return None if problem.lattice is not None else RandomColumns(self.queries, problem.dim)

    def pending(self, state: RandomState, x: Array) -> RandomState:
        """Record the points that are being evaluated, where the space may run out."""
        return state if state.space is None else state._replace(waiting=x)

    def tell(self, state: RandomState, x: Array, y: Array) -> RandomState:
        """Record which points are evaluated, where the space may run out; the values are ignored."""
        return state if state.seen is None else state._replace(seen=np.concatenate([state.seen, x]))

    def tell_outcomes(self, state: RandomState, x: Array, values: Array, margins: Array) -> RandomState:
        """Record which points are evaluated, as `tell` does."""
        return self.tell(state, x, values[:, 0])

    def handles(self, problem: Problem) -> str:
        """Return an empty text: random search serves any objectives and limits."""
        return ""


ALGORITHMS = {"random": Entry(Random, summary="uniform random search, without communication")}
