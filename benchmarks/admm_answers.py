"""Accuracy and time of ADMM's answers: a table of a finished run by cell and algorithm, and a figure.

Run `fedbo run examples/admm_stragglers.toml --out RUN`, then `python benchmarks/admm_answers.py RUN`. An answer is the rows of
origin "agreed" of one replicate. Its error is the largest distance of any agent and coordinate, in native units, from the
joint optimum by a closed form or SciPy; its gap is the violation of the constraint.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedbo
from fedbo.algorithms.admm.admm import Allocation, Consensus
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Array, Federation
from fedbo.objectives.coupled.admm_toys import ADMMToy, Plants
from fedbo.objectives.coupled.network_flow import NetworkFlow

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.objectives.coupled.joint_optima import best_flows, plants_allocation, plants_consensus  # noqa: E402

Row = dict[str, Any]


class Answer(NamedTuple):
    """When the last agent's part was there, the error, how far the constraint is missed, and the mean of the agents' values."""

    time: float
    error: float
    gap: float
    score: float


def optimum(federation: Federation, agents: Sequence[Any], method: Any) -> Array | None:
    """Find the joint optimum `(N, d)`; None where nothing but a search could tell it."""
    if isinstance(federation, ADMMToy):
        return federation.joint_optimum
    if isinstance(federation, NetworkFlow):
        flows = best_flows(agents)
        return np.stack([flows[[node - 1, node]] for node in range(len(agents))])
    if not isinstance(federation, Plants):
        return None
    if isinstance(method, Consensus):
        return np.tile(plants_consensus(agents), (len(agents), 1))
    return plants_allocation(agents, total(method), method.sense == "at_most")


def total(method: Allocation) -> Array:
    """Give what there is to be shared in the end."""
    return np.array(method.changes[-1][1:] if method.changes else method.total)


def answers(run: Path) -> dict[tuple[str, str], list[Answer]]:
    """Read the answers of a run, by cell and label."""
    study = fedbo.load_study(run / "study.toml")
    found: dict[tuple[int, str, int], list[Row]] = defaultdict(list)
    for row in fedbo.Result.open(run).observations.to_pylist():
        if row["origin"] == "agreed":
            found[row["cell"], row["algorithm"], row["replicate"]].append(row)
    table: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for (number, label, replicate), rows in sorted(found.items()):
        cell = study.cells()[number]
        table[cell.title, label].append(answer(cell.study, label, replicate, rows))
    return table


def answer(study: fedbo.Study, label: str, replicate: int, rows: Sequence[Row]) -> Answer:
    """Judge the answer of one replicate."""
    method = next(each for each in study.algorithm if each.title == label).make()
    federation, streams = study.federation(), Streams(study.study.seed, replicate)
    own = [streams.of(row["agent"]).rng("objective") for row in rows]
    agents = [federation.objective(row["agent"], streams.shared("objective"), rng) for row, rng in zip(rows, own, strict=True)]
    points = np.array([row["x"] for row in rows])
    best = optimum(federation, agents, method)
    error = np.nan if best is None else np.abs(points - best).max()
    score = np.mean([federation.metric.native(row["score"]) for row in rows])
    return Answer(max(row["finished"] for row in rows), float(error), method.violation(points), float(score))


def draw(table: dict[tuple[str, str], list[Answer]], file: Path) -> None:
    """Draw the median error against the median time, one line for all budgets."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.0), layout="constrained")
    axes, lines = figure.subplots(), defaultdict(list)
    for (title, label), found in table.items():
        name = ", ".join([part for part in title.split(", ") if not part.startswith("budget.")] + [label])
        lines[name].append(np.median([(each.time, each.error) for each in found], axis=0))
    for name, points in lines.items():
        axes.plot(*np.transpose(sorted(map(tuple, points))), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="virtual time of the answer", ylabel="error of the answer")
    axes.axhline(1e-2, color="grey", linewidth=0.8)
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=150)


def main() -> None:
    """Print one row for each cell and algorithm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-2, help="largest error of an accurate answer")
    parser.add_argument("--figure", type=Path, help="write a figure to this file")
    given = parser.parse_args()
    table = answers(given.run)
    width = max(len(", ".join(filter(None, key))) for key in table)
    print(f"{'':<{width}}  {'time':>7} {'error':>8} {'worst':>8} {'gap':>8} {'score':>9} {'near enough':>12}")
    for key, found in table.items():
        time, error, missed, score = np.median(found, axis=0)
        errors = np.array([each.error for each in found])
        near = "" if np.isnan(errors).all() else f"{int((errors <= given.tolerance).sum())} of {len(errors)}"
        name = ", ".join(filter(None, key))
        print(f"{name:<{width}}  {time:>7.1f} {error:>8.4f} {errors.max():>8.4f} {missed:>8.4f} {score:>9.5f} {near:>12}")
    if given.figure:
        draw(table, given.figure)


if __name__ == "__main__":
    main()
