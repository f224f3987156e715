"""Marks on a timeline: absences, crashes, hangs, slow-downs, partitions, and outages of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedbo.results.agent_states import EventInterval, event_intervals
from fedbo.results.grouping import of_kinds

Bars = list[tuple[int, float, float]]

AWAY, CRASH, HANG, CUT, SLOW, OUTAGE = "#3D434D", "#C1121F", "#7B4FA3", "#111418", "#D9A400", "#2A9D8F"


def draw_marks(axes: Axes, events: Any, place: Mapping[int, int], ends: Mapping[int, float]) -> list[Artist]:
    """Draw the absences and faults of one run over its bars; give the entries of the legend.

    `place` gives the row of each agent and `ends` where its bars end: later events are left out.
    """

    def during(begins: str, ends_: str) -> list[EventInterval]:
        found = [one for one in event_intervals(events, begins, ends_) if one.agent in place and one.begin <= ends[one.agent]]
        return [one._replace(end=min(one.end, ends[one.agent])) for one in found]

    marks = [
        *_outages(axes, event_intervals(events, "down", "up")),
        *_stripes(axes, _rows(during("slowed", "recovered"), place), SLOW, "slowed", top=True),
        *_boxes(axes, _rows(during("absent", "returned"), place), "away", AWAY, "//////"),
        *_boxes(axes, _rows(during("crashed", "restarted"), place), "down after a crash", CRASH, "//////"),
        *_crashes(axes, events, place, ends),
        *_boxes(axes, _rows(during("hung", "woke"), place), "hanging", HANG, "......"),
        *_stripes(axes, _rows(during("cut", "joined"), place), CUT, "cut off", top=False),
    ]
    return marks


def _rows(found: list[EventInterval], place: Mapping[int, int]) -> Bars:
    return [(place[one.agent], one.begin, one.end) for one in found if one.agent in place and one.end > one.begin]


def corners(bars: Bars, half: float, shift: float = 0.0) -> list[list[tuple[float, float]]]:
    """Give the corners of bars, from row and times, so much above and below their rows, which are shifted."""
    middles = [(row + shift, begin, end) for row, begin, end in bars]
    return [[(a, y - half), (a, y + half), (b, y + half), (b, y - half)] for y, a, b in middles]


def _boxes(axes: Axes, bars: Bars, word: str, colour: str, hatch: str) -> list[Artist]:
    if not bars:
        return []
    options: dict[str, Any] = {"facecolor": "white", "edgecolor": colour, "hatch": hatch, "linewidth": 0.6}
    axes.add_collection(PolyCollection(corners(bars, 0.36), zorder=2, **options), autolim=True)
    return [Patch(label=word, **options)]


def _stripes(axes: Axes, bars: Bars, colour: str, word: str, top: bool) -> list[Artist]:
    """Draw thin lines along the upper or lower edge of the rows: the agent works on."""
    if not bars:
        return []
    stripes = corners(bars, 0.045, -0.405 if top else 0.405)
    axes.add_collection(PolyCollection(stripes, facecolor=colour, edgecolor="none", zorder=3), autolim=False)
    return [Line2D([], [], color=colour, linewidth=2.2, label=word)]


def _crashes(axes: Axes, events: Any, place: Mapping[int, int], ends: Mapping[int, float]) -> list[Artist]:
    rows = of_kinds(events, "crashed").select(["agent", "time", "detail"]).to_pylist()
    rows = [row for row in rows if row["agent"] in place and row["time"] <= ends[row["agent"]]]
    instants = [(row["time"], place[row["agent"]] - 0.36) for row in rows if row["detail"] != "for good"]
    gone = [(row["time"], place[row["agent"]]) for row in rows if row["detail"] == "for good"]
    marks = list[Artist]()
    kinds: list[tuple[list[tuple[Any, Any]], dict[str, Any]]] = [
        (instants, {"marker": "v", "markersize": 6.5, "markeredgewidth": 0.6, "label": "crash"}),
        (gone, {"marker": "X", "markersize": 8.5, "markeredgewidth": 0.8, "label": "lost for good"}),
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
