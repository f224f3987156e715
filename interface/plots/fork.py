"""The figure of a fork: the common trunk and both ways on from it, and what the change does, over time or by when it comes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedbo.objectives.base import Metric
from fedbo.plots.curves import label_panel
from fedbo.plots.plot import PlotError
from fedbo.plots.style import FAINT, STYLE, colours, remark, save, time_label
from fedbo.results.curves import Array, IncumbentTrace, curve, grid, mean_and_error, replicate_means
from fedbo.results.grouping import by_cell_and_algorithm
from fedbo.results.summary import student_factor

if TYPE_CHECKING:
    from fedbo.results.fork import Fork

_POINTS = 400
_SHOWN = 0.75  # of the time of the first fork: when the figure begins


def draw_fork(fork: Fork, path: Path, cell: int = 0) -> Path:
    """Draw the figure of one cell of a fork into a file and give its path; PlotError when there is no such cell."""
    if cell not in {trace.cell for trace in fork.original.traces}:
        raise PlotError(f"no cell {cell} in '{fork.directory}'; give one of its sweep")
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 4.6))
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        _draw_ways(left, fork, cell)
        if len(fork.branches) == 1:
            _draw_gap(right, fork, cell)
        else:
            _draw_effects(right, fork, cell)
        figure.text(
            0.06, 0.955, f"{fork.original.study.study.name}: {', '.join(fork.changes) or 'nothing changed'}", fontsize=11
        )
        figure.subplots_adjust(left=0.075, right=0.98, top=0.84, bottom=0.13, wspace=0.24)
        try:
            save(figure, path, 100)
        except (ValueError, OSError) as error:
            raise PlotError(f"'{path}': no figure can be written there ({error}); name another file") from None
    return path


def _draw_ways(axes: Axes, fork: Fork, cell: int) -> None:
    """Draw each algorithm's best value against time: as it was, dashed after the first fork, and with each branch."""
    colour, metric = colours(fork.original), fork.original.metric(cell)
    times = _times(fork)
    begun = _SHOWN * times[0]  # what happened long before would leave little height for what the change does
    for (number, label), found in by_cell_and_algorithm(fork.original.traces).items():
        if number != cell:
            continue
        x = grid(found, "time", _POINTS)
        was = curve(found, "time", x[(x >= begun) | (x == x[-1])], metric)
        for part, style in ((was.x <= times[0], "-"), (was.x >= times[0], ":")):
            axes.plot(was.x[part], was.mean[part], style, color=colour[label], linewidth=2.0)
        for branch, time in zip(fork.branches, times, strict=True):
            mine = by_cell_and_algorithm(branch.traces)[cell, label]
            on = curve(mine, "time", grid(mine, "time", _POINTS), metric)
            name = label if branch is fork.branches[0] else None
            axes.plot(on.x[on.x >= time], on.mean[on.x >= time], "-", color=colour[label], linewidth=1.4, label=name)
    for time in times:
        axes.axvline(time, color=FAINT, linewidth=0.8)
    label_panel(axes, f"Best {metric.name} against time", time_label(fork.original))
    axes.set_ylabel(f"best {metric.name}, mean over agents")
    axes.legend(loc="upper right" if metric.sign < 0 else "lower right")
    remark(axes, "dotted: as it was")


def _draw_gap(axes: Axes, fork: Fork, cell: int) -> None:
    """Draw by how much the branch differs from the run as it was, over time."""
    colour, metric, (time,) = colours(fork.original), fork.original.metric(cell), _times(fork)
    before = by_cell_and_algorithm(fork.original.traces)
    for (number, label), mine in by_cell_and_algorithm(fork.branches[0].traces).items():
        if number == cell:
            x = np.linspace(time, _end([*mine, *before[cell, label]]), _POINTS)
            mean, half = _gap(mine, before[cell, label], x, metric.sign)
            axes.fill_between(x, mean - half, mean + half, color=colour[label], alpha=0.16, linewidth=0)
            axes.plot(x, mean, color=colour[label], linewidth=2.0, label=label)
    axes.axhline(0.0, color=FAINT, linewidth=0.8)
    label_panel(axes, "Effect over time", time_label(fork.original))
    _name_difference(axes, metric)


def _draw_effects(axes: Axes, fork: Fork, cell: int) -> None:
    """Draw the effect in the end by when the change comes."""
    colour, metric, times = colours(fork.original), fork.original.metric(cell), _times(fork)
    found = [effect for effect in fork.effects() if effect.cell == cell]
    for label in fork.original.study.labels:
        mine = [effect for effect in found if effect.algorithm == label]
        mean = np.array([e.changed.mean - e.original.mean for e in mine])
        ends = np.array([(e.difference.low, e.difference.high) if e.difference else (np.nan, np.nan) for e in mine])
        axes.fill_between(times, ends[:, 0], ends[:, 1], color=colour[label], alpha=0.16, linewidth=0)
        axes.plot(times, mean, "o-", color=colour[label], linewidth=2.0, markersize=4, label=label)
    axes.axhline(0.0, color=FAINT, linewidth=0.8)
    label_panel(axes, "Effect in the end, by when", f"{time_label(fork.original)} of the fork")
    _name_difference(axes, metric)


def _name_difference(axes: Axes, metric: Metric) -> None:
    better = "below" if metric.sign < 0 else "above"
    axes.set_ylabel(f"difference of best {metric.name}: better {better} 0")
    remark(axes, "bands: 95 % over replicates")


def _gap(mine: list[IncumbentTrace], other: list[IncumbentTrace], x: Array, sign: int) -> tuple[Array, Array]:
    """Give the mean paired difference at the places `x (p,)`, and half of its 95 % interval (NaN with one replicate)."""
    found, against = (replicate_means(traces, "time", x) for traces in (mine, other))
    gaps = sign * np.array([found[number] - against[number] for number in sorted(found.keys() & against.keys())])
    mean, error = mean_and_error(gaps)
    return mean, error * (student_factor(len(gaps)) if len(gaps) > 1 else 1.0)


def _times(fork: Fork) -> list[float]:
    """Give the time of each fork, the mean over runs where it is by events."""
    return [float(np.mean(list(branch.manifest["forked"]["at"].values()))) for branch in fork.branches]


def _end(found: list[IncumbentTrace]) -> float:
    return max(float(trace.finished[-1]) for trace in found)
