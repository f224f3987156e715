"""The table of what the messages of all methods betray, beside what they declare, their epsilon, and their gain.

Every method that sends is attacked in five families of federations: those from which `benchmarks/federations.py` draws its
federations of functions, with agents that are alike to a degree. Agents begin with unequal numbers of evaluations, and make ten
decisions. Scores are in per cent of the range from the worst to the best method of a federation.

    python -m fedbo_leak.table --out FOLDER [--short] [--seeds 20] [--methods NAME ...] [--federations NAME ...]

Each cell, one method in one federation with all seeds, is a line of FOLDER/cells.jsonl; run it again to continue. The table is
printed in Markdown, and FOLDER/leakage.png is the figure of gain against leakage.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import catalogue, entry
from fedbo.study.document import StudyError
from fedbo.study.study import Study, load_study
from fedbo_leak.attacks import best_point, identity, membership, observations
from fedbo_leak.leak import method_row
from fedbo_leak.measuring import LeakRow, measure
from fedbo_leak.readings import AGENT, COORDINATOR, READER
from fedbo_leak.result import MethodRow
from fedbo_leak.watched import watch

FEDERATIONS: dict[str, dict[str, Any]] = {
    "gp_family": {"name": "gp_family", "agents": 5, "likeness": 0.5},
    "branin": {"name": "branin", "agents": 4, "spread": 0.2},
    "hartmann": {"name": "hartmann", "agents": 4, "spread": 0.1, "dimensions": 3},
    "ackley": {"name": "ackley", "agents": 5, "spread": 0.1},
    "rastrigin": {"name": "rastrigin", "agents": 4, "family": "rotation", "spread": 0.5},
}
SILENT = ("random", "gp_ei", "ts")  # with which gains are compared
CONTROLS = ("_noise", "_uniform", "_shuffled", "_alone", "_centre")
SHOWN = (best_point.BEST, observations.POINTS, observations.OBSERVED, observations.VALUES, membership.MEMBER, identity.SENDER)
SEED = 20261129


class Cell(NamedTuple):
    """One method in one federation: what was measured, and the processor time that it took."""

    federation: str
    method: MethodRow
    rows: list[LeakRow]
    seconds: float


def sending() -> list[str]:
    """Return the names of all methods that send messages, with one control whose messages say nothing."""
    problem = Problem(2, 4, tuple(range(4)), 0, 30, pulls=30)
    names = [name for name in catalogue() if not name.endswith(CONTROLS)]
    return [*(name for name in names if entry(name).make().upload(problem) is not None), "fts_noise"]


def study_of(federation: str, method: str, seeds: int, iterations: int) -> Study:
    """Return the study of a cell; a method that counts evaluations gets four times as many."""
    objective = FEDERATIONS[federation]
    document: dict[str, Any] = {
        "study": {"name": "leakage", "seed": SEED, "replicates": seeds},
        "objective": objective,
        "algorithm": [{"name": method}],
    }
    more = [{"name": "late", "share": 0.5, "initial": 6}]
    try:
        return load_study({**document, "budget": {"iterations": iterations}, "agents": {"initial": 3}, "group": more})
    except StudyError:
        return load_study({**document, "budget": {"pulls": 4 * iterations}})


def cell_of(federation: str, method: str, seeds: int, iterations: int) -> Cell:
    """Carry out a cell."""
    begun = process_time()
    with tempfile.TemporaryDirectory(prefix="fedbo-leak-") as place:
        heard = [run for run in watch(study_of(federation, method, seeds, iterations), Path(place)) if run.agents]
    rows = [row for row in measure(method, heard) if row.strongest]
    return Cell(federation, method_row(method, heard, rows), rows, process_time() - begun)


def cells(file: Path, wanted: Sequence[tuple[str, str]], seeds: int, iterations: int) -> Iterator[Cell]:
    """Yield the cells that a file has, and carry out the others."""
    there = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        found = json.loads(line)
        rows = [LeakRow(**row) for row in found["rows"]]
        there[found["federation"], found["method"]["algorithm"]] = Cell(
            found["federation"], MethodRow(**found["method"]), rows, found["seconds"]
        )
    for federation, method in wanted:
        if (federation, method) not in there:
            cell = there[federation, method] = cell_of(federation, method, seeds, iterations)
            document = {**cell._asdict(), "method": asdict(cell.method), "rows": [asdict(row) for row in cell.rows]}
            with file.open("a", encoding="utf-8") as log:
                log.write(json.dumps(document) + "\n")
        yield there[federation, method]


def scores(found: Sequence[Cell]) -> dict[str, float]:
    """Return the mean score of each method over federations, in per cent of the range of all methods in each."""
    shares: dict[str, list[float]] = {}
    for federation in {cell.federation for cell in found}:
        best = {cell.method.algorithm: cell.method.best for cell in found if cell.federation == federation}
        low, high = min(best.values()), max(best.values())
        for name, value in best.items():
            shares.setdefault(name, []).append(100.0 * (value - low) / ((high - low) or 1.0))
    return {name: float(np.mean(values)) for name, values in shares.items()}


def leakage(found: Sequence[Cell], method: str, view: str, target: str) -> tuple[float, float]:
    """Return the mean leakage over federations with half of its 95 % interval; NaN where nothing was attacked."""
    values = [
        row.leakage
        for cell in found
        if cell.method.algorithm == method
        for row in cell.rows
        if (row.view, row.target) == (view, target)
    ]
    if not values:
        return math.nan, math.nan
    if len(values) < 2:
        return values[0], math.nan
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


def lines_of(found: Sequence[Cell]) -> list[str]:
    """Return the table in Markdown: leakage to a coordinator by target, the largest to another agent and to a reader."""
    names = [*dict.fromkeys(cell.method.algorithm for cell in found)]
    score = scores(found)
    head = ["method", "reveals", "measured", *SHOWN, "another agent", "reader", "epsilon", "score"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in names:
        own = [cell.method for cell in found if cell.method.algorithm == name]
        words = [row.measured for row in own]
        cost = max((row.epsilon for row in own if math.isfinite(row.epsilon)), default=math.nan)
        parts = [
            f"`{name}`",
            own[0].declared,
            max(set(words), key=words.count),
            *(_shown(*leakage(found, name, COORDINATOR, target)) for target in SHOWN),
            *(_shown(_most(found, name, view), math.nan) for view in (AGENT, READER)),
            "" if math.isnan(cost) else f"{cost:.2g}",
            f"{score[name]:.0f}",
        ]
        lines.append(f"| {' | '.join(parts)} |")
    return lines


def _most(found: Sequence[Cell], name: str, view: str) -> float:
    values = [leakage(found, name, view, target)[0] for target in SHOWN[:5]]
    return max((value for value in values if math.isfinite(value)), default=math.nan)


def _shown(value: float, half: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.2f}" if math.isnan(half) else f"{value:.2f} ± {half:.2f}"


def draw(found: Sequence[Cell], path: Path) -> None:
    """Draw score against the leakage of best points and of values to a coordinator."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    score = scores(found)
    for axes, target in zip(figure.subplots(1, 2, sharey=True), (best_point.BEST, observations.VALUES), strict=True):
        for name, height in score.items():
            value, half = leakage(found, name, COORDINATOR, target)
            value, half = (0.0, 0.0) if math.isnan(value) else (value, 0.0 if math.isnan(half) else half)
            is_private = next(cell.method.declared for cell in found if cell.method.algorithm == name) == "noisy sums"
            axes.errorbar(value, height, xerr=half, fmt="s" if is_private else "o", markersize=4, linewidth=0.7)
            axes.annotate(name, (value, height), xytext=(3, 3), textcoords="offset points", fontsize=6)
        axes.set_xlabel(f"leakage to a curious coordinator: {target}")
        axes.set_xlim(-0.05, 1.1)
    figure.axes[0].set_ylabel("score in % of the range of methods")
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out the cells that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--short", action="store_true", help="one federation, three seeds, four decisions")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--federations", nargs="+", choices=FEDERATIONS, default=[*FEDERATIONS])
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    seeds, iterations = (3, 4) if given.short else (given.seeds, 10)
    federations = given.federations[:1] if given.short else given.federations
    wanted = [(federation, name) for federation in federations for name in given.methods or [*SILENT, *sending()]]
    found = list[Cell]()
    for cell in cells(given.out / "cells.jsonl", wanted, seeds, iterations):
        found.append(cell)
        print(f"{cell.federation} {cell.method.algorithm} {cell.method.measured} {cell.seconds:.0f} s", flush=True)
    print("\n".join(["", *lines_of(found)]))
    draw(found, given.out / "leakage.png")


if __name__ == "__main__":
    main()
