"""The growth of histories: t_n against time, a line for each agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedbo.analysis.curves import IncumbentTrace
from fedbo.analysis.grouping import of_kinds
from fedbo.analysis.timeline_bars import horizon, one_run
from fedbo.figures.cells import SHADES
from fedbo.figures.marks import CRASH
from fedbo.figures.style import time_label

if TYPE_CHECKING:
    from fedbo.analysis.result import Result


def draw_growth(axes: Axes, result: Result, cell: int, label: str) -> Sequence[Artist]:
    """Draw the good observations that each agent had when, in the first replicate, the fastest agent darkest."""
    mine = [trace for trace in result.traces if (trace.cell, trace.algorithm) == (cell, label)]
    replicate = min(trace.replicate for trace in mine)
    mine = sorted((trace for trace in mine if trace.replicate == replicate), key=_pace)
    shades = [SHADES(rank / max(1, len(mine) - 1)) for rank in range(len(mine))]
    last = dict[int, int]()
    for shade, trace in zip(shades, mine, strict=True):
        count = np.cumsum(~np.isnan(trace.score))
        last[trace.agent] = int(count[-1])
        x, y = np.append(0.0, trace.finished), np.append(0, count)
        axes.plot(x, y, drawstyle="steps-post", color=shade, linewidth=1.3 if len(mine) <= 40 else 0.8, alpha=0.9)
        axes.plot(x[-1:], y[-1:], "o", color=shade, markersize=3.5, markeredgewidth=0)
    axes.set_title(f"Observations so far: {label}, replicate {replicate}")
    axes.set_xlabel(time_label(result))
    axes.set_ylabel("$t_n$, good observations")
    axes.set_xlim(0, horizon([float(trace.finished[-1]) for trace in mine]))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    ends = zip(("fastest agent", "slowest agent"), (shades[0], shades[-1]), strict=True)
    handles: list[Artist] = (
        [Line2D([], [], color=shade, linewidth=2, label=word) for word, shade in ends] if len(mine) > 1 else []
    )
    gone = of_kinds(one_run(result.events, cell, label, replicate), "crashed").select(["agent", "time", "detail"]).to_pylist()
    lost = [(row["time"], last[row["agent"]]) for row in gone if row["detail"] == "for good" and row["agent"] in last]
    if lost:
        axes.plot(*zip(*lost, strict=True), "X", color=CRASH, markersize=8.5, markeredgecolor="white")
        handles.append(
            Line2D([], [], linestyle="none", marker="X", color=CRASH, markeredgecolor="white", label="lost for good")
        )
    return handles


def _pace(trace: IncumbentTrace) -> float:
    return float(trace.finished[-1]) / len(trace.step)
