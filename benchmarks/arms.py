"""Time of one pull of the bandits that play the arms of a grid, against the number of arms, inputs and values seen.

The objective is free and is not timed. For Fed1-UCB, whose decisions are whole phases, it is the time of a phase.

    python benchmarks/arms.py [--pulls 2000]
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fedbo.algorithms.base import Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import COORDINATOR, Streams

CASES: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
    ("gp_ts", 1, 1, {"arms": 100}),
    ("gp_ts", 1, 1, {"arms": 200}),
    ("gp_ts", 1, 1, {"arms": 200, "kernel": "matern52"}),
    ("gp_ts", 2, 1, {"arms": 900}),
    ("gp_ts", 2, 1, {"arms": 900, "kernel": "matern52"}),
    ("fed1_ucb", 1, 10, {"arms": 50}),
    ("fn_ucb", 1, 1, {}),
    ("fn_ucb", 1, 10, {}),
    ("fn_ucb", 2, 10, {}),
    ("fn_ucb", 10, 10, {}),
)


def microseconds(name: str, dim: int, agents: int, pulls: int, given: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Time a run in lock-step: every decision of every agent with what it learns and sends, and every answer to all."""
    algorithm, streams = entry(name).make(**given), Streams(1)
    problem = Problem(dim, agents, tuple(range(agents)), 0, pulls, pulls=pulls)
    states = [algorithm.agent_init(problem, streams.of(agent)) for agent in range(agents)]
    server, rng = algorithm.server_init(problem), np.random.default_rng(1)
    inbox: list[list[Inbound]] = [[] for _ in range(agents)]
    own, joint, spent = [], [], [0] * agents
    for step in range(1, pulls + 1):
        sent = []
        for agent in range(agents):
            if spent[agent] >= pulls:
                continue
            begun = time.perf_counter()
            decision, state = algorithm.ask(states[agent], inbox[agent], streams.of(agent).at(step))
            y = np.exp(-8.0 * ((decision.x - 0.6) ** 2).sum(axis=1)) + 0.1 * rng.standard_normal(len(decision.x))
            payload, states[agent] = algorithm.outbox(algorithm.tell(state, decision.x, y), streams.of(agent).at(step))
            own.append(1e6 * (time.perf_counter() - begun))
            spent[agent] += len(decision.x) if decision.pulls is None else int(decision.pulls.sum())
            sent += [] if payload is None else [Inbound(agent, step, 0.0, payload)]
        begun = time.perf_counter()
        for message in sent:
            server = algorithm.receive(server, message, 0.0)
        answers, server = algorithm.broadcast(server, range(agents), np.ones(agents), streams.of(COORDINATOR).at(step))
        joint.append(1e6 * (time.perf_counter() - begun))
        inbox = [[Inbound(COORDINATOR, step, 0.0, answers[agent])] if agent in answers else [] for agent in range(agents)]
    return own, joint


def main() -> None:
    """Print medians over the first and the last tenth of a run, since a pull should not grow dearer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pulls", type=int, default=2000)
    pulls = parser.parse_args().pulls
    print("microseconds for a pull of one agent, and for an answer to all   first tenth   last tenth   an answer")
    for name, dim, agents, given in CASES:
        own, joint = microseconds(name, dim, agents, pulls, given)
        tenth = max(len(own) // 10, 1)
        settings = " ".join(f"{key}={value}" for key, value in given.items())
        label = f"{name}, d = {dim}, N = {agents} {settings}"
        print(f"{label:63s} {median(own[:tenth]):12.0f} {median(own[-tenth:]):12.0f} {median(joint):11.0f}", flush=True)


if __name__ == "__main__":
    main()
