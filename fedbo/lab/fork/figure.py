"""The figure of a fork: the common trunk, all branches, and the effect of the change over time or by the time of the fork."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedbo.analysis.averages import curve, grid, mean_and_error, replicate_means
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.result import Choices
from fedbo.analysis.summary import student_factor
from fedbo.analysis.traces import Array, IncumbentTrace
from fedbo.figures.cells import SHADES
from fedbo.figures.curves import label_panel, line, value_label
from fedbo.figures.layout import FigurePanel, PlotError, Sheet, arrange, row_labels
from fedbo.figures.plot import View, write
from fedbo.figures.style import FAINT, INK, LINES, band_entry, entries, rows_only, styles
from fedbo.lab.fork.result import BEST, COSTS, Fork, ForkEffect
from fedbo.objectives.base import Metric

_POINTS = 400
_SHOWN = 0.75  # of the time of the first fork: when the figure begins
_MARKS = ("o", "s", "^", "D", "v", "P")
BAND = "95 % over replicates"


def draw_fork(fork: Fork, path: Path | None, cell: int = 0, look: Choices | None = None) -> Path:
    """Draw the figure of one cell of a fork and return its path, by default in its directory; PlotError without such a cell."""
    return write(fork_figure(fork, cell, look), path or fork.directory, "fork", View.of("fork", cell, look or {}).look)


def fork_figure(fork: Fork, cell: int = 0, look: Choices | None = None) -> Figure:
    """Return the figure itself; PlotError if there is no such cell."""
    if cell not in {trace.cell for trace in fork.original.traces}:
        raise PlotError(f"no cell {cell} in '{fork.directory}'; set a cell of its sweep")
    return arrange(_sheet(fork, cell), View.of("fork", cell, look or {}).look)


def _sheet(fork: Fork, cell: int) -> Sheet:
    """Collect the panels of the figure: all runs against time, the effect, and the costs."""
    effects = [effect for effect in fork.effects() if effect.cell == cell]
    one, several = partial(_draw_gap, fork=fork, cell=cell), partial(_draw_effects, fork=fork, effects=effects)
    panels = [FigurePanel("time", partial(_draw_ways, fork=fork, cell=cell))]
    panels.append(FigurePanel("effect", one if len(set(fork.at)) == 1 else several))
    panels.append(FigurePanel("costs", partial(_draw_costs, fork=fork, effects=effects), wide=True, rows=2 * len(COSTS)))
    legend = entries({label: _line_of(fork, label) for label in fork.original.study.labels})
    legend.append(Line2D([], [], color=INK, linestyle=LINES[2], label="original"))
    if len(fork.branches) > 1:
        names = [f"{way or 'fork'} at {at}" for at, way in zip(fork.at, fork.ways, strict=True)]
        legend += entries({name: {"color": _shade(fork, place)} for place, name in enumerate(names)})
    facts = [*(fork.changes or ["no change"]), f"at {', '.join(dict.fromkeys(fork.at))}"]
    return Sheet(panels, legend, f"{fork.original.study.study.name}: a fork", facts)


def _line_of(fork: Fork, label: str) -> dict[str, Any]:
    """Return the options of an algorithm's line; line styles separate original and branch, markers separate algorithms.

    With several branches, colours separate the branches.
    """
    place = fork.original.study.labels.index(label)
    options = {**styles(fork.original)[label], "linestyle": "-", "marker": _MARKS[place % len(_MARKS)]}
    return options if len(fork.branches) == 1 else {**options, "color": INK}


def _shade(fork: Fork, place: int) -> Any:
    return SHADES(place / max(1, len(fork.branches) - 1))


def _draw_ways(axes: Axes, fork: Fork, cell: int) -> Sequence[Artist]:
    """Draw each algorithm's best value: the original, dotted after the first fork, and each branch."""
    metric, times, seen = fork.original.metric(cell), _times(fork), list[Array]()
    begun = _SHOWN * times[0]  # what happened long before would leave little height for what the change does
    for (number, label), found in by_cell_and_algorithm(fork.original.traces).items():
        if number != cell:
            continue
        options = _line_of(fork, label)
        was = curve(found, "time", grid(found, "time", _POINTS), metric)
        line(axes, was, (was.x <= times[0]) & (was.x >= begun), 0.0, **options)
        line(axes, was, was.x >= times[0], 0.0, **{**options, "linestyle": LINES[2]})
        seen.append(was.mean[(was.x >= begun) | (was.x == was.x[-1])])
        for place, (branch, time) in enumerate(zip(fork.branches, times, strict=True)):
            mine = by_cell_and_algorithm(branch.traces)[cell, label]
            on = curve(mine, "time", grid(mine, "time", _POINTS), metric)
            shade = {"color": _shade(fork, place)} if len(fork.branches) > 1 else {}
            line(axes, on, on.x >= time, 0.0, **{**options, **shade})
            seen.append(on.mean[(on.x >= time) | (on.x == on.x[-1])])
    for place, time in enumerate(times):
        axes.axvline(time, color=_shade(fork, place) if len(fork.branches) > 1 else FAINT, linewidth=0.8)
    low, high = float(np.nanmin(np.concatenate(seen))), float(np.nanmax(np.concatenate(seen)))
    margin = 0.06 * (high - low or 1.0)
    axes.set_ylim(low - margin, high + margin)
    label_panel(axes, f"Best {metric.name} against time", fork.original.study.timing.in_words, value_label(metric))
    return ()


def _draw_gap(axes: Axes, fork: Fork, cell: int) -> Sequence[Artist]:
    """Draw the difference between each branch and the original run, over time."""
    metric, time = fork.original.metric(cell), _times(fork)[0]
    before = by_cell_and_algorithm(fork.original.traces)
    for place, branch in enumerate(fork.branches):
        for label in [one for number, one in before if number == cell]:
            mine = by_cell_and_algorithm(branch.traces)[cell, label]
            end = max(float(trace.finished[-1]) for trace in (*mine, *before[cell, label]))
            x = np.linspace(time, end, _POINTS)
            mean, half = _gap(mine, before[cell, label], x, metric.sign)
            options = _line_of(fork, label) | ({"color": _shade(fork, place)} if len(fork.branches) > 1 else {})
            axes.fill_between(x, mean - half, mean + half, color=options["color"], alpha=0.16, linewidth=0)
            axes.plot(x, mean, **options)
    return _label_effect(axes, fork, metric, "Effect over time", fork.original.study.timing.in_words)


def _draw_effects(axes: Axes, fork: Fork, effects: Sequence[ForkEffect]) -> Sequence[Artist]:
    """Draw the final effect against the time of the fork."""
    known, metric, times = styles(fork.original), fork.original.metric(effects[0].cell), _times(fork)
    for label in fork.original.study.labels:
        mine = [effect for effect in effects if effect.algorithm == label and effect.fact == BEST]
        mean = np.array([e.changed.mean - e.original.mean for e in mine])
        ends = np.array([(e.difference.low, e.difference.high) if e.difference else (np.nan, np.nan) for e in mine])
        colour, marker = known[label]["color"], _line_of(fork, label)["marker"]
        axes.fill_between(times, ends[:, 0], ends[:, 1], color=colour, alpha=0.16, linewidth=0)
        axes.plot(times, mean, color=colour, linestyle=known[label]["linestyle"], marker=marker, markersize=4.5)
    return _label_effect(
        axes, fork, metric, "Final effect by time of the fork", f"{fork.original.study.timing.in_words} of the fork"
    )


def _draw_costs(axes: Axes, fork: Fork, effects: Sequence[ForkEffect]) -> Sequence[Artist]:
    """Draw each run's final costs, as a multiple of the original's; a row for each quantity."""
    labels = fork.original.study.labels
    found = [effect for effect in effects if effect.fact in COSTS and effect.original.mean > 0]
    rows = [fact for fact in COSTS if any(effect.fact == fact for effect in found)]
    for effect in found:
        options = _line_of(fork, effect.algorithm)
        place = list(zip(fork.at, fork.ways, strict=True)).index((effect.at, effect.way))
        shade = _shade(fork, place) if len(fork.branches) > 1 else options["color"]
        beside = 0.5 * ((labels.index(effect.algorithm) + 0.5) / len(labels) - 0.5)
        ratio = effect.changed.mean / effect.original.mean
        axes.plot([ratio], [rows.index(effect.fact) + beside], marker=options["marker"], color=shade, markersize=5.5)
    axes.axvline(1.0, color=FAINT, linewidth=0.8)
    low, high = axes.get_xlim()
    axes.set(xlim=(min(low, 0.9), max(high, 1.1)), ylim=(len(rows) - 0.4, -0.6))
    axes.set(title="Effect on costs", xlabel="ratio to the original run, mean over replicates")
    row_labels(axes, [COSTS[fact] for fact in rows])
    rows_only(axes)
    return ()


def _label_effect(axes: Axes, fork: Fork, metric: Metric, title: str, unit: str) -> Sequence[Artist]:
    axes.axhline(0.0, color=FAINT, linewidth=0.8)
    label_panel(axes, title, unit, f"difference of best {metric.name}\n({'below' if metric.sign < 0 else 'above'} 0 is better)")
    return [band_entry(BAND)] if fork.original.study.study.replicates > 1 else []


def _gap(mine: list[IncumbentTrace], other: list[IncumbentTrace], x: Array, sign: int) -> tuple[Array, Array]:
    """Return the mean paired difference at the places `x (p,)`, and half of its 95 % interval (NaN with one replicate)."""
    found, against = (replicate_means(traces, "time", x) for traces in (mine, other))
    gaps = sign * np.array([found[number] - against[number] for number in sorted(found.keys() & against.keys())])
    mean, error = mean_and_error(gaps)
    return mean, error * (student_factor(len(gaps)) if len(gaps) > 1 else 1.0)


def _times(fork: Fork) -> list[float]:
    """Return the time of each fork, the mean over runs for forks at events."""
    return [float(np.mean(list(branch.manifest["forked"]["at"].values()))) for branch in fork.branches]
