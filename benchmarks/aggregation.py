"""How long a private release takes beside reading as many bytes from memory once: clip, weigh, sum, noise, ledger entry.

With `--q 1` every message is in the release. The yardstick is the sum of an array far larger than any cache, in the
same run, in turns.

    python benchmarks/aggregation.py [--agents 10000] [--features 100] [--regions 4] [--q 1.0] [--repeats 50]
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import pairwise
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fedbo.algorithms.base import Private, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.privacy.aggregator import PrivateAggregator
from fedbo.coordinator.privacy.budget import PrivacyBudget
from fedbo.coordinator.privacy.noise import Seeded


def main() -> None:
    """Take both in turns, and print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--regions", type=int, default=4)
    parser.add_argument("--q", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=50)
    given = parser.parse_args()
    algorithm = entry("dp_fts_de").make(regions=given.regions, share=given.q, features=given.features)
    assert isinstance(algorithm, Private)
    problem = Problem(2, given.agents, tuple(range(given.agents)), 0, given.repeats)
    aggregator = PrivateAggregator(
        algorithm, problem, PrivacyBudget(), Seeded(Streams(1).of(COORDINATOR)), "" if given.q < 1 else "every agent is asked"
    )
    state, server = aggregator.fresh(given.features), algorithm.server_init(problem)  # type: ignore[attr-defined]
    messages = np.random.default_rng(0).standard_normal((given.agents, given.features))
    norms = np.sqrt(np.vecdot(messages, messages))  # taken when a message arrives
    large = np.ones(2**25)
    worth, times = np.ones(given.agents), list[list[float]]()
    for _ in range(given.repeats):
        asked = sorted(aggregator.sample(state, range(given.agents)))
        state.held[asked], state.norms[asked], state.bases[asked] = messages[asked], norms[asked], 0
        instants = [time.perf_counter()]
        large.sum()
        instants.append(time.perf_counter())
        weights = algorithm.weights(problem, state.release)
        instants.append(time.perf_counter())
        aggregator._vectors(state, weights, worth, np.flatnonzero(state.bases >= 0))
        instants.append(time.perf_counter())
        server = aggregator.release(state, server, worth, 0.0)
        instants.append(time.perf_counter())
        times.append([end - begun for begun, end in pairwise(instants)])
    whole, weighing, vectors, release = (1e3 * median(column) for column in zip(*times, strict=True))
    size = given.agents * given.features * 8
    read = whole * size / large.nbytes
    print(
        f"{given.agents} agents, M = {given.features}, P = {given.regions}, q = {given.q}: {size / 2**20:.1f} MiB of messages"
    )
    print(f"reading them once   {read:8.2f} ms   {size / read / 1e6:6.1f} GB/s")
    print(f"weights             {weighing:8.2f} ms   {weighing / read:6.2f} times that")
    print(f"clip, sum, noise    {vectors:8.2f} ms   {vectors / read:6.2f} times that")
    print(f"the whole release   {release:8.2f} ms   {release / read:6.2f} times that")


if __name__ == "__main__":
    main()
