"""Early stopping against virtual time: how soon each method reaches the final level of `ts` that stops nothing.

    python benchmarks/early_stopping.py [--objective '{"name": "learning_curves"}'] [--agents 5] [--replicates 10] [--time 20]

A whole evaluation takes one unit of time. The level of a replicate is what `ts` without `[stopping]` has found at the end, as
the mean over agents of the best value observed. A value counts at whatever fidelity it was observed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import fedbo

TS = {"features": 50, "refit": 20}
METHODS: list[dict[str, Any]] = [
    {"name": "random"},
    {"name": "ts", "surrogate": "features", **TS},
    {"name": "fts", "every": 1, "features": 50, "own": {"surrogate": "features", **TS}},
]
STOPPERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "asha": {"kind": "asha"},
    "asha, promote": {"kind": "asha", "variant": "promote"},
    "hyperband": {"kind": "hyperband"},
    "median": {"kind": "median", "grace": 3, "interval": 3},
}
GRID = 400


def curves(directory: Path, given: argparse.Namespace) -> dict[tuple[str, int], np.ndarray]:
    """Give for each method and replicate the mean over agents of the best value by each time of a grid."""
    table = pq.read_table(directory / "observations.parquet").to_pydict()
    times, found = np.linspace(0.0, given.time, GRID + 1)[1:], dict[tuple[str, int], np.ndarray]()
    label, agent, replicate = np.array(table["algorithm"]), np.array(table["agent"]), np.array(table["replicate"])
    value, finished = np.array(table["value"]), np.array(table["finished"])
    for key in {(str(name), int(number)) for name, number in zip(label, replicate, strict=True)}:
        each = []
        for one in np.unique(agent):
            own = (label == key[0]) & (replicate == key[1]) & (agent == one)
            order = np.argsort(finished[own], kind="stable")
            best = np.maximum.accumulate(value[own][order])
            place = np.searchsorted(finished[own][order], times, side="right") - 1
            each.append(np.where(place >= 0, best[np.maximum(place, 0)], -np.inf))
        found[key] = np.mean(each, axis=0)
    return found


def main() -> None:
    """Run every method with every stopper, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--objective", type=json.loads, default={"name": "learning_curves"}, help="as JSON")
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--time", type=float, default=20.0)
    parser.add_argument("--stoppers", nargs="+", default=list(STOPPERS))
    given = parser.parse_args()
    found = dict[tuple[str, str], list[np.ndarray]]()
    with tempfile.TemporaryDirectory() as name:
        for stopper in given.stoppers:
            study: dict[str, Any] = {
                "study": {"name": stopper, "replicates": given.replicates, "seed": 1},
                "objective": {**given.objective, "agents": given.agents},
                "budget": {"iterations": given.iterations, "time": given.time},
                "algorithm": METHODS,
            }
            if STOPPERS[stopper] is not None:
                study["stopping"] = STOPPERS[stopper]
            fedbo.run(study, out=Path(name) / stopper)
            for (method, _), curve in sorted(curves(Path(name) / stopper, given).items()):
                found.setdefault((method, stopper), []).append(curve)
    levels = [curve[-1] for curve in found["ts", "none"]]
    print("| method | stopper | final value | share of the time to the level of `ts`: median (quartiles) | reached |")
    print("|---|---|---|---|---|")
    for (method, stopper), all_curves in found.items():
        reached = [np.flatnonzero(curve >= level) for curve, level in zip(all_curves, levels, strict=True)]
        shares = np.array([(one[0] + 1) / GRID if len(one) else np.inf for one in reached])
        low, middle, high = np.quantile(shares, [0.25, 0.5, 0.75], method="nearest")
        final = np.array([curve[-1] for curve in all_curves])
        error = 1.96 * final.std(ddof=1) / np.sqrt(len(final))
        count = f"{np.isfinite(shares).sum()} of {len(shares)}"
        share = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        print(f"| `{method}` | {stopper} | {final.mean():.4f} ± {error:.4f} | {share} | {count} |")


if __name__ == "__main__":
    main()
