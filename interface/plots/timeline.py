"""A timeline of agents: evaluations by kind, waiting, absences and faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from fedbo.plots.marks import corners, draw_marks
from fedbo.plots.style import PALE, rows_only, time_label
from fedbo.results.timeline_bars import Bars, by_speed, evaluation_bars, horizon, one_run, spans_of

if TYPE_CHECKING:
    from fedbo.results.result import Result

EVALUATING = {
    "initial point": "#B9CFE4",
    "own query": "#3E7CB1",
    "federated query": "#E8743B",
    "failed or forgotten": "#F2B8B5",
    "work lost": "#F6E3A8",
    "deciding": "#A9B4C2",
}


def draw_timeline(axes: Axes, result: Result, cell: int, label: str) -> None:
    """Draw an algorithm's first replicate in a cell, one row for each agent, the fastest on top."""
    replicate = min(t.replicate for t in result.traces if (t.cell, t.algorithm) == (cell, label))
    observations, events = (one_run(table, cell, label, replicate) for table in (result.observations, result.events))
    agents = by_speed(observations)
    place = {agent: number for number, agent in enumerate(agents)}
    kinds = evaluation_bars(observations, events, place)
    spans = spans_of(observations, events, place)
    _bars(axes, spans, PALE)
    for kind, bars in kinds.items():
        _bars(axes, bars, EVALUATING[kind], edge="white")
    handles: list[Artist] = [Patch(facecolor=EVALUATING[kind], label=kind) for kind in EVALUATING if kinds[kind]]
    handles += [
        Patch(facecolor=PALE, label="waiting"),
        *draw_marks(axes, events, place, {agent: spans[row][2] for agent, row in place.items()}),
    ]
    _label_panel(axes, agents, f"What the agents did: {label}, replicate {replicate}", time_label(result))
    _crop(axes, {number: end for number, _, end in spans})
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=min(7, len(handles)), columnspacing=1.4,
                handlelength=1.3, handleheight=0.9, borderaxespad=0.2)  # fmt: skip


def _bars(axes: Axes, bars: Bars, colour: str, edge: str = "none") -> None:
    axes.add_collection(PolyCollection(corners(bars, 0.36), facecolor=colour, edgecolor=edge, linewidth=0.5), autolim=True)


def _label_panel(axes: Axes, agents: Sequence[int], title: str, unit: str) -> None:
    axes.set_title(title)
    axes.autoscale_view()
    axes.set_ylim(len(agents) - 0.4, -0.6)
    axes.set_yticks(range(len(agents)), [str(agent) for agent in agents], fontsize=9 if len(agents) <= 16 else 7.5)
    rows_only(axes)
    axes.set_xlabel(unit)
    axes.set_ylabel("agent, fastest first", labelpad=8)


def _crop(axes: Axes, ends: dict[int, float]) -> None:
    """End the axis at its horizon; a straggler that works beyond it has the time of its end written there."""
    right = horizon(list(ends.values()))
    axes.set_xlim(0, right)
    for row, end in ends.items():
        if end > right:
            axes.annotate(
                f"until {end:.4g} \N{BLACK RIGHT-POINTING SMALL TRIANGLE}",
                (right, row),
                xytext=(-3, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7.5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )
