"""The figure of disruptions: growth of histories, staleness, the agents' time by state, and the fate of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedbo.plots.cells import cell_styles
from fedbo.plots.growth import draw_growth
from fedbo.plots.style import FAINT, INK, PALE, colours, remark, rows_only
from fedbo.results.curves import Array
from fedbo.results.disruptions import Disruptions, staleness_of
from fedbo.results.grouping import runs_by_algorithm

if TYPE_CHECKING:
    from fedbo.results.result import Result

STATE_COLOURS = {"evaluating": "#3E7CB1", "waiting": PALE, "away": "#8A919C", "down": "#C1121F"}
FATE_COLOURS = {"arrived": "#3E7CB1", "late": "#E9B44C", "lost": "#3D434D", "rejected": "#C1121F", "duplicates": "#D8A7C7"}
BINS, FEWEST = 30, 4


@dataclass(frozen=True, slots=True)
class PanelRows:
    """The rows of all panels: a name, a colour, its measures and the staleness of its messages for each."""

    names: Sequence[str]
    shades: Sequence[str]
    measures: Sequence[Disruptions]
    stale: Sequence[Array]
    about: str


def draw_disruptions(figure: Figure, result: Result, cell: int, label: str) -> None:
    """Draw the page: growth in one cell; the rest for each cell of a sweep, or for each algorithm where nothing is swept."""
    rows = _rows(result, label)
    draw_growth(figure.add_axes((0.06, 0.545, 0.42, 0.325)), result, cell, label)
    inset = min(0.13, 0.01 + 0.0052 * max(map(len, rows.names)))
    boxes = ((0.56, 0.545), (0.06, 0.075), (0.56, 0.075))
    panels = [figure.add_axes((x + inset, y, 0.42 - inset, 0.325)) for x, y in boxes]
    _staleness(panels[0], rows)
    _time_by_state(panels[1], rows.measures)
    _fates(panels[2], rows.measures)
    size = 9.5 if len(rows.names) <= 12 else 7.5 if len(rows.names) <= 24 else 5.5
    for one in panels:
        spare = max(0.0, (FEWEST - len(rows.names)) / 2)
        one.set_ylim(len(rows.names) - 0.4 + spare, -0.6 - spare)
        one.set_yticks(range(len(rows.names)), rows.names, fontsize=size)
        one.set_title(one.get_title("left"), x=-inset / (0.42 - inset))
        rows_only(one)
    if rows.about:
        remark(panels[0], rows.about)


def _rows(result: Result, label: str) -> PanelRows:
    runs = runs_by_algorithm(result.shown[1])
    measures = result.trouble()
    cells = sorted({row.cell for row in measures})
    if len(cells) == 1:
        names, shades, about = [row.algorithm for row in measures], list(colours(result).values()), ""
    else:
        chosen, measures = cell_styles(result, cells), [row for row in measures if row.algorithm == label]
        names = [chosen.titles[row.cell] for row in measures]
        shades = [str(chosen.lines[row.cell]["color"]) for row in measures]
        about = f"rows: {label} by {' and '.join(chosen.keys)}"
    stale = [np.concatenate([staleness_of(own) for _, own in runs[row.cell, row.algorithm]]) for row in measures]
    return PanelRows(names, shades, measures, stale, about)


def _staleness(axes: Axes, rows: PanelRows) -> None:
    """Draw a histogram in each row: the share of messages that were so many rounds old when they took effect."""
    axes.set_title("Staleness of messages")
    axes.set_xlabel("rounds closed since the sender began the step")
    most = max((float(found.max()) for found in rows.stale if len(found)), default=0.0)
    edges = np.arange(-0.5, most + 1) if most <= BINS else np.linspace(-0.5, most + 0.5, BINS + 1)
    axes.set_xlim(-0.7, max(3.0, 1.02 * most) + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for place, (found, shade) in enumerate(zip(rows.stale, rows.shades, strict=False)):
        if not len(found):
            words = "not recorded" if rows.measures[place].arrived else "no message took effect"
            axes.text(0.02, place, words, transform=axes.get_yaxis_transform(), va="center", fontsize=9,
                      color=FAINT)  # fmt: skip
            continue
        share = np.histogram(found, edges)[0] / len(found)
        axes.bar(edges[:-1], -0.8 * share / share.max(), np.diff(edges), place + 0.38, align="edge", color=shade,
                 edgecolor="white", linewidth=0.6)  # fmt: skip
        axes.plot([found.mean()], [place + 0.38], "^", color=INK, markersize=5.5, clip_on=False, zorder=4)
        words = f"mean {found.mean():.2g}, max {found.max():.3g}"
        axes.text(0.99, place, words, transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=8.5, color=FAINT)


def _time_by_state(axes: Axes, measures: Sequence[Disruptions]) -> None:
    """Stack the shares of the time of a target, from 0 to its last event."""
    axes.set_title("How agents spent their time")
    axes.set_xlabel("share of the time of an agent that optimises, %")
    axes.set_xlim(0, 100)
    left = np.zeros(len(measures))
    whole = np.array([max(1e-300, sum(getattr(row, name) for name in STATE_COLOURS)) for row in measures])
    for name, colour in STATE_COLOURS.items():
        share = 100 * np.array([getattr(row, name) for row in measures]) / whole
        axes.barh(range(len(measures)), share, left=left, height=0.66, color=colour, edgecolor="white", linewidth=0.6)
        for place, (begin, width) in enumerate(zip(left, share, strict=True)):
            if width >= 4 and len(measures) <= 24:
                ink = INK if name in ("waiting",) else "white"
                axes.text(begin + width / 2, place, f"{width:.0f}", ha="center", va="center", fontsize=8.5, color=ink)
        left = left + share
    _legend(axes, [(name, colour) for name, colour in STATE_COLOURS.items() if any(getattr(row, name) for row in measures)])


def _fates(axes: Axes, measures: Sequence[Disruptions]) -> None:
    """Stack the transmissions to the coordinator by their fate, and write down what became of the answers."""
    axes.set_title("Messages by their fate")
    axes.set_xlabel("transmissions to the coordinator, in one replicate")
    left = np.zeros(len(measures))
    for name, colour in FATE_COLOURS.items():
        count = np.array([getattr(row, name) for row in measures])
        axes.barh(range(len(measures)), count, left=left, height=0.66, color=colour, edgecolor="white", linewidth=0.6)
        left = left + count
    most = float(left.max()) or 1.0
    axes.set_xlim(0, 1.5 * most)
    for place, (row, end) in enumerate(zip(measures, left, strict=True)):
        words = _fate_in_words(row) if end else "sends nothing"
        axes.text(end + 0.012 * most, place, words, ha="left", va="center", fontsize=8.5, color=FAINT)
    _legend(axes, [(name, colour) for name, colour in FATE_COLOURS.items() if any(getattr(row, name) for row in measures)])


def _fate_in_words(row: Disruptions) -> str:
    astray = f", {row.answers_lost:.0f} lost" if row.answers_lost else ""
    return f"answers: {row.answers:.0f}{astray}"


def _legend(axes: Axes, entries: Sequence[tuple[str, str]]) -> None:
    handles = [Patch(facecolor=colour, label=name) for name, colour in entries]
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=max(1, len(handles)), columnspacing=1.0,
                handlelength=1.0, handletextpad=0.5, handleheight=0.9, borderaxespad=0.2)  # fmt: skip
