"""Uniform random search: every agent alone, the floor under every comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Inbound, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import check


class RandomState(NamedTuple):
    """The state of random search: the dimension."""

    dim: int


@dataclass(frozen=True, slots=True)
class Random(LocalOnly):
    """Uniform random search, `queries` points for each decision."""

    horizon_use: ClassVar[str] = ""

    queries: Annotated[int, Ge(1)] = 1

    def __post_init__(self) -> None:
        check(self)

    def agent_init(self, problem: Problem, streams: Streams) -> RandomState:
        """Keep the dimension."""
        return RandomState(problem.dim)

    def ask(self, state: RandomState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, RandomState]:
        """Draw uniform points."""
        return Decision(streams.rng("random search").random((self.queries, state.dim)), "random"), state

    def pending(self, state: RandomState, x: Array) -> RandomState:
        """Take no note of the points that are being evaluated."""
        return state

    def tell(self, state: RandomState, x: Array, y: Array) -> RandomState:
        """Learn nothing."""
        return state


ALGORITHMS = {"random": Entry(Random, summary="uniform random search, every agent alone")}
