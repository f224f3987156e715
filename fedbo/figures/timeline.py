"""A timeline of agents: evaluations by kind, waiting, absences and faults."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from fedbo.analysis.grouping import one_run
from fedbo.analysis.timeline_bars import EVALUATION_KINDS, HALF, MAX_AGENTS, Bars, by_speed, evaluation_bars, horizon, spans_of
from fedbo.figures.layout import FigurePanel
from fedbo.figures.marks import add_bars, draw_marks
from fedbo.figures.style import PALE, rows_only
from fedbo.settings.rooms import optional

if TYPE_CHECKING:
    from fedbo.analysis.result import Result

# Their brightness differs too; of two that are equally bright, one has a hatch.
EVALUATING = {
    "waiting": PALE,
    "initial point": "#B9CFE4",
    "own query": "#2C6AA0",
    "federated query": "#E8743B",
    "failed or forgotten": "#F2B8B5",
    "work lost": "#D9B04C",
    "queueing": "#C9B8DC",
    "deciding": "#8F9BAB",
}
HATCHES = {"deciding": "----", "failed or forgotten": "xxxx", "work lost": "....", "queueing": "\\\\\\\\"}


def timeline_panels(result: Result, cell: int, label: str) -> list[FigurePanel]:
    """Return the panel of an algorithm's agents in a cell, and with a cluster that of its workers."""
    agents = len({trace.agent for trace in result.traces if (trace.cell, trace.algorithm) == (cell, label)})
    draw = partial(_draw, result=result, cell=cell, label=label)
    found = [FigurePanel("agents", draw, wide=True, rows=min(agents, MAX_AGENTS))]
    if result.study.cluster is not None and (panel := optional("workers_panel")) is not None:
        found.append(panel(result, cell, label))
    return found


def _draw(axes: Axes, result: Result, cell: int, label: str) -> Sequence[Artist]:
    """Draw an algorithm's first replicate in a cell, one row for each agent, the fastest on top."""
    replicate = min(t.replicate for t in result.traces if (t.cell, t.algorithm) == (cell, label))
    observations, events = (one_run(table, cell, label, replicate) for table in (result.observations, result.events))
    agents = by_speed(observations)
    place = {agent: number for number, agent in enumerate(agents)}
    kinds, lanes = evaluation_bars(observations, events, place)
    spans = spans_of(observations, events, place)
    title, unit = f"Timeline of agents: {label}, replicate {replicate}", result.study.timing.in_words
    name_rows(axes, [str(agent) for agent in agents], title, (unit, "agent, fastest first"))
    _crop(axes, spans)
    handles: list[Artist] = []
    for kind, bars in kinds.items():
        if bars:
            options: dict[str, Any] = {
                "facecolor": EVALUATING[kind],
                "hatch": HATCHES.get(kind),
                "edgecolor": "white",
                "linewidth": 0.5,
            }
            add_bars(axes, bars, HALF / lanes if kind in EVALUATION_KINDS else HALF, **options)
            # In real time it is unknown whether a step decides, or waits for a process to start.
            is_either = kind == "deciding" and result.study.timing.clock == "wall"
            handles.append(Patch(label="deciding or waiting for a process" if is_either else kind, **options))
    return handles + draw_marks(axes, events, place, {agent: spans[row][2] for agent, row in place.items()})


def name_rows(axes: Axes, names: Sequence[str], title: str, labels: tuple[str, str], top: float = -0.6) -> None:
    """Name the rows of a timeline, the first on top, and its axes by their labels."""
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1], ylim=(len(names) - 0.4, top))
    axes.set_yticks(range(len(names)), names, fontsize="medium" if len(names) <= 16 else "x-small")
    rows_only(axes)


def _crop(axes: Axes, spans: Bars) -> None:
    """End the axis at its horizon; for a straggler beyond it, write the time of its end there."""
    right = horizon([end for _, _, end in spans])
    axes.set_xlim(0, right or 1.0)
    for row, _, end in spans:
        if end > right:
            axes.annotate(
                f"until {end:.4g} \N{BLACK RIGHT-POINTING SMALL TRIANGLE}",
                (right, row),
                xytext=(-3, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize="x-small",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )
