"""The table of what the messages of all methods betray, beside what they declare, their epsilon, and their gain.

Every method that sends is attacked in five families of federations: those from which `benchmarks/federations.py` draws its
federations of functions, with agents that are alike to a degree. Agents begin with unequal numbers of evaluations, and make ten
decisions. Scores are in per cent of the range from the worst to the best method of a federation; a gain is a score less that of
agents alone.

    python -m fedbo_leak.table --out FOLDER [--short] [--seeds 20] [--methods NAME ...] [--federations NAME ...]

Each cell, one method in one federation with all seeds, is a line of FOLDER/cells.jsonl; run it again to continue. The table is
printed in Markdown, and FOLDER/leakage.png is the figure of gain against leakage.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from scipy import optimize, stats

from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import catalogue, entry
from fedbo.algorithms.reveals import Reveals
from fedbo.figures.style import COLOURS, FAINT
from fedbo.study.document import StudyError
from fedbo.study.study import Study, load_study
from fedbo_leak.attacks import best_point, identity, membership, observations
from fedbo_leak.leak import is_private, method_row, view_of
from fedbo_leak.measuring import LeakRow, measure
from fedbo_leak.readings import AGENT, COORDINATOR, READER
from fedbo_leak.result import MethodRow, measured
from fedbo_leak.watched import watch

FEDERATIONS: dict[str, dict[str, Any]] = {
    "gp_family": {"name": "gp_family", "agents": 5, "likeness": 0.5},
    "branin": {"name": "branin", "agents": 4, "spread": 0.2},
    "hartmann": {"name": "hartmann", "agents": 4, "spread": 0.1, "dimensions": 3},
    "ackley": {"name": "ackley", "agents": 5, "spread": 0.1},
    "rastrigin": {"name": "rastrigin", "agents": 4, "family": "rotation", "spread": 0.5},
}
ALONE = "gp_ei"  # with which gains are compared
SILENT = ("random", ALONE, "ts")
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


def kept(file: Path) -> dict[tuple[str, str], Cell]:
    """Return the cells of a file by federation and method."""
    there = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        found = json.loads(line)
        method, rows = MethodRow(**found["method"]), [LeakRow(**row) for row in found["rows"]]
        there[found["federation"], method.algorithm] = Cell(found["federation"], method, rows, found["seconds"])
    return there


def cells(file: Path, wanted: Sequence[tuple[str, str]], seeds: int, iterations: int) -> Iterator[Cell]:
    """Yield the cells that a file has, and carry out the others."""
    there = kept(file)
    for federation, method in wanted:
        if (federation, method) not in there:
            cell = there[federation, method] = cell_of(federation, method, seeds, iterations)
            document = {**cell._asdict(), "method": asdict(cell.method), "rows": [asdict(row) for row in cell.rows]}
            with file.open("a", encoding="utf-8") as log:
                log.write(json.dumps(document) + "\n")
        yield there[federation, method]


def scores(found: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Return the score of each method by federation, in per cent of the range of all methods there."""
    shares: dict[str, dict[str, float]] = {}
    for federation in dict.fromkeys(cell.federation for cell in found):
        best = {cell.method.algorithm: cell.method.best for cell in found if cell.federation == federation}
        low, high = min(best.values()), max(best.values())
        for name, value in best.items():
            shares.setdefault(name, {})[federation] = 100.0 * (value - low) / ((high - low) or 1.0)
    return shares


def gains(found: Sequence[Cell]) -> dict[str, tuple[float, float]]:
    """Return by how much the score of each method is above that of agents alone, with half of its 95 % interval."""
    own = scores(found)
    alone = own.get(ALONE, {})
    return {
        name: mean_of([score - alone[federation] for federation, score in each.items() if federation in alone])
        for name, each in own.items()
    }


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over federations with half of its 95 % interval; NaN where there are too few."""
    if len(values) < 2:
        return (values[0] if values else math.nan), math.nan
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


def leakage(found: Sequence[Cell], method: str, view: str, target: str) -> tuple[float, float]:
    """Return the mean leakage over federations with half of its 95 % interval; NaN where nothing was attacked."""
    return mean_of(
        [
            row.leakage
            for cell in found
            if cell.method.algorithm == method
            for row in cell.rows
            if (row.view, row.target) == (view, target)
        ]
    )


def measured_words(found: Sequence[Cell]) -> dict[str, str]:
    """Return what was measured of each method: the most that attacks clearly found in any federation."""
    words: dict[str, list[str]] = {}
    for cell in found:
        made = entry(cell.method.algorithm).make()
        words.setdefault(cell.method.algorithm, []).append(measured(cell.rows, is_private(made), view_of(made)))
    return {name: min(each, key=[*Reveals].index) for name, each in words.items()}


def lines_of(found: Sequence[Cell]) -> list[str]:
    """Return the table in Markdown: leakage to a coordinator by target, the largest to another agent and to a reader."""
    words, gain = measured_words(found), gains(found)
    head = ["method", "reveals", "measured", *SHOWN, "another agent", "reader", "epsilon", "gain"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in words:
        own = [cell.method for cell in found if cell.method.algorithm == name]
        cost = max((row.epsilon for row in own if math.isfinite(row.epsilon)), default=math.nan)
        parts = [
            f"`{name}`",
            own[0].declared,
            words[name],
            *(_shown(*leakage(found, name, COORDINATOR, target)) for target in SHOWN),
            *(_shown(*most(found, name, view)) for view in (AGENT, READER)),
            "" if math.isnan(cost) else f"{cost:.2g}",
            _signed(*gain[name]),
        ]
        lines.append(f"| {' | '.join(parts)} |")
    return lines


def most(found: Sequence[Cell], name: str, view: str) -> tuple[float, float]:
    """Return the largest leakage of a method to a view over all targets but the sender, with half of its interval."""
    each = [leakage(found, name, view, target) for target in SHOWN if target != identity.SENDER]
    return max((one for one in each if math.isfinite(one[0])), default=(math.nan, math.nan))


def _shown(value: float, half: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.2f}" if math.isnan(half) else f"{value:.2f} ± {half:.2f}"


def _signed(value: float, half: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:+.0f}" if math.isnan(half) else f"{value:+.0f} ± {half:.0f}"


def draw(found: Sequence[Cell], path: Path) -> None:
    """Draw the gain of each method against its leakage: of best points and of values to a coordinator, of all to a reader."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.5), layout="constrained")
    gain, declared = gains(found), {cell.method.algorithm: cell.method.declared for cell in found}
    labels = list[tuple[Any, dict[str, tuple[float, float]]]]()
    panels: dict[str, Callable[[str], tuple[float, float]]] = {
        "best points, to a curious coordinator": lambda name: leakage(found, name, COORDINATOR, best_point.BEST),
        "values, to a curious coordinator": lambda name: leakage(found, name, COORDINATOR, observations.VALUES),
        "the most of all targets, to a reader of all answers": lambda name: most(found, name, READER),
    }
    for axes, (title, leaked) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        shown = {name: leaked(name) for name in gain}
        shown = {name: one for name, one in shown.items() if math.isfinite(one[0]) and math.isfinite(gain[name][0])}
        for name, (value, half) in shown.items():
            height, margin = gain[name]
            look = {"color": COLOURS[[*Reveals].index(Reveals(declared[name]))], "linewidth": 0.4, "markersize": 4}
            spread = {"xerr": 0.0 if math.isnan(half) else half, "yerr": 0.0 if math.isnan(margin) else margin}
            axes.errorbar(value, height, fmt="s" if declared[name] == Reveals.NOISY_SUMS else "o", **spread, **look)
        axes.axhline(0.0, color=FAINT, linewidth=0.8)
        axes.set_xlim(-0.05, 1.05)
        axes.set_yscale("symlog", linthresh=10.0)  # bandits, which make other numbers of evaluations, are far below
        axes.set_yticks(ticks := [-80, -40, -20, -10, -5, 0, 5, 10, 20], [f"{tick:+d}" for tick in ticks])
        labels.append((axes, {name: (value, gain[name][0]) for name, (value, _) in shown.items()}))
        axes.set_xlabel(f"leakage of {title}")
    for axes, points in labels:  # now that the common range of heights is known
        _label(axes, points)
    words = {Reveals(word): None for word in Reveals if word in declared.values() and word != Reveals.NOTHING}
    handles = [Line2D([], [], color=COLOURS[[*Reveals].index(word)], marker="o", linestyle="", label=word) for word in words]
    figure.axes[1].legend(handles=handles, title="declared", fontsize=7, title_fontsize=7, loc="lower left")
    figure.axes[0].set_ylabel(f"score above that of {ALONE}, in % of the range of methods")
    figure.savefig(path, dpi=130)


def _label(axes: Any, points: dict[str, tuple[float, float]]) -> None:
    """Write the names beside a panel at the heights of their points, moved apart, each with a line to its point."""
    names, apart = sorted(points, key=lambda name: points[name][1]), 1 / 48
    data, panel = axes.transData, axes.transAxes.inverted()
    places = np.array([panel.transform(data.transform(points[name]))[1] for name in names])
    steps = apart * np.arange(len(names))
    heights = optimize.isotonic_regression(places - steps).x + steps  # as near to the points as order and distance let them be
    for name, height in zip(names, heights.tolist(), strict=True):
        axes.annotate(
            name,
            points[name],
            xytext=(1.06, height),
            textcoords="axes fraction",
            fontsize=6,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.4},
        )


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
