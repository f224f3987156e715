"""The theory of Fed-PNE on one page: regret against rounds and clients, and phases against the logarithm of the rounds.

    python benchmarks/theory.py [--replicates 10] [--out theory.png]

All clients have Garland's function on [0, 1], and rewards uniform noise of +-0.1. In theory each client's regret grows as
T^((d + 1) / (d + 2)) and falls as M^(-1 / (d + 2)), d the near-optimality dimension, up to a logarithm, so the exponents
sum to one. Phases grow by at most 1 / (2 log(1 / rho)) with each unit of log T. Slopes are those of straight
lines through logarithms, one for each replicate, and their 95 % Student intervals are over replicates.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedbo
from fedbo.analysis import regret_traces
from fedbo.analysis.summary import paired

Array = np.ndarray[Any, np.dtype[np.float64]]
ROUNDS, CLIENTS = (1000, 3000, 10_000, 30_000, 100_000), (1, 3, 10, 30, 100)
M, T, RHO = 10, 10_000, 0.75


class Swept(NamedTuple):
    """What a sweep gave, each `(values, replicates)`: regret of each client, and phases in which clients sent."""

    regret: Array
    phases: Array


def sweep(key: str, values: tuple[int, ...], replicates: int, folder: Path) -> Swept:
    """Run Fed-PNE for each value of a key."""
    study = {
        "study": {"name": "theory", "replicates": replicates},
        "objective": {"name": "garland", "agents": M, "family": "same", "half_width": 0.1},
        "budget": {"pulls": T},
        "algorithm": [{"name": "fed_pne", "rho": RHO}],
        "exchange": {"mode": "barrier"},
        "sweep": {key: list(values)},
    }
    result = fedbo.run(study, out=folder / key)
    regret, phases = np.zeros((len(values), replicates)), np.zeros((len(values), replicates))
    counts = np.zeros((len(values), replicates))
    for trace in regret_traces(result):
        regret[trace.cell, trace.replicate] += trace.total
        counts[trace.cell, trace.replicate] += 1
    for row in result.events.select(["cell", "replicate", "kind", "step"]).to_pylist():
        if row["kind"] == "sent":
            phases[row["cell"], row["replicate"]] = max(phases[row["cell"], row["replicate"]], row["step"])
    return Swept(regret / counts, phases)


def slopes(x: Array, y: Array) -> Array:
    """Fit a line to each column of `y (values, replicates)`; give the slopes `(replicates,)`."""
    fitted: Array = np.polyfit(x, y, 1)[0]
    return fitted


def interval(values: Array) -> str:
    """Write the mean of one value for each replicate, and its interval."""
    found = paired(values)
    assert found is not None, "two replicates at least"
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def draw(axes: Axes, x: tuple[int, ...], y: Array, label: str) -> None:
    """Draw means with one standard deviation over replicates."""
    axes.errorbar(x, y.mean(axis=1), y.std(axis=1, ddof=1), marker="o", markersize=4, capsize=3)
    axes.set_xscale("log")
    axes.set_xlabel(label)


def main() -> None:
    """Run both sweeps, print the slopes and draw the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("theory.png"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = sweep("budget.pulls", ROUNDS, arguments.replicates, Path(folder))
        clients = sweep("objective.agents", CLIENTS, arguments.replicates, Path(folder))
    of_rounds, of_clients = slopes(np.log(ROUNDS), np.log(rounds.regret)), slopes(np.log(CLIENTS), np.log(clients.regret))
    in_rounds, in_clients = interval(of_rounds), interval(of_clients)
    in_log = interval(slopes(np.log(ROUNDS), rounds.phases))
    print(f"regret as T to the power of      {in_rounds}")
    print(f"regret as M to the power of      {in_clients}")
    print(f"the first less the second        {interval(of_rounds - of_clients)}, 1 by the theory")
    print(f"phases for each unit of log T    {in_log}, at most {1 / (2 * np.log(1 / RHO)):.3g} in the long run")
    for name, values, found in (("T", ROUNDS, rounds), ("M", CLIENTS, clients)):
        for value, regret, phases in zip(values, found.regret, found.phases, strict=True):
            each = f"{regret.mean():8.1f} ± {regret.std(ddof=1):.1f}"
            print(f"{name} = {value:>7,}: regret of each client {each}, phases {phases.mean():.1f}")
    figure = Figure(figsize=(11.0, 3.6), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    draw(first, ROUNDS, rounds.regret, f"rounds T, {M} clients")
    draw(second, CLIENTS, clients.regret, f"clients M, {T:,} rounds")
    draw(third, ROUNDS, rounds.phases, f"rounds T, {M} clients")
    for axes, title in ((first, f"T ^ {in_rounds}"), (second, f"M ^ {in_clients}")):
        axes.set(yscale="log", ylabel="cumulative regret of each client", title=title)
    third.set(ylabel="phases of communication", title=f"log T times {in_log}")
    figure.savefig(arguments.out, dpi=130)


if __name__ == "__main__":
    main()
