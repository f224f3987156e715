"""What ADMM's answer is worth, and when it is there, by exchange mode and budget: table and figure of a finished run.

Run `fedbo run examples/admm_stragglers.toml --out RUN`, then `python benchmarks/admm_stragglers.py RUN`.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo.algorithms.streams import Streams
from fedbo.objectives.admm_toys import Plants, plants_consensus

Key = tuple[str, int]


def optimum(seed: int, replicate: int, agents: int) -> Any:
    """Find the joint optimum of a replicate's plants with SciPy, from the same draws."""
    plants, streams = Plants(agents=agents), Streams(seed, replicate)
    return plants_consensus([plants.objective(i, streams.shared("objective"), np.random.default_rng(0)) for i in range(agents)])


def measured(run: Path) -> dict[Key, list[tuple[float, float]]]:
    """Give (time of the last answer, its largest error) of every replicate, by mode and budget."""
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    found: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in fedbo.Result.open(run).observations.to_pylist():
        if row["origin"] == "agreed":
            found[row["cell"], row["replicate"]].append(row)
    table: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    for (cell, replicate), rows in found.items():
        swept = manifest["cells"][cell]
        mode = swept["exchange"]
        name = mode["mode"] + (f", oldest {mode['oldest']}" if mode.get("oldest") is not None else "")
        best = optimum(manifest["seed"], replicate, len(rows))
        error = max(float(np.abs(np.array(row["x"]) - best).max()) for row in rows)
        table[name, swept["budget.iterations"]].append((max(row["finished"] for row in rows), error))
    return table


def draw(table: dict[Key, list[tuple[float, float]]], file: Path) -> None:
    """Draw the median error against the median time, one line for each mode."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 3.5), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(name for name, _ in table):
        points = [np.median(table[key], axis=0) for key in sorted(table) if key[0] == name]
        axes.plot(*np.transpose(points), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="virtual time of the answer", ylabel="error of the answer")
    axes.axhline(1e-2, color="grey", linewidth=0.8)
    axes.legend()
    figure.savefig(file, dpi=150)


def main() -> None:
    """Print one row for each mode and budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--figure", type=Path, help="a file for the figure")
    given = parser.parse_args()
    table = measured(given.run)
    print(f"{'exchange':<20} {'iterations':>10} {'time':>8} {'error':>8} {'within 1e-2':>12}")
    for (name, iterations), results in sorted(table.items()):
        times, errors = np.array(results).T
        near = int((errors <= 1e-2).sum())
        print(f"{name:<20} {iterations:>10} {np.median(times):>8.1f} {np.median(errors):>8.4f} {near:>9}/{len(errors)}")
    if given.figure:
        draw(table, given.figure)


if __name__ == "__main__":
    main()
