"""Which method when: every method on every task of a benchmark, minus local methods and its controls, early and late.

    fedbo bench benchmarks/tuning --to bench
    python benchmarks/methods.py bench [--figure methods.png]

It reads complete runs and prints Markdown. An agent's scores are in units of the range between the worst and the best score of
any method for it, the worst of which also counts before the first feasible point; a replicate's value is the mean over its
agents. Intervals and tests are paired over replicates, so they hold for these agents. With a single replicate they are paired
over agents, and hold for that replicate. Holm's correction covers all comparisons of a task.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import ttest_rel

import fedbo
from fedbo.analysis.grouping import grouped
from fedbo.analysis.result import Result
from fedbo.figures.style import COLOURS, STYLE

Array = npt.NDArray[np.float64]
EARLY = (1, 3, 5, 10)  # iterations, and then the last one
# The agent half of each method without messages.
ALONE = {
    "dp_fts_de": "ts",
    "fts": "ts",
    "fed_prior": "fed_prior_alone",
    "share_best": "gp_ei",
    "rgpe": "gp_ei",
    "taf": "gp_ei",
    "pooled": "ts",
}
LOCAL = ("ts", "gp_ei")
SOURCE = "Measured once, with the commands above."
DRAWN = ("random", "ts", "gp_ei", "fts", "fed_prior", "share_best", "rgpe", "pooled")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A method minus another at each time: mean, half width of its 95 % interval, and p value, each `(t,)`."""

    method: str
    other: str
    mean: Array
    half: Array
    p: Array


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the bench: the best value so far of each method at places of its axis, in native units and of the range.

    `native` and `share` are `(replicates, agents, places)`; `sent` are the bytes that an agent sends in all.
    """

    result: Result
    axis: str
    at: Array
    native: dict[str, Array]
    share: dict[str, Array]
    sent: dict[str, float]

    @property
    def name(self) -> str:
        """Name the task."""
        return self.result.study.study.name


def task_of(result: Result) -> Task:
    """Read a task: by iterations, or where its budget is a time, by shares of that time."""
    end, study = result.study.budget.time, result.study
    axis = "iteration" if end is None else "time"
    at = np.array([*EARLY, study.budget.iterations], dtype=np.float64)
    if end is not None:
        at = end * np.array([0.25, 0.5, 0.75, 1.0])
    found = grouped(result.traces, lambda trace: trace.agent)
    ends = {agent: _ends([trace.score for trace in mine]) for agent, mine in found.items()}
    native, share = dict[str, Array](), dict[str, Array]()
    for method, mine in grouped(result.traces, lambda trace: trace.algorithm).items():
        own = grouped(mine, lambda trace: trace.replicate)
        best = {
            number: [
                _best(trace, axis, at, ends[trace.agent][0] if study.metric else trace.first)
                for trace in sorted(own[number], key=lambda one: one.agent)
            ]
            for number in own
        }
        native[method] = np.array([best[number] for number in sorted(best)])
        low, span = np.array([ends[agent] for agent in sorted(ends)]).T
        share[method] = (native[method] - low[:, None]) / span[:, None]
    sent = {row.algorithm: row.bytes_up for row in result.summary()}
    return Task(result, axis, at, native, share, sent)


def _ends(scores: list[Array]) -> tuple[float, float]:
    seen = np.concatenate(scores)
    seen = seen[np.isfinite(seen)]
    return (float(seen.min()), float(np.ptp(seen)) or 1.0) if len(seen) else (0.0, 1.0)


def _best(trace: object, axis: str, at: Array, before: float) -> Array:
    """Give the best values at places of an axis, and `before` where there is none yet."""
    found = trace.at(axis, at)  # type: ignore[attr-defined]
    return np.where(np.isnan(found), before, found)


def comparisons(task: Task) -> list[Comparison]:
    """Compare every federated method with the agent alone, with other local methods, and with its controls."""
    found = []
    for method, alone in ALONE.items():
        controls = (f"{method}_{word}" for word in ("noise", "shuffled", "uniform"))
        for other in dict.fromkeys((alone, *LOCAL, *controls)):
            if method in task.share and other in task.share:
                found.append(_compared(task, method, other))
    return found


def _units(found: Array) -> Array:
    """Give what intervals are over, `(n, places)`: the means of replicates, or of a single replicate its agents."""
    return np.asarray(found.mean(axis=1) if len(found) > 1 else found[0])


def _compared(task: Task, method: str, other: str) -> Comparison:
    ours, theirs = _units(task.share[method]), _units(task.share[other])
    with np.errstate(all="ignore"):
        test = ttest_rel(ours, theirs)
        interval = test.confidence_interval(0.95)
    p = np.where(np.isnan(test.pvalue), 1.0, test.pvalue)
    return Comparison(method, other, (ours - theirs).mean(axis=0), (interval.high - interval.low) / 2.0, p)


def holm(chances: Array) -> Array:
    """Give the p values `(n,)` that Holm's procedure makes of p values `(n,)`."""
    order = np.argsort(chances)
    raised = np.maximum.accumulate(chances[order] * np.arange(len(chances), 0, -1))
    back = np.empty_like(raised)
    back[order] = np.minimum(raised, 1.0)
    return back


def values_table(task: Task) -> str:
    """Write what every method has found, and what an agent sends for it."""
    count, agents = len(next(iter(task.native.values()))), len(task.result.study.targets)
    metric = task.result.metric()
    lines = [f"## `{task.name}`: {agents} agents, {count} replicate{'s' * (count > 1)}; {metric.name}", "", SOURCE, ""]
    lines += [f"| | {' | '.join(_headings(task))} | sent by an agent |", "|---" * (len(task.at) + 2) + "|"]
    means = {method: found.mean(axis=(0, 1)) for method, found in task.native.items()}
    leaders = [max(means, key=lambda method: float(means[method][place])) for place in range(len(task.at))]
    for method, mean in means.items():
        cells = [
            f"**{value:.4g}**" if leaders[place] == method else f"{value:.4g}"
            for place, value in enumerate(np.asarray(metric.native(mean)))
        ]
        sent = f"{task.sent[method] / 1024.0:.1f} KiB" if task.sent[method] else ""
        lines.append(f"| `{method}` | {' | '.join(cells)} | {sent} |")
    return "\n".join(lines)


def differences_table(task: Task) -> str:
    """Write the paired differences, in per cent of an agent's range."""
    found = comparisons(task)
    corrected = holm(np.concatenate([one.p for one in found])).reshape(-1, len(task.at))
    lines = [f"| | minus | {' | '.join(_headings(task))} |", "|---" * (len(task.at) + 2) + "|"]
    for one, chances in zip(found, corrected, strict=True):
        cells = [
            f"{100 * mean:+.1f} ± {100 * half:.1f}{' *' if p < 0.05 else ''}"
            for mean, half, p in zip(one.mean, one.half, chances, strict=True)
        ]
        lines.append(f"| `{one.method}` | `{one.other}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _headings(task: Task) -> list[str]:
    return [f"t = {place:g}" if task.axis == "iteration" else f"time {place:g}" for place in task.at]


def stopping_table(without: Task, stopped: Task) -> str:
    """Write what stopping early changes for each method, at the same virtual times."""
    lines = [f"## `{stopped.name}` minus `{without.name}`", "", SOURCE, ""]
    lines += [f"| | {' | '.join(_headings(stopped))} |", "|---" * (len(stopped.at) + 1) + "|"]
    for method in stopped.native:
        ours, theirs = _units(stopped.native[method]), _units(without.native[method])
        test = ttest_rel(ours, theirs)
        half = np.ptp(np.array(test.confidence_interval(0.95)), axis=0) / 2.0
        cells = [f"{m:+.4f} ± {h:.4f}" for m, h in zip((ours - theirs).mean(axis=0), half, strict=True)]
        lines.append(f"| `{method}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def drawn(tasks: list[Task]) -> Figure:
    """Draw the best value so far of the chief methods on every task, as a share of the range."""
    with rc_context(STYLE):
        columns = min(3, len(tasks))
        rows = -(-len(tasks) // columns)
        figure = Figure(figsize=(4.2 * columns, 3.3 * rows), layout="constrained")
        for place, task in enumerate(tasks):
            axes = figure.add_subplot(rows, columns, place + 1, title=task.name)
            for number, method in enumerate(method for method in DRAWN if method in task.share):
                mean = task.share[method].mean(axis=(0, 1))
                line = ":" if method in ("random", "pooled") else "--" if method in ("ts", "gp_ei") else "-"
                colour = COLOURS[number % len(COLOURS)]
                axes.plot(task.at, 100 * mean, line, color=colour, marker="o", markersize=3, label=method)
            axes.set_xlabel("iteration" if task.axis == "iteration" else "virtual time")
            if place % columns == 0:
                axes.set_ylabel("best so far, % of the range")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(DRAWN))
        return figure


def main() -> None:
    """Print the tables of all tasks that are whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path, help="folder of a benchmark run")
    parser.add_argument("--figure", type=Path, default=None)
    given = parser.parse_args()
    runs = sorted(path.parent for path in given.bench.glob("runs/*/observations.parquet"))
    tasks = {task.name: task for task in (task_of(fedbo.Result.open(run)) for run in runs)}
    for task in tasks.values():
        print(f"{values_table(task)}\n\n{differences_table(task)}\n", flush=True)
    for name, task in tasks.items():
        other = tasks.get(f"{name.removesuffix('asha')}time")
        if name.endswith("-asha") and other is not None:
            print(stopping_table(other, task))
    if given.figure is not None:
        figure = drawn(list(tasks.values()))
        FigureCanvasAgg(figure)
        figure.savefig(given.figure, dpi=110)


if __name__ == "__main__":
    main()
