"""Time of one decision of TS and FTS, own and faithful, with and without the fit, and FTS against the number of agents.

A run of 50 iterations on a bowl with three initial points; the objective is free and is not timed. M = 100.

    python benchmarks/asks.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import mean, median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fedbo.algorithms.base import Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import COORDINATOR, Streams

ITERATIONS = 50


def milliseconds(name: str, preset: str | None, agents: int, seed: int) -> tuple[list[float], list[float], list[float]]:
    """Time every decision of a run: those without a fit, those with one, and the federated ones."""
    algorithm = entry(name).make(preset)
    problem = Problem(2, agents, (0,), 3, ITERATIONS, agent=0)
    streams = Streams(seed, owner=0)
    rng = np.random.default_rng(seed)
    state = algorithm.agent_init(problem, streams)
    x = rng.random((3, 2))
    state = algorithm.tell(state, x, -((x - 0.3) ** 2).sum(axis=1))
    inbox: tuple[Inbound, ...] = ()
    declared = algorithm.download(problem)
    if declared is not None:
        weight = np.full(agents, 1 / (agents - 1))
        weight[0] = 0.0
        payload = {"omega": rng.standard_normal(declared["omega"].shape), "weight": weight}
        inbox = (Inbound(COORDINATOR, 0, 0.0, payload),)
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
        ("fts", None, 100),
        ("fts", None, 1000),
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
