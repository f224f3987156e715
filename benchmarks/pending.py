"""Points under way, imagined or ignored: agents alone with four evaluations at once on ten federations; prints Markdown.

    python benchmarks/pending.py [--half development] [--seeds 5] [--evaluations 27]

An agent decides whenever one of its four evaluations ends; durations are exponential. `imagined` tells the method which points
are under way, as every study does, so that it decides as if they had values; `ignored` does not. Scores are in per cent of an
agent's range over all that was evaluated with a seed, after as many evaluations. Each federation of `federations.py` counts
once; Holm's correction covers all tests.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from federations import INITIAL, Function, federations, functions
from scipy.stats import ttest_1samp

from fedbo.algorithms.base import Overlapping, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.analysis.summary import holm

Array = npt.NDArray[np.float64]
METHODS = ("gp_ei", "gp_ucb", "ts")
PLACES = 4


def values(function: Function, dim: int, method: str, is_imagined: bool, keys: tuple[int, int], count: int) -> Array:
    """Return the best value after each of `count` evaluations of an agent."""
    algorithm, streams = entry(method).make(), Streams(keys[0]).of(keys[1])
    rng = np.random.default_rng([*keys, 1])
    state = algorithm.agent_init(Problem(dim, 1, (0,), INITIAL, count - INITIAL, agent=0), streams)
    assert isinstance(algorithm, Overlapping)
    x = rng.random((INITIAL, dim))
    found = [function(point) for point in x]
    state = algorithm.tell(state, x, np.array(found))
    under_way: list[tuple[float, int, Array]] = []
    now = 0.0
    for step in range(1, count - INITIAL + 1):
        if len(under_way) == PLACES:
            now, _, point = heapq.heappop(under_way)
            found.append(function(point))
            state = algorithm.tell(state, point[None], np.array(found[-1:]))
        if is_imagined:
            points = [point for _, _, point in sorted(under_way, key=lambda one: one[1])]
            state = algorithm.pending(state, np.array(points).reshape(-1, dim))
        decision, state = algorithm.ask(state, (), streams.at(step))
        heapq.heappush(under_way, (now + rng.exponential(), step, decision.x[0]))
    found += [function(point) for _, _, point in sorted(under_way, key=lambda one: one[:2])]
    return np.maximum.accumulate(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both ways and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("development", "held-out"), default="development")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=27)
    given = parser.parse_args(arguments)
    times = (7, 11, 15, given.evaluations)
    chosen, gaps = [one for one in federations() if one.half == given.half], dict[str, list[Array]]()
    for federation in chosen:
        apart = {name: list[Array]() for name in METHODS}
        for seed in range(given.seeds):
            dim, now, _ = functions(federation, seed)
            for agent, function in enumerate(now):
                rows = {
                    (name, way): values(function, dim, name, way, (seed, agent), given.evaluations)
                    for name in METHODS
                    for way in (True, False)
                }
                ends = np.stack([*rows.values()])
                span = max(float(np.ptp(ends)), 1e-300)
                for name in METHODS:
                    apart[name].append(100.0 * (rows[name, True] - rows[name, False]) / span)
        for name in METHODS:
            gaps.setdefault(name, []).append(np.mean(apart[name], axis=0))
    tests = {(name, t): np.array(rows)[:, t - 1] for name, rows in gaps.items() for t in times}
    chances = holm([float(ttest_1samp(one, 0.0).pvalue) if np.ptp(one) else 1.0 for one in tests.values()])
    corrected = dict(zip(tests, chances, strict=True))
    print(f"| imagined minus ignored, {len(chosen)} federations | {' | '.join(f'{t} evaluations | p' for t in times)} |")
    print("|---" * (1 + 2 * len(times)) + "|")
    for name in METHODS:
        cells = []
        for t in times:
            low, high = ttest_1samp(tests[name, t], 0.0).confidence_interval(0.95)
            cells.append(f"{tests[name, t].mean():+.1f} ± {(high - low) / 2:.1f} | {corrected[name, t]:.2g}")
        print(f"| `{name}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
