"""The curves and fronts of a cell: drawn by the figures' own functions as SVG, with their axes and numbers for the script."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.analysis.agent_fronts import feasible_traces, goals_of
from fedbo.analysis.averages import Curve, curve, grid
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.result import Result
from fedbo.analysis.timeline_bars import horizon
from fedbo.analysis.traces import Axis, IncumbentTrace
from fedbo.figures.curves import axis_label, band_alpha, in_units, limits, line, value_label
from fedbo.figures.fronts import SHARE, SHOWN, FrontPanel, axis_name, draw_front, front_figures
from fedbo.figures.style import INK, STYLE, colour_at, style_at, styled
from fedbo.objectives.base import Metric

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 330, 66, 546, 10, 286  # of a drawing and of its axes, in its own units
POINTS = 160  # places of a curve
MOST_PALE = 400  # dominated points of one series, the last ones where there are more
EXACT = "exact front"
# The page's style sheet decides on fonts and on the grid; the salt of names in the SVG is the key of the panel.
_STYLE = STYLE | {"lines.linewidth": 2, "font.size": 11.5, "axes.grid.axis": "y", "path.simplify": True}
_AGAINST = {"bytes": "communication"}  # the titles of panels that are not named after their axis


@dataclass(frozen=True, slots=True)
class PagePanel:
    """A panel: its key, its caption, a description, its drawing, and the numbers that the script shows under the pointer."""

    key: str
    caption: str
    label: str
    svg: Markup
    data: dict[str, Any]


def curve_panels(result: Result, cell: int, key: str) -> list[PagePanel]:
    """Return the best value so far; against bytes if anything was sent, against epsilon if anything is private."""
    traces = [trace for trace in result.traces if trace.cell == cell]
    return _panels(result, traces, ("evaluations", "time", "bytes", "epsilon"), result.metric(cell), key)


def feasible_panels(result: Result, cell: int, key: str) -> list[PagePanel]:
    """Return the share of feasible evaluations so far against evaluations and time; empty without limits."""
    known = goals_of(result, cell)
    limited = known is not None and len(known.limits) > 0
    return _panels(result, feasible_traces(result, cell) if limited else [], ("evaluations", "time"), SHARE, key)


def _panels(
    result: Result, traces: Sequence[IncumbentTrace], against: Sequence[Axis], metric: Metric, key: str
) -> list[PagePanel]:
    """Return a panel of curves of a metric for each axis; all have the vertical range of the first."""
    groups, found, counted = by_cell_and_algorithm(traces).values(), list[PagePanel](), list[Curve]()
    first = 0 if metric is SHARE else max(1, result.study.agents.initial)
    ends = {"time": horizon([float(trace.finished[-1]) for trace in traces])} if traces else {}
    for axis in against if groups else ():
        curves, unit = in_units([curve(mine, axis, grid(mine, axis, POINTS), metric) for mine in groups])
        if axis in ("bytes", "epsilon") and all(len(one.x) == 1 for one in curves):
            continue
        curves = [_thinned(one, first if axis == "evaluations" else 0) for one in curves]
        counted = counted or curves
        if not any(len(one.x) for one in counted):
            return []
        places = np.concatenate([one.x for one in curves])
        begin, end = places.min() if axis == "evaluations" else 0.0, ends.get(axis, places.max())
        span, ranged = (begin, end if end > begin else begin + 1), () if metric is SHARE else counted
        draw = partial(_draw_curves, result=result, curves=curves, counted=ranged, span=span)
        steps, title = axis != "evaluations", _AGAINST.get(axis, axis)
        series = [_series(one.algorithm, result, np.stack([one.x, one.mean, one.error], axis=1), steps) for one in curves]
        names = (axis_label(result, axis, unit), value_label(metric))
        found.append(_panel(f"{key}{len(found)}", (title, f"Against {title}", *names), draw, series))
    return found


def _draw_curves(
    axes: Axes, result: Result, curves: Sequence[Curve], counted: Sequence[Curve], span: tuple[float, float]
) -> None:
    """Draw curves over a span of their axis, each with the number of its series as the name of its artists.

    The vertical range is that of `counted`, or without any that of shares.
    """
    for one in curves:
        place, old = result.study.labels.index(one.algorithm), {*axes.get_children()}
        line(axes, one, np.ones(len(one.x), np.bool_), band_alpha(len(curves)), **style_at(place))
        for artist in {*axes.get_children()} - old:
            artist.set_gid(f"s{place}")
    axes.set_xlim(*span)
    if counted:
        limits((axes,), counted, 0)
    else:
        axes.set_ylim(0.0, 1.02)


def _thinned(found: Curve, first: float) -> Curve:
    """Return a curve from a given place on, or if it has ended there all of it, thinned to the resolution of a drawing."""
    good = np.isfinite(found.mean)
    keep = np.flatnonzero(good & (found.x >= first))
    keep = keep if len(keep) else np.flatnonzero(good)
    if len(keep) > POINTS:
        keep = keep[np.unique(np.linspace(0, len(keep) - 1, POINTS).round().astype(int))]
    if found.axis != "evaluations" and len(keep):  # a staircase: a place without a step tells nothing
        new = np.append(True, (np.diff(found.mean[keep]) != 0) | (np.diff(np.nan_to_num(found.error[keep])) != 0))
        new[-1] = True
        keep = keep[new]
    return replace(found, x=found.x[keep], mean=found.mean[keep], error=found.error[keep])


def front_panels(result: Result, cell: int, key: str) -> list[PagePanel]:
    """Return the fronts of all agents together and of each of the first agents; none where there is one objective."""
    known = goals_of(result, cell)
    if known is None or not known.several:
        return []
    shown = [figure for number, figure in enumerate(front_figures(result, cell)) if figure.agent is None or number <= SHOWN]
    return [_front(result, figure, f"{key}{number}") for number, figure in enumerate(shown)]


def _front(result: Result, figure: FrontPanel, key: str) -> PagePanel:
    labels, styles = list(figure.outcomes), {label: style_at(place) for place, label in enumerate(result.study.labels)}
    figure = replace(figure, outcomes={label: (pale[-MOST_PALE:], front) for label, (pale, front) in figure.outcomes.items()})
    exact = [EXACT] if len(figure.exact) else []

    def draw(axes: Axes) -> None:
        draw_front(axes, figure, styles)
        drawn = [*labels, *exact, *(label for label in labels for _ in ("line", "points"))]
        for artist, label in zip(axes.lines, drawn, strict=True):
            artist.set_gid(f"s{_place(result, label)}")

    fronts = [*((label, front) for label, (_, front) in figure.outcomes.items()), *((label, figure.exact) for label in exact)]
    # The staircase is told under the pointer; three objectives or more have none.
    series = [_series(label, result, figure.levels(front) if figure.staircase else front[:0], True) for label, front in fronts]
    caption = f"{figure.title}: {figure.names[1]} against {figure.names[0]}"
    return _panel(key, (figure.names[0], caption, axis_name(figure, 0), axis_name(figure, 1)), draw, series)


def _place(result: Result, label: str) -> int:
    """Return the number of a series in its run: that of its algorithm, and one more for the exact front."""
    return len(result.study.labels) if label == EXACT else result.study.labels.index(label)


def _series(label: str, result: Result, points: Any, steps: bool) -> dict[str, Any]:
    """Return a series for the script: `points (k, 2 or 3)` are places, means and perhaps errors, rounded."""
    x, mean, *error = ([float(f"{value:.5g}") for value in column] for column in points.T)
    errors = [None if math.isnan(each) else each for each in (error[0] if error else [math.nan] * len(x))]
    place = _place(result, label)
    colour = INK if label == EXACT else colour_at(place)
    return {"label": label, "colour": colour, "steps": steps, "x": x, "mean": mean, "error": errors}


def _panel(
    key: str, words: tuple[str, str, str, str], draw: Callable[[Axes], None], series: Sequence[dict[str, Any]]
) -> PagePanel:
    """Draw a panel with a title, a caption and names of both axes as its `words`; the same numbers give the same bytes."""
    title, caption, x_name, y_name = (each.replace("\n", " ") for each in words)
    with styled(_STYLE | {"svg.hashsalt": key}):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72)
        axes = figure.add_axes((LEFT / WIDTH, 1 - BOTTOM / HEIGHT, (RIGHT - LEFT) / WIDTH, (BOTTOM - TOP) / HEIGHT))
        draw(axes)
        axes.set(title="", ylabel="")
        axes.set_xlabel(x_name, labelpad=7, parse_math=False)
        axes.locator_params(axis="x", nbins=5, integer=title == "evaluations")
        axes.locator_params(axis="y", nbins=7)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, pad=7)
        axes.tick_params(axis="x", pad=6)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    data = {"title": title, "x": [*axes.get_xlim(), LEFT, RIGHT], "y": [*axes.get_ylim(), BOTTOM, TOP], "series": series}
    return PagePanel(key, caption, f"{y_name} against {x_name}", _inline(drawn.getvalue()), data)


def _inline(svg: str) -> Markup:
    """Return the inside of Matplotlib's SVG for the page: series as classes, fonts left to the style sheet, short numbers."""
    inside = svg[svg.index("<defs>") : svg.rindex("</svg>")]
    inside = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", inside, flags=re.S)
    inside = re.sub(r'<g id="(s\d+)"', r'<g class="\1"', inside)
    inside = re.sub(r'(?<=<g) id="[^"]*"| transform="rotate\(-0 [^"]*"', "", inside)
    inside = re.sub(r'<text style="[^"]*?(text-anchor: \w+)?;? ?(fill: [^";]*)?"', r'<text style="\1"', inside)
    inside = re.sub(r' (?:d|x|y)="[^"]*"', _short, inside)
    return Markup(re.sub(r"\s+", " ", inside))


def _short(attribute: re.Match[str]) -> str:
    """Return an attribute of places with a tenth of a unit each, and a path without spaces at its letters."""
    rounded = re.sub(r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), 1):g}", attribute[0][1:])
    return " " + re.sub(r"\s*([MLQCz])\s*", r"\1", rounded)
