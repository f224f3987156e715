"""Time of one decision of every method with a surrogate, with and without the fit, and against the number of agents.

A run of 50 iterations on a bowl with three initial points; the objective is free and is not timed. M = 100.
Some of the methods are those of the plug-in fedbo-rivals (`plugins/rivals`), which must be installed.

    python benchmarks/asks.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from statistics import mean, median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fedbo.algorithms.base import Algorithm, Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import COORDINATOR, Streams

ITERATIONS = 50


def messages(algorithm: Algorithm, agents: int, seed: int) -> tuple[Inbound, ...]:
    """Let every other agent write about 50 observations of a bowl of its own, and the coordinator pass it on."""
    problem = Problem(2, agents, (0,), 3, ITERATIONS, history=50)
    if algorithm.upload(problem) is None:
        return ()
    server, rng = algorithm.server_init(problem), np.random.default_rng(seed)
    for agent in range(1, agents):
        x, centre = rng.random((50, 2)), rng.normal(0.3, 0.1, 2)
        mine = replace(problem, agent=agent, history_x=x, history_y=-((x - centre) ** 2).sum(axis=1))
        streams = Streams(seed, owner=agent)
        payload, _ = algorithm.outbox(algorithm.agent_init(mine, streams), streams)
        assert payload is not None
        server = algorithm.receive(server, Inbound(agent, 0, 0.0, payload), 0.0)
    answers, _ = algorithm.broadcast(server, (0,), np.ones(agents), Streams(seed, owner=COORDINATOR))
    return (Inbound(COORDINATOR, 0, 0.0, answers[0]),)


def milliseconds(name: str, preset: str | None, agents: int, seed: int) -> tuple[list[float], list[float], list[float]]:
    """Time every decision of a run: those without a fit, those with one, and the federated ones."""
    algorithm = entry(name).make(preset)
    problem = Problem(2, agents, (0,), 3, ITERATIONS, history=50, agent=0)
    streams = Streams(seed, owner=0)
    rng = np.random.default_rng(seed)
    state = algorithm.agent_init(problem, streams)
    x = rng.random((3, 2))
    state = algorithm.tell(state, x, -((x - 0.3) ** 2).sum(axis=1))
    inbox = messages(algorithm, agents, seed)
    alone, fitting, federated = [], [], []
    for step in range(1, ITERATIONS + 1):
        begun = time.perf_counter()
        decision, state = algorithm.ask(state, inbox, streams.at(step))
        spent, inbox = 1e3 * (time.perf_counter() - begun), ()
        kind = federated if decision.origin == "federated" else fitting if step % 5 == 1 else alone
        kind.append(spent)
        state = algorithm.tell(state, decision.x, -((decision.x - 0.3) ** 2).sum(axis=1))
    return alone, fitting, federated


def main() -> None:
    """Print medians over runs, and the mean over all decisions, which has the fits in it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print("milliseconds for a decision           own query   federated   own with fit   all, amortised")
    for name, preset, agents in (
        ("ts", None, 29),
        ("ts", "faithful", 29),
        ("fts", None, 29),
        ("fts", "faithful", 29),
        ("gp_ei", None, 29),
        ("rgpe", None, 29),
        ("rgpe", "faithful", 29),
        ("taf", None, 29),
        ("taf", "faithful", 29),
        ("share_best", None, 29),
        ("quantile_transfer", None, 29),
        ("pooled", None, 29),
        ("guide", None, 29),
        ("guide", "faithful", 29),
        ("fts", None, 100),
        ("fts", None, 1000),
        ("rgpe", None, 100),
        ("rgpe", None, 300),
        ("taf", None, 100),
        ("taf", None, 300),
    ):
        runs = [milliseconds(name, preset, agents, seed) for seed in range(repeats)]
        alone, fitting, federated = ([ms for run in runs for ms in run[part]] for part in range(3))
        label = f"{name} {preset or 'own'}, N = {agents - 1}"
        print(
            f"{label:36s} {median(alone):9.2f} {median(federated) if federated else float('nan'):11.2f}"
            f" {median(fitting):14.2f} {mean(alone + fitting + federated):16.2f}"
        )


if __name__ == "__main__":
    main()
