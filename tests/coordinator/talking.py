"""A method that does nothing but talk, and writes down what it is told: for tests of what happens between agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.streams import Streams


class Known(NamedTuple):
    """What an agent knows: who it is, the values that it was told, a walk of coins, and the messages that it has had."""

    agent: int
    dim: int
    told: tuple[float, ...] = ()
    coin: float = 0.0
    heard: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Talk:
    """Uniform points; after every `every`-th step a message of `up` numbers, answered with `down` numbers.

    The first number of a message is its step, that of an answer the round. With `queries` None a step s has 1 + s mod 3 points.
    The lists hold what passed: `asks` (state before, step, agent's inbox), `ends` (agent, step) -> state after the step,
    `answers` (recipients, worth, round), `received` (sender, step, first number).
    """

    up: int = 1
    down: int = 1
    every: int = 1
    queries: int | None = 1
    asks: list[Any] = field(default_factory=list, compare=False)
    ends: dict[tuple[int, int], Known] = field(default_factory=dict, compare=False)
    answers: list[Any] = field(default_factory=list, compare=False)
    received: list[Any] = field(default_factory=list, compare=False)

    def sends(self, step: int) -> bool:
        return step % self.every == 0

    def upload(self, problem: Problem) -> Declaration | None:
        return {"numbers": Field((self.up,))}

    def download(self, problem: Problem) -> Declaration | None:
        return {"numbers": Field((self.down,))}

    def agent_init(self, problem: Problem, streams: Streams) -> Known:
        return Known(problem.agent, problem.dim)

    def ask(self, state: Known, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Known]:
        self.asks.append((state, streams.step, tuple(inbox)))
        count = 1 + streams.step % 3 if self.queries is None else self.queries
        coin = state.coin + float(streams.rng("coin").random())
        heard = state.heard + tuple((message.sender, message.step) for message in inbox)
        x = streams.rng("points").random((count, state.dim))
        return Decision(x, "own"), state._replace(coin=coin, heard=heard)

    def tell(self, state: Known, x: Array, y: Array) -> Known:
        return state._replace(told=state.told + tuple(float(value) for value in y))

    def outbox(self, state: Known, streams: Streams) -> tuple[Payload | None, Known]:
        self.ends[state.agent, streams.step] = state
        return {"numbers": np.full(self.up, float(streams.step))}, state

    def server_init(self, problem: Problem) -> None:
        return None

    def receive(self, state: None, message: Inbound, now: float) -> None:
        self.received.append((message.sender, message.step, float(message.payload["numbers"][0])))

    def broadcast(
        self, state: None, recipients: Sequence[int], worth: Array, streams: Streams
    ) -> tuple[dict[int, Payload], None]:
        self.answers.append((tuple(recipients), tuple(float(weight) for weight in worth), streams.step))
        return {agent: {"numbers": np.full(self.down, float(streams.step))} for agent in recipients}, None
