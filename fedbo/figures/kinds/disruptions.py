"""The figure of disruptions: growth of histories, staleness, the agents' time by state, and the fates of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedbo.analysis.disruptions import Disruptions, staleness_of, trouble
from fedbo.analysis.finished_run import counted_tables
from fedbo.analysis.grouping import of_kinds, one_run, runs_by_algorithm
from fedbo.analysis.timeline_bars import horizon
from fedbo.analysis.traces import Array
from fedbo.figures.cells import SHADES, cell_styles, short
from fedbo.figures.layout import FigurePanel, row_labels
from fedbo.figures.marks import CRASH
from fedbo.figures.style import FAINT, INK, PALE, rows_only, styles

if TYPE_CHECKING:
    from fedbo.analysis.result import Result


def draw_growth(axes: Axes, result: Result, cell: int, label: str) -> Sequence[Artist]:
    """Draw the successful observations of each agent over time, in the first replicate, the fastest agent darkest."""
    mine = [trace for trace in result.traces if (trace.cell, trace.algorithm) == (cell, label)]
    replicate = min(trace.replicate for trace in mine)
    mine = [trace for trace in mine if trace.replicate == replicate]
    mine.sort(key=lambda one: float(one.finished[-1]) / len(one.step))  # the mean time of a step
    shades = [SHADES(rank / max(1, len(mine) - 1)) for rank in range(len(mine))]
    last = dict[int, int]()
    for shade, trace in zip(shades, mine, strict=True):
        count = np.cumsum(~np.isnan(trace.score))
        last[trace.agent] = int(count[-1])
        x, y = np.append(0.0, trace.finished), np.append(0, count)
        axes.plot(x, y, drawstyle="steps-post", color=shade, linewidth=1.3 if len(mine) <= 40 else 0.8, alpha=0.9)
        axes.plot(x[-1:], y[-1:], "o", color=shade, markersize=3.5, markeredgewidth=0)
    axes.set(title=f"Evaluations so far: {label}, replicate {replicate}", ylabel="$t_n$, successful evaluations")
    axes.set_xlabel(result.study.timing.in_words)
    axes.set_xlim(0, horizon([float(trace.finished[-1]) for trace in mine]))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    ends = zip(("fastest agent", "slowest agent"), (shades[0], shades[-1]), strict=True)
    handles: list[Artist] = (
        [Line2D([], [], color=shade, linewidth=2, label=word) for word, shade in ends] if len(mine) > 1 else []
    )
    gone = of_kinds(one_run(result.events, cell, label, replicate), "crashed").to_pylist()
    lost = [(row["time"], last[row["agent"]]) for row in gone if row["permanent"] and row["agent"] in last]
    if lost:
        axes.plot(*zip(*lost, strict=True), "X", color=CRASH, markersize=8.5, markeredgecolor="white")
        handles.append(
            Line2D([], [], linestyle="none", marker="X", color=CRASH, markeredgecolor="white", label="lost permanently")
        )
    return handles


STATE_STYLES: dict[str, dict[str, Any]] = {
    "useful": {"facecolor": "#2C6AA0"},
    "lost_to_crashes": {"facecolor": "#F2A65A", "hatch": "xxxx"},
    "lost_to_preemption": {"facecolor": "#D9B04C", "hatch": "...."},
    "lost_to_lateness": {"facecolor": "#E9C46A"},
    "queueing": {"facecolor": "#C9B8DC", "hatch": "\\\\\\\\"},
    "waiting": {"facecolor": PALE},
    "away": {"facecolor": "#8A919C", "hatch": "////"},
    "down": {"facecolor": "#C1121F", "hatch": "xxxx"},
}
FATE_STYLES: dict[str, dict[str, Any]] = {
    "arrived": {"facecolor": "#2C6AA0"},
    "falsified": {"facecolor": "#F2A65A", "hatch": "xxxx"},
    "late": {"facecolor": "#E9C46A"},
    "lost": {"facecolor": "#3D434D", "hatch": "\\\\\\\\"},
    "rejected": {"facecolor": "#C1121F", "hatch": "////"},
    "duplicates": {"facecolor": "#D8A7C7", "hatch": "...."},
}
BINS, FEWEST = 30, 4
MANY = 12  # more rows than these have one line of words instead of two
LEAST = 0.04  # of the height of a row: a lower bar has a dot


@dataclass(frozen=True, slots=True)
class PanelRows:
    """The rows of all panels: for each a name, a colour, its measures and the staleness of its messages."""

    names: Sequence[str]
    shades: Sequence[str]
    measures: Sequence[Disruptions]
    stale: Sequence[Array]
    about: str


def disruption_panels(result: Result, cell: int, label: str) -> tuple[list[FigurePanel], list[Artist]]:
    """Return the panels: growth in one cell; the others for each cell of a sweep, or otherwise for each algorithm."""
    rows = _rows(result, label)
    count = max(FEWEST, len(rows.names)) * (2 if len(rows.names) <= MANY else 1)
    found = [FigurePanel("growth", partial(draw_growth, result=result, cell=cell, label=label))]
    for name, draw in (("staleness", _staleness), ("time", _time_by_state), ("messages", _fates)):
        found.append(FigurePanel(name, partial(_in_rows, draw=draw, rows=rows), rows=count))
    return found, []


def _in_rows(axes: Axes, draw: Callable[[Axes, PanelRows], Sequence[Artist]], rows: PanelRows) -> Sequence[Artist]:
    """Draw a panel with a row for each name."""
    handles = draw(axes, rows)
    spare = max(0.0, (FEWEST - len(rows.names)) / 2)
    axes.set_ylim(len(rows.names) - 0.4 + spare, -0.6 - spare)
    row_labels(axes, rows.names)
    if rows.about:
        axes.set_title(f"{axes.get_title('left')} ({rows.about})")
    rows_only(axes)
    return handles


def _rows(result: Result, label: str) -> PanelRows:
    runs = runs_by_algorithm(counted_tables(result)[1])
    measures: Sequence[Disruptions] = trouble(result)
    cells = sorted({row.cell for row in measures})
    known = styles(result)
    if len(cells) == 1:
        names, shades, about = [row.algorithm for row in measures], [str(known[row.algorithm]["color"]) for row in measures], ""
    else:
        chosen, measures = cell_styles(result, cells), [row for row in measures if row.algorithm == label]
        names = [chosen.titles[row.cell] for row in measures]
        shades = [str(chosen.lines[row.cell]["color"]) for row in measures]
        about = f"{label} by {' and '.join(map(short, chosen.keys))}"
    stale = [np.concatenate([staleness_of(own) for _, own in runs[row.cell, row.algorithm]]) for row in measures]
    return PanelRows(names, shades, measures, stale, about)


def _staleness(axes: Axes, rows: PanelRows) -> Sequence[Artist]:
    """Draw a histogram in each row: the share of messages by their staleness when they took effect."""
    axes.set(title="Staleness of messages", xlabel="rounds closed since the sender started the step")
    most = max((float(found.max()) for found in rows.stale if len(found)), default=0.0)
    edges = np.arange(-0.5, most + 1) if most <= BINS else np.linspace(-0.5, most + 0.5, BINS + 1)
    axes.set_xlim(-0.7, max(3.0, 1.02 * most) + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for place, (found, shade) in enumerate(zip(rows.stale, rows.shades, strict=False)):
        if not len(found):
            words = "not recorded" if rows.measures[place].arrived else "no message took effect"
            axes.text(0.02, place, words, transform=axes.get_yaxis_transform(), va="center", fontsize="small", color=FAINT)
            continue
        share = np.histogram(found, edges)[0] / len(found)
        height = 0.8 * share / share.max()
        axes.bar(edges[:-1], -height, 0.96 * np.diff(edges), place + 0.38, align="edge", color=shade, linewidth=0)
        rare = (edges[:-1] + 0.48 * np.diff(edges))[(height > 0) & (height < LEAST)]
        axes.plot(rare, np.full(len(rare), place + 0.3), ".", color=shade, markersize=3, gid="rare")
        axes.plot([found.mean()], [place + 0.38], "^", color=INK, markersize=5.5, clip_on=False, zorder=4)
        words = f"mean {found.mean():.2g}{_apart(rows)}max {found.max():.3g}"
        axes.text(1.01, place, words, transform=axes.get_yaxis_transform(), va="center", fontsize="small", color=FAINT)
    handles: list[Artist] = [Line2D([], [], linestyle="none", marker="^", color=INK, markersize=5.5, label="mean")]
    if any(line.get_gid() == "rare" and len(line.get_xdata()) for line in axes.lines):  # type: ignore[arg-type]
        handles.append(Line2D([], [], linestyle="none", marker=".", color=FAINT, markersize=3, label="some, too few for a bar"))
    return handles


def _time_by_state(axes: Axes, rows: PanelRows) -> Sequence[Artist]:
    """Stack the shares of the time of a target, from 0 to its last event."""
    axes.set(title="How agents spent their time", xlabel="share of the time of an agent that optimises, %", xlim=(0, 100))
    parts = {name: np.array([getattr(row, name) for row in rows.measures]) for name in STATE_STYLES}
    whole = np.maximum(1e-300, np.sum(list(parts.values()), axis=0))
    return _stacked(axes, {name: 100 * part / whole for name, part in parts.items()}, STATE_STYLES)


def _fates(axes: Axes, rows: PanelRows) -> Sequence[Artist]:
    """Stack the transmissions to the coordinator by their fate, and add the fates of the answers as text."""
    axes.set(title="Messages by outcome", xlabel="transmissions to the coordinator, in one replicate")
    parts = {name: np.array([getattr(row, name) for row in rows.measures]) for name in FATE_STYLES}
    parts["falsified"] = np.array([row.lies for row in rows.measures])  # those of them that took effect
    parts["arrived"] = parts["arrived"] - parts["falsified"]
    handles = _stacked(axes, parts, FATE_STYLES)
    ends = np.sum(list(parts.values()), axis=0)
    axes.set_xlim(0, 1.02 * (float(np.max(ends)) or 1.0))
    for place, (row, end) in enumerate(zip(rows.measures, ends, strict=True)):
        astray = f"{_apart(rows)}{row.answers_lost:.0f} lost" if row.answers_lost else ""
        words = f"answers: {row.answers:.0f}{astray}" if end else "sends nothing"
        axes.text(1.01, place, words, transform=axes.get_yaxis_transform(), va="center", fontsize="small", color=FAINT)
    return handles


def _stacked(axes: Axes, parts: Mapping[str, Array], known: Mapping[str, Mapping[str, Any]]) -> list[Artist]:
    """Stack bars of parts, with visible edges; return the legend entries of the parts that occur."""
    ends = np.sum(list(parts.values()), axis=0)
    left, most = np.zeros_like(ends), float(np.max(ends, initial=0.0)) or 1.0
    for name, part in parts.items():
        for place, (begin, width) in enumerate(zip(left, part, strict=True)):
            edge = {"edgecolor": "white", "linewidth": 0.6} if width > 0.02 * most else {"linewidth": 0}
            axes.barh([place], [width], left=[begin], height=0.66, **{**edge, **known[name]})
        left = left + part
    return [Patch(label=name.replace("_", " "), edgecolor="white", **known[name]) for name, part in parts.items() if part.any()]


def _apart(rows: PanelRows) -> str:
    return "\n" if len(rows.names) <= MANY else ", "
