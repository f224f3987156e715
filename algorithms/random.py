"""Uniform random search: every agent alone, the floor under every comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedbo.algorithms.base import Array, Decision, Declaration, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.streams import Streams


class RandomState(NamedTuple):
    """All that random search needs to know: the dimension."""

    dim: int


@dataclass(frozen=True, slots=True)
class Random:
    """Uniform random search, `queries` points for each decision."""

    queries: int = 1

    def __post_init__(self) -> None:
        if self.queries < 1:
            raise ValueError(f"queries must be at least 1, not {self.queries}")

    def sends(self, step: int) -> bool:
        """Never."""
        return False

    def upload(self, problem: Problem) -> Declaration | None:
        """Nothing is sent."""
        return None

    def download(self, problem: Problem) -> Declaration | None:
        """Nothing comes back."""
        return None

    def agent_init(self, problem: Problem, streams: Streams) -> RandomState:
        """Keep the dimension."""
        return RandomState(problem.dim)

    def ask(self, state: RandomState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, RandomState]:
        """Draw uniform points."""
        return Decision(streams.rng("random search").random((self.queries, state.dim)), "random"), state

    def tell(self, state: RandomState, x: Array, y: Array) -> RandomState:
        """Learn nothing."""
        return state

    def outbox(self, state: RandomState, streams: Streams) -> tuple[Payload | None, RandomState]:
        """Say nothing."""
        return None, state

    def server_init(self, problem: Problem) -> Any:
        """There is no coordinator half."""
        return None

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        """Nothing can arrive."""
        return state

    def broadcast(
        self, state: Any, recipients: Sequence[int], worth: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Any]:
        """Nothing goes out."""
        return {}, state


ALGORITHMS = {"random": Entry(Random, summary="uniform random search, every agent alone")}
