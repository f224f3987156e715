"""Asynchronous and synchronous Thompson sampling with 1 to 64 evaluations at once, after Kandasamy et al. 2018, Fig. 1 and 2.

Each agent of a study is a repetition with its own draws. Evaluation times are exponential with mean 1, and the study ends at a
fixed time. Compared are three assumed values of pending points, and synchronous batches.

    python benchmarks/asynchronous.py [--repetitions 20] [--time 10] [--places 1 4 16 64] [--functions branin hartmann]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

import fedbo

Document = dict[str, Any]
FUNCTIONS: dict[str, Document] = {
    "branin": {"name": "branin", "spread": 0.0},
    "hartmann": {"name": "hartmann", "spread": 0.0, "dimensions": 6},
}
VARIANTS = (("hallucinated", "any"), ("constant_liar", "any"), ("ignore", "any"), ("hallucinated", "all"), ("ignore", "all"))


def regrets(objective: Document, places: int, variant: tuple[str, str], given: argparse.Namespace) -> tuple[np.ndarray, float]:
    """Give the simple regret of every repetition at the end, and the mean number of evaluations."""
    values, wait = variant
    document = {
        "study": {"name": "asynchronous", "seed": given.seed},
        "objective": {**objective, "agents": given.repetitions},
        "agents": {"initial": 4},
        "budget": {"iterations": 100_000, "time": given.time},
        "algorithm": [{"name": "ts", "surrogate": "features", "features": 100, "pending_values": values}],
        "timing": {"evaluation": {"model": "exponential", "mean": 1.0}},
        "evaluation": {"parallel": places, "wait": wait},
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        result = fedbo.run(fedbo.load_study(document), out=directory)
        table = pq.read_table(directory / "observations.parquet", columns=["agent", "score"]).to_pydict()
        best = result.manifest["best_values"]["0"]["0"]
    agents, scores = np.array(table["agent"]), np.array(table["score"])
    found = np.array([scores[agents == agent].max() for agent in range(given.repetitions)])
    optimum = np.array([best[str(agent)] for agent in range(given.repetitions)])
    return optimum - found, len(agents) / given.repetitions


def interval(values: np.ndarray) -> str:
    """Write a mean with half the width of its 95 % interval (Student's t)."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.2f} ± {half:.2f}"


def main() -> None:
    """Print decimal logarithms of regrets, and how much larger each is than that of the asynchronous hallucinated one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--time", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--functions", nargs="+", choices=list(FUNCTIONS), default=list(FUNCTIONS))
    parser.add_argument("--places", type=int, nargs="+", default=[1, 4, 16, 64])
    given = parser.parse_args()
    for name in given.functions:
        for places in given.places:
            first: np.ndarray | None = None
            for variant in VARIANTS if places > 1 else VARIANTS[:1]:
                regret, count = regrets(FUNCTIONS[name], places, variant, given)
                logs = np.log10(np.maximum(regret, 1e-9))
                first = logs if first is None else first
                words = f"{name} places {places} {variant[0]} {'asynchronous' if variant[1] == 'any' else 'synchronous'}"
                more = "" if logs is first else f", larger by {interval(logs - first)}"
                print(f"{words}: {count:.0f} evaluations, log10 regret {interval(logs)}{more}", flush=True)


if __name__ == "__main__":
    main()
