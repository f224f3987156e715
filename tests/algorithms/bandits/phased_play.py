"""Fed-PNE played without an engine: all clients in lock-step, every phase in one array operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.bandits.fed_pne import FedPNE
from fedbo.algorithms.base import Decision, Problem
from fedbo.algorithms.streams import Streams
from fedbo.testing.lockstep import Lockstep, pulls

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

    def evaluate(decision: Decision, streams: Streams) -> np.ndarray:
        return means(functions[streams.owner](decision.x), decision, streams.rng("reward"))

    n = len(functions)
    run = Lockstep(algorithm, Problem(1, n, tuple(range(n)), 0, rounds, pulls=rounds), evaluate, seed)
    phases = []
    while run.active():
        phases.append((run.server.depth, run.server.nodes))
        run.act()
        run.exchange()
    pulled = [[(decisions[agent].x, pulls(decisions[agent])) for decisions in run.decisions] for agent in range(n)]
    bytes_up = [sum(array.nbytes for payload in sent.values() for array in payload.values()) for sent in run.sent]
    return Played(pulled, phases, bytes_up, run.server, run.problem)
