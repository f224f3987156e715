"""The gain of one algorithm of a run over the others, paired by agent and replicate; prints Markdown.

    python benchmarks/pairs.py RUN --of fed_prior --at 1 2 5 10 [--axis time] [--cell 0]

The first table has the mean of the best value so far for each algorithm, in units of the objective's metric. The second has
the differences of the named algorithm to each other one, negative if it is better at a minimised metric, with half the width
of 95 % intervals: over the means of replicates, and over the means of agents. The agents of one replicate receive the same
messages, so an interval over all pairs of agent and replicate would be too narrow.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

import fedbo
from fedbo.analysis.traces import Axis, IncumbentTrace
from fedbo.objectives.base import Metric

Array = npt.NDArray[np.float64]


def half_width(gaps: Array) -> Array:
    """Return half the width of the 95 % interval of the mean of rows `(n, k)`, for each column; NaN of a single row."""
    count = len(gaps)
    if count < 2:
        return np.full(gaps.shape[1], np.nan)
    return np.asarray(student.ppf(0.975, count - 1) * gaps.std(axis=0, ddof=1) / np.sqrt(count))


def values(traces: list[IncumbentTrace], axis: Axis, places: Array, metric: Metric) -> dict[tuple[int, int], Array]:
    """Give the values at `places` of each pair of replicate and agent."""
    return {(one.replicate, one.agent): metric.native(one.at(axis, places)) for one in traces}


def print_row(name: str, cells: list[str]) -> None:
    """Print a row of a table."""
    print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Print both tables of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--of", required=True, help="label of the algorithm to compare with the others")
    parser.add_argument("--at", type=float, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--axis", choices=("iteration", "evaluations", "time", "bytes"), default="iteration")
    parser.add_argument("--cell", type=int, default=0)
    given = parser.parse_args()
    result = fedbo.Result.open(given.run)
    found: dict[str, list[IncumbentTrace]] = {}
    for trace in result.traces:
        if trace.cell == given.cell:
            found.setdefault(trace.algorithm, []).append(trace)
    best = {label: values(traces, given.axis, np.array(given.at), result.metric(given.cell)) for label, traces in found.items()}
    pairs = sorted(best[given.of])
    heads = [f"{given.axis} {place:g}" for place in given.at]
    print_row("", heads)
    print("|---" * (len(heads) + 1) + "|")
    for label, rows in best.items():
        print_row(f"`{label}`", [f"{mean:.4f}" for mean in np.mean([rows[pair] for pair in pairs], axis=0)])
    replicates, agents = np.array(pairs).T
    print(f"\n± over {len(set(replicates))} replicates, in brackets over {len(set(agents))} agents\n")
    print_row(f"`{given.of}` minus", heads)
    print("|---" * (len(heads) + 1) + "|")
    for label, rows in best.items():
        if label == given.of:
            continue
        gaps = np.array([best[given.of][pair] - rows[pair] for pair in pairs])
        halves = [
            half_width(np.array([gaps[of == one].mean(axis=0) for one in sorted(set(of))])) for of in (replicates, agents)
        ]
        columns = zip(gaps.mean(axis=0), *halves, strict=True)
        print_row(f"`{label}`", [f"{mean:+.4f} ± {over:.4f} [{wide:.4f}]" for mean, over, wide in columns])


if __name__ == "__main__":
    main()
