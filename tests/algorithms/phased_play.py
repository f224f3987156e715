"""Fed-PNE played without an engine: all clients in lock-step, every phase in one array operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.base import Inbound, Problem
from fedbo.algorithms.fed_pne import FedPNE
from fedbo.algorithms.streams import COORDINATOR, Streams

Functions = Sequence[Callable[[np.ndarray], np.ndarray]]


def garland(x: np.ndarray) -> np.ndarray:
    """Garland on [0, 1], at points (n, 1)."""
    u = x[:, 0]
    return np.asarray(4 * u * (1 - u) * (0.75 + 0.25 * (1 - np.sqrt(np.abs(np.sin(60 * u))))))


class Played(NamedTuple):
    """What came of it: every pull as (client, points, pulls), the phases' nodes and survivors, uploads in bytes, the states."""

    pulls: list[list[tuple[np.ndarray, np.ndarray]]]
    phases: list[tuple[int, np.ndarray]]
    bytes_up: list[int]
    server: Any
    problem: Problem

    def regret(self, mean: Callable[[np.ndarray], np.ndarray], best: float) -> float:
        """The clients' mean cumulative regret."""
        lost = [float((pulls * (best - mean(x))).sum()) for steps in self.pulls for x, pulls in steps]
        return float(np.sum(lost)) / len(self.pulls)


def play(algorithm: FedPNE, functions: Functions, rounds: int, seed: int, noise: float = 0.1, dim: int = 1) -> Played:
    """Let the clients play until their budgets are used up; rewards have uniform noise of `noise` either way."""
    n, streams = len(functions), Streams(seed)
    problem = Problem(dim, n, tuple(range(n)), 0, rounds, pulls=rounds)
    states = [algorithm.agent_init(replace(problem, agent=agent), streams.of(agent)) for agent in range(n)]
    server, left = algorithm.server_init(problem), [rounds] * n
    inbox: list[list[Inbound]] = [[] for _ in range(n)]
    played = Played([[] for _ in range(n)], [], [], server, problem)
    step = 0
    while any(left):
        step += 1
        played.phases.append((server.depth, server.nodes))
        arrivals, bytes_ = [], 0
        for agent in range(n):
            own = streams.of(agent).at(step)
            decision, state = algorithm.ask(states[agent], inbox[agent], own)
            assert decision.pulls is not None
            left[agent] -= int(decision.pulls.sum())
            assert left[agent] >= 0
            played.pulls[agent].append((decision.x, decision.pulls))
            means = means_of(functions[agent], decision, noise, own.rng("reward"))
            state = algorithm.tell(state, decision.x, means)
            payload, states[agent] = algorithm.outbox(state, own)
            inbox[agent] = []
            if payload is not None:
                arrivals.append(Inbound(agent, step, 0.0, payload))
                bytes_ += sum(array.nbytes for array in payload.values())
        played.bytes_up.append(bytes_)
        for message in arrivals:
            server = algorithm.receive(server, message, 0.0)
        answers, server = algorithm.broadcast(server, [m.sender for m in arrivals], np.ones(n), streams.of(COORDINATOR).at(step))
        for agent, answer in answers.items():
            inbox[agent].append(Inbound(COORDINATOR, step, 0.0, answer))
    return played._replace(server=server)


def means_of(function: Any, decision: Any, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Means of noisy rewards, each clipped where that is asked for."""
    values, pulls = function(decision.x), decision.pulls
    rewards = np.repeat(values, pulls) + rng.uniform(-noise, noise, int(pulls.sum()))
    if decision.clip is not None:
        rewards = np.clip(rewards, *decision.clip)
    return np.asarray(np.add.reduceat(rewards, np.cumsum(pulls) - pulls) / pulls)
