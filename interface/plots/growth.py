"""The growth of histories: t_n against time, a line for each agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from fedbo.plots.cells import SHADES
from fedbo.plots.marks import CRASH
from fedbo.plots.style import FAINT, time_label
from fedbo.results.curves import IncumbentTrace
from fedbo.results.grouping import of_kinds
from fedbo.results.timeline_bars import horizon, one_run

if TYPE_CHECKING:
    from fedbo.results.result import Result


def draw_growth(axes: Axes, result: Result, cell: int, label: str) -> None:
    """Draw the good observations that each agent had when, in the first replicate, the fastest agent darkest."""
    mine = [trace for trace in result.traces if (trace.cell, trace.algorithm) == (cell, label)]
    replicate = min(trace.replicate for trace in mine)
    mine = sorted((trace for trace in mine if trace.replicate == replicate), key=_pace)
    last = dict[int, int]()
    for rank, trace in enumerate(mine):
        count = np.cumsum(~np.isnan(trace.score))
        last[trace.agent] = int(count[-1])
        shade = SHADES(rank / max(1, len(mine) - 1))
        x, y = np.append(0.0, trace.finished), np.append(0, count)
        axes.plot(x, y, drawstyle="steps-post", color=shade, linewidth=1.3 if len(mine) <= 40 else 0.8, alpha=0.9)
        axes.plot(x[-1:], y[-1:], "o", color=shade, markersize=3.5, markeredgewidth=0)
    gone = of_kinds(one_run(result.events, cell, label, replicate), "crashed").select(["agent", "time", "detail"]).to_pylist()
    lost = [(row["time"], last[row["agent"]]) for row in gone if row["detail"] == "for good" and row["agent"] in last]
    if lost:
        axes.plot(*zip(*lost, strict=True), "X", color=CRASH, markersize=8.5, markeredgecolor="white", label="lost for good")
        axes.legend(loc="lower right")
    axes.set_title(
        f"Observations so far: {label}, replicate {replicate}", y=1.0
    )  # a place that the bar above the panel cannot shift
    axes.set_xlabel(time_label(result))
    axes.set_ylabel("$t_n$, good observations of each agent")
    axes.set_xlim(0, horizon([float(trace.finished[-1]) for trace in mine]))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _speed_legend(axes)


def _pace(trace: IncumbentTrace) -> float:
    return float(trace.finished[-1]) / len(trace.step)


def _speed_legend(axes: Axes) -> None:
    inset = axes.inset_axes((0.78, 1.045, 0.12, 0.022))
    axes.figure.colorbar(ScalarMappable(Normalize(0, 1), SHADES), cax=inset, orientation="horizontal")
    inset.set_axis_off()
    for place, word, side in ((0.77, "fast", "right"), (0.91, "slow", "left")):
        axes.text(place, 1.056, word, transform=axes.transAxes, ha=side, va="center", fontsize=9, color=FAINT)
