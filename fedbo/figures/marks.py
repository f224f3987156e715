"""Marks on a timeline: absences, crashes, hangs, slow-downs, partitions, and outages of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedbo.analysis.agent_states import EventInterval, event_intervals
from fedbo.analysis.timeline_bars import HALF, Bars, crashes, during

NO_EDGE = 3.0  # points: shorter bars have no edge
AWAY, CRASH, HANG, CUT, SLOW, OUTAGE = "#3D434D", "#C1121F", "#7B4FA3", "#111418", "#D9A400", "#2A9D8F"


def draw_marks(axes: Axes, events: Any, place: Mapping[int, int], ends: Mapping[int, float]) -> list[Artist]:
    """Draw the absences and faults of one run over its bars; return the legend entries.

    `place` is the row of each agent and `ends` the end of its bars: later events are left out.
    """
    return [
        *_outages(axes, event_intervals(events, "down", "up")),
        *_stripes(axes, during(events, ("slowed", "recovered"), place, ends), SLOW, "slowed", top=True),
        *_boxes(axes, during(events, ("absent", "returned"), place, ends), "away", AWAY, "//////"),
        *_boxes(axes, during(events, ("crashed", "restarted"), place, ends), "down after a crash", CRASH, "\\\\\\\\\\\\"),
        *_crashes(axes, events, place, ends),
        *_boxes(axes, during(events, ("hung", "woke"), place, ends), "hanging", HANG, "......"),
        *_stripes(axes, during(events, ("cut", "joined"), place, ends), CUT, "disconnected", top=False),
    ]


def add_bars(axes: Axes, bars: Bars, half: float, **options: Any) -> None:
    """Draw bars with this half height. Bars shorter than about two edge widths have no edge, which would hide them.

    Short bars that touch are drawn as one, so that no seam shows between them.
    """
    low, high = axes.get_xlim()
    figure = axes.figure
    least = NO_EDGE / 72 * figure.dpi * (high - low) / axes.get_window_extent().width
    long = [bar for bar in bars if bar[2] - bar[1] >= least]
    short = list[tuple[float, float, float]]()
    for row, begin, end in sorted(bar for bar in bars if bar[2] - bar[1] < least):
        if short and short[-1][0] == row and begin <= short[-1][2]:
            short[-1] = row, short[-1][1], max(end, short[-1][2])
        else:
            short.append((row, begin, end))
    plain = {name: value for name, value in options.items() if name not in ("edgecolor", "hatch")}
    for some, look in ((long, {"edgecolor": "none", **options}), (short, {"edgecolor": "none", **plain})):
        if some:
            axes.add_collection(PolyCollection(corners(some, half), **look), autolim=True)


def corners(bars: Bars, half: float, shift: float = 0.0) -> list[list[tuple[float, float]]]:
    """Return the corners of bars, from rows and times, with this half height and vertical shift."""
    middles = [(row + shift, begin, end) for row, begin, end in bars]
    return [[(a, y - half), (a, y + half), (b, y + half), (b, y - half)] for y, a, b in middles]


def _boxes(axes: Axes, bars: Bars, word: str, colour: str, hatch: str) -> list[Artist]:
    if not bars:
        return []
    options: dict[str, Any] = {"facecolor": "white", "edgecolor": colour, "hatch": hatch, "linewidth": 0.6}
    axes.add_collection(PolyCollection(corners(bars, HALF), zorder=2, **options), autolim=True)
    return [Patch(label=word, **options)]


def _stripes(axes: Axes, bars: Bars, colour: str, word: str, top: bool) -> list[Artist]:
    """Draw thin lines along the upper or lower edge of the rows: the agent continues to work."""
    if not bars:
        return []
    stripes = corners(bars, 0.045, -0.405 if top else 0.405)
    axes.add_collection(PolyCollection(stripes, facecolor=colour, edgecolor="none", zorder=3), autolim=False)
    return [Line2D([], [], color=colour, linewidth=2.2, label=word)]


def _crashes(axes: Axes, events: Any, place: Mapping[int, int], ends: Mapping[int, float]) -> list[Artist]:
    back, gone = crashes(events, place, ends)
    instants, gone_at = [(time, row - 0.36) for row, time in back], [(time, row) for row, time in gone]
    marks = list[Artist]()
    kinds: list[tuple[list[tuple[Any, Any]], dict[str, Any]]] = [
        (instants, {"marker": "v", "markersize": 6.5, "markeredgewidth": 0.6, "label": "crash"}),
        (gone_at, {"marker": "X", "markersize": 8.5, "markeredgewidth": 0.8, "label": "lost permanently"}),
    ]
    for these, options in kinds:
        if these:
            options |= {"linestyle": "none", "color": CRASH, "markeredgecolor": "white"}
            axes.plot(*zip(*these, strict=True), zorder=6, **options)
            marks.append(Line2D([], [], **options))
    return marks


def _outages(axes: Axes, found: list[EventInterval]) -> list[Artist]:
    if not found:
        return []
    options: dict[str, Any] = {"facecolor": OUTAGE, "alpha": 0.2, "linewidth": 0}
    for one in found:
        axes.axvspan(one.begin, one.end, zorder=0.9, **options)
    return [Patch(label="coordinator down", **options)]
