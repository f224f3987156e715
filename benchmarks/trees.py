"""Time of `ask` and `tell` for one pull of the methods that grow a tree, against the number of pulls.

A first run on Garland with noise records its values. A second run with the same values pulls the same points, so the objective
is not called while the clock runs. "Core" is the tree alone, without the decision, its array and its state. Each line is a
stretch of the run, with the median and the least processor time of a hundred parts. Other load makes times longer, so the
least is nearer to the truth.

    python benchmarks/trees.py [--pulls 100000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import math
import os
import time
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fedbo.algorithms.bandits.trees.box_tree import Address, add, best_node, nodes, refresh
from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.objectives.models import formulas

BEST = formulas.garland().best
STRETCHES = (1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def garland(x: float) -> float:
    """Evaluate Garland at a number."""
    return 4.0 * x * (1.0 - x) * (0.75 + 0.25 * (1.0 - math.sqrt(abs(math.sin(60.0 * x)))))


def learn(name: str, pulls: int, seed: int) -> tuple[list[np.ndarray], list[Address], float, int]:
    """Make a run: its values, its nodes, its regret, and how many nodes the tree has at its end."""
    algorithm: Any = entry(name).make()
    streams, rng = Streams(seed, owner=0), np.random.default_rng(seed)
    state = algorithm.agent_init(Problem(1, 1, (0,), 0, 0, agent=0, pulls=pulls), streams)
    values, addresses, regret = [], [], 0.0
    for noise in rng.uniform(-0.1, 0.1, pulls).tolist():
        decision, state = algorithm.ask(state, (), streams)
        addresses.append(state.in_flight[-1][1])
        value = garland(decision.x[0, 0])
        regret += BEST - value
        values.append(np.array([value + noise]))
        state = algorithm.tell(state, decision.x, values[-1])
    return values, addresses, regret, sum(1 for _ in nodes(state.tree, algorithm.branching))


def through_functions(name: str, values: list[np.ndarray]) -> list[float]:
    """Time `ask` and `tell` in microseconds for a pull, in pieces."""
    algorithm: Any = entry(name).make()
    streams = Streams(1, owner=0)
    state = algorithm.agent_init(Problem(1, 1, (0,), 0, 0, agent=0, pulls=len(values)), streams)
    ask, tell, spent = algorithm.ask, algorithm.tell, []
    for piece in pieces(len(values)):
        begun = time.process_time()
        for y in values[piece.start : piece.stop]:
            decision, state = ask(state, (), streams)
            state = tell(state, decision.x, y)
        spent.append(1e6 * (time.process_time() - begun) / len(piece))
    return spent


def on_the_tree(name: str, values: list[np.ndarray]) -> list[float]:
    """Time the search for the node and the count of its value alone, in microseconds for a pull, in pieces."""
    algorithm: Any = entry(name).make()
    k, ancestors, n, spent = algorithm.branching, algorithm.ancestors, len(values), []
    tree = algorithm.agent_init(Problem(1, 1, (0,), 0, 0, agent=0, pulls=n), Streams(1)).tree
    numbers = [float(y[0]) for y in values]
    bounds, told = algorithm.bounds(0, n, 1), 0
    for piece in pieces(n):
        begun = time.process_time()
        for y in numbers[piece.start : piece.stop]:
            tree = add(tree, k, best_node(tree, k, bounds.tau), y, bounds, ancestors)
            told += 1
            if not (told + 1) & told:
                bounds = algorithm.bounds(told, n, 1)
                tree = refresh(tree, k, bounds)
        spent.append(1e6 * (time.process_time() - begun) / len(piece))
    return spent


def pieces(pulls: int) -> list[range]:
    """Cut every stretch of a run into hundredths."""
    ends = [0, *[end for end in STRETCHES if end < pulls], pulls]
    cuts = [np.linspace(a, b, 101).astype(int).tolist() for a, b in zip(ends, ends[1:], strict=False)]
    return [range(a, b) for cut in cuts for a, b in zip(cut, cut[1:], strict=False)]


def main() -> None:
    """Print medians and least times by stretches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pulls", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    for name in ("hct", "t_hoo"):
        values, _, regret, count = learn(name, given.pulls, 0)
        print(f"{name}: regret {regret:.0f} after {given.pulls:,} pulls, {count:,} nodes; microseconds for a pull")
        print("pulls                  ask and tell: median   least   on the tree: median   least")
        times = [[run(name, values) for _ in range(given.repeats)] for run in (through_functions, on_the_tree)]
        cuts = pieces(given.pulls)
        for first in range(0, len(cuts), 100):
            whole, core = ([ms for run in runs for ms in run[first : first + 100]] for runs in times)
            label = f"{cuts[first].start:,} to {cuts[first + 99].stop:,}"
            print(f"{label:22s} {median(whole):20.2f} {min(whole):7.2f} {median(core):21.2f} {min(core):7.2f}")


if __name__ == "__main__":
    main()
