"""The effect of a change by its time, in two forked studies: the loss of an agent, and the end of a barrier.

Prints Markdown. All differences are paired by replicate, on the same draws; a lost agent is left out of both sides.

    python benchmarks/forks.py --out forks --figure docs/images/forks.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedbo
from fedbo.analysis.averages import mean_and_error, replicate_means
from fedbo.analysis.summary import student_factor
from fedbo.analysis.traces import Array
from fedbo.figures.style import COLOURS, FAINT, STYLE
from fedbo.lab.fork.room import ANSWER

EXAMPLES = Path(__file__).parents[1] / "examples"
LOST = {"the best-informed": 0, "another": 1}
KEPT = ("what it said is kept", "and forgotten")  # the cells of the first study
AFTER = (2.0, 5.0, 10.0)  # times after the fork at which the second study is looked at


@dataclass(frozen=True)
class Effects:
    """Mean differences by when the change comes, `(p,)` each, and half of their 95 % intervals."""

    at: Array
    mean: Array
    half: Array

    def cell(self, place: int) -> str:
        """Write one of them."""
        return f"{self.mean[place]:+.3f} ± {self.half[place]:.3f}"


def forked(name: str, every: float, change: str, out: Path) -> fedbo.Fork:
    """Run a study of the examples and fork it into a folder; what is there is read, and what was begun goes on."""
    run, place = out / "run", out / "fork"
    if not (run / "observations.parquet").exists():
        fedbo.run(EXAMPLES / f"{name}.toml", out=run)
    return fedbo.Fork.open(place) if ANSWER.is_in(place) else fedbo.fork(run, every=every, overrides=[change], out=place)


def gaps(fork: fedbo.Fork, branch: int, cell: int, x: Array, lost: int = -1) -> Array:
    """Give the differences `(r, p)` of the mean best value at times `x (p,)` that a branch makes, larger is better."""
    sign = fork.original.metric(cell).sign
    found = []
    for result in (fork.branches[branch], fork.original):
        traces = [trace for trace in result.traces if trace.cell == cell and trace.agent != lost]
        found.append(replicate_means(traces, "time", x, early=True))
    return sign * np.array([found[0][replicate] - found[1][replicate] for replicate in sorted(found[0])])


def effects(at: Sequence[float], samples: Sequence[Array]) -> Effects:
    """Sum samples `(r,)` up, one for each time of a fork."""
    mean, error = mean_and_error(np.array(samples).T)
    return Effects(np.array(at), mean, error * student_factor(len(samples[0])))


def end_of(fork: fedbo.Fork) -> float:
    """Give when the last of all runs has ended."""
    return max(float(trace.finished[-1]) for result in (fork.original, *fork.branches) for trace in result.traces)


def losses(out: Path) -> dict[str, Effects]:
    """Measure what the loss of an agent costs the others: their best value, averaged over the time from it to the end."""
    found = {}
    for cell, kept in enumerate(KEPT):
        for who, lost in LOST.items():
            change = f'fault=[{{kind = "crash", agents = [{lost}], at = "fork"}}]'
            fork = forked("losing_the_best_informed", 1.5, change, out / f"lost-{lost}")
            at, end = [float(each) for each in fork.at], end_of(fork)
            samples = [gaps(fork, place, cell, np.linspace(time, end, 200), lost) for place, time in enumerate(at)]
            found[f"{who} is lost, {kept}"] = effects(at, [each.mean(axis=1) for each in samples])
    return found


def departures(out: Path) -> dict[str, Effects]:
    """Measure what it gives to leave the barrier: the best value at the same time, and after the same evaluations."""
    fork = forked("leaving_the_barrier", 4.0, "exchange.mode=immediate", out / "left")
    at, end = [float(each) for each in fork.at], end_of(fork)
    whole = [gaps(fork, place, 0, np.array([*(time + np.array(AFTER)), end])) for place, time in enumerate(at)]
    names = [*(f"{after:g} later" for after in AFTER), "after all evaluations"]
    return {name: effects(at, [each[:, column] for each in whole]) for column, name in enumerate(names)}


def printed(found: dict[str, Effects]) -> None:
    """Print effects as a table with a line for each time."""
    print(f"| at | {' | '.join(found)} |\n|{'---|' * (1 + len(found))}")
    for place, time in enumerate(next(iter(found.values())).at):
        print(f"| {time:g} | {' | '.join(each.cell(place) for each in found.values())} |")
    print(flush=True)


def drawn(panels: Sequence[tuple[str, str, dict[str, Effects]]], path: Path) -> None:
    """Draw effects against the time of the change."""
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        for axes, (title, across, found) in zip(figure.subplots(1, len(panels)), panels, strict=True):
            draw_panel(axes, found)
            axes.set(title=title, xlabel=across, ylabel="difference of the mean best value, 95 %")
        figure.savefig(path, dpi=90)


def draw_panel(axes: Axes, found: dict[str, Effects]) -> None:
    """Draw the effects of one study."""
    for colour, (name, each) in zip(COLOURS, found.items(), strict=False):
        axes.fill_between(each.at, each.mean - each.half, each.mean + each.half, color=colour, alpha=0.14, linewidth=0)
        axes.plot(each.at, each.mean, "o-", color=colour, markersize=4, linewidth=1.8, label=name)
    axes.axhline(0.0, color=FAINT, linewidth=0.8)
    axes.legend()


def main() -> None:
    """Print both tables, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("forks"), help="folder for runs; finished runs are read")
    parser.add_argument("--figure", type=Path, help="write a figure to this file")
    given = parser.parse_args()
    panels = [
        ("An agent is lost for good", "when it is lost", losses(given.out)),
        ("The barrier is left", "when it is left", departures(given.out)),
    ]
    for _, _, found in panels:
        printed(found)
    if given.figure:
        drawn(panels, given.figure)


if __name__ == "__main__":
    main()
