"""Fed-PNE played without an engine: all clients in lock-step, every phase in one array operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.base import Decision, Inbound, Problem
from fedbo.algorithms.fed_pne import FedPNE
from fedbo.algorithms.streams import COORDINATOR, Streams

Functions = Sequence[Callable[[np.ndarray], np.ndarray]]
Means = Callable[[np.ndarray, Decision, np.random.Generator], np.ndarray]


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


def uniform(values: np.ndarray, decision: Decision, rng: np.random.Generator) -> np.ndarray:
    """Means of rewards with uniform noise of +-0.1, each clipped where that is asked for."""
    pulls = decision.pulls
    assert pulls is not None
    rewards = np.repeat(values, pulls) + rng.uniform(-0.1, 0.1, int(pulls.sum()))
    if decision.clip is not None:
        rewards = np.clip(rewards, *decision.clip)
    return np.asarray(np.add.reduceat(rewards, np.cumsum(pulls) - pulls) / pulls)


def bernoulli(values: np.ndarray, decision: Decision, rng: np.random.Generator) -> np.ndarray:
    """Means of rewards that are 0 or 1, the noisiest in [0, 1]."""
    assert decision.pulls is not None
    return np.asarray(rng.binomial(decision.pulls, values) / decision.pulls)


def play(algorithm: FedPNE, functions: Functions, rounds: int, seed: int, means: Means = uniform) -> Played:
    """Let the clients play until their budgets are used up; `means` draws those of a decision's rewards."""
    n, dim, streams = len(functions), 1, Streams(seed)
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
            state = algorithm.tell(state, decision.x, means(functions[agent](decision.x), decision, own.rng("reward")))
            payload, states[agent] = algorithm.outbox(state, own)
            inbox[agent] = []
            if payload is not None:
                arrivals.append(Inbound(agent, step, 0.0, payload))
                bytes_ += sum(array.nbytes for array in payload.values())
        played.bytes_up.append(bytes_)
        for message in arrivals:
            server = algorithm.receive(server, message, 0.0)
        answers, server = algorithm.broadcast(
            server, [m.sender for m in arrivals], np.ones(n), streams.of(COORDINATOR).at(step)
        )
        for agent, answer in answers.items():
            inbox[agent].append(Inbound(COORDINATOR, step, 0.0, answer))
    return played._replace(server=server)
