"""The drawing of a panel of curves: the paths of its SVG, and the numbers that a script shows under the pointer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedbo.figures.page.axes import LinearAxis, label_of
from fedbo.figures.page.curve_panels import Panel, Series

WIDTH, HEIGHT = 560, 330
LEFT, RIGHT, TOP, BOTTOM = 66, 546, 10, 286


@dataclass(frozen=True, slots=True)
class Stroke:
    """The paths of one series: its line, its band, which may be empty, and the place of its last point."""

    series: Series
    line: str
    band: str
    end: tuple[float, float]
    level: bool


@dataclass(frozen=True, slots=True)
class CurveDrawing:
    """A drawn panel: ticks as pairs of a place and a label, strokes, the two axes, and dots.

    Dots are a path for each series that has some, and whether they are pale; pale ones come first.
    """

    panel: Panel
    x: LinearAxis
    y: LinearAxis
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    strokes: Sequence[Stroke]
    dots: Sequence[tuple[Series, str, bool]]

    def data(self) -> dict[str, Any]:
        """Return the data for the script that shows the values under the pointer."""
        return {
            "title": self.panel.title,
            "x": [self.x.low, self.x.high, self.x.first, self.x.last],
            "y": [self.y.low, self.y.high, self.y.first, self.y.last],
            "series": [
                {
                    "label": one.label,
                    "colour": one.colour,
                    "steps": one.steps,
                    "x": one.x,
                    "mean": one.mean,
                    "error": [None if math.isnan(error) else error for error in one.error],
                }
                for one in self.panel.series
            ],
        }


def draw_panel(panel: Panel) -> CurveDrawing:
    """Draw a panel; the same numbers result in the same drawing."""
    (least, most), (lowest, highest) = panel.x_range, panel.y_range
    x, y = LinearAxis(least, most, LEFT, RIGHT), LinearAxis(lowest, highest, BOTTOM, TOP)
    strokes = [_stroke(one, x, y) for one in panel.series if len(one.x)]
    drawn = [
        (one, points, pale) for pale in (True, False) for one in panel.series if (points := one.pale if pale else one.dots)
    ]
    # A line of no length with round ends is a dot.
    dots = [(one, "".join(f"M{x.at(a):g} {y.at(b):g}h0" for a, b in points), pale) for one, points, pale in drawn]
    return CurveDrawing(panel, x, y, x_ticks=ticks_of(x, 5), y_ticks=ticks_of(y, 8), strokes=strokes, dots=dots)


def ticks_of(axis: LinearAxis, count: int) -> list[tuple[float, str]]:
    """Return the places of an axis' ticks with their labels."""
    values = axis.ticks(count)
    step = values[1] - values[0] if len(values) > 1 else abs(axis.high - axis.low)
    return [(axis.at(value), label_of(value, step)) for value in values]


def _stroke(one: Series, x: LinearAxis, y: LinearAxis) -> Stroke:
    if len(one.x) == 1:  # such as one that sends nothing, against bytes
        height = y.at(one.mean[0])
        return Stroke(one, f"M{LEFT} {height}H{RIGHT}", "", (x.at(one.x[0]), height), True)
    places = [x.at(value) for value in one.x]
    heights = [y.at(value) for value in one.mean]
    errors = [0.0 if math.isnan(error) else error for error in one.error]
    band = ""
    if any(errors):
        upper = [y.at(mean + error) for mean, error in zip(one.mean, errors, strict=True)]
        lower = [y.at(mean - error) for mean, error in zip(one.mean, errors, strict=True)]
        band = f"{_line(places, upper, one.steps)}L{_line(places, lower, one.steps, back=True)[1:]}z"
    return Stroke(one, _line(places, heights, one.steps), band, (places[-1], heights[-1]), False)


def _line(places: Sequence[float], heights: Sequence[float], steps: bool, back: bool = False) -> str:
    """Return a path through points, without points at the height of both their neighbours."""
    corners = [(places[0], heights[0])]
    for place, height in zip(places[1:], heights[1:], strict=True):
        if steps:
            corners.append((place, corners[-1][1]))
        corners.append((place, height))
    kept = [
        corner
        for number, corner in enumerate(corners)
        if not (0 < number < len(corners) - 1 and corners[number - 1][1] == corner[1] == corners[number + 1][1])
    ]
    points = [f"{place:g} {height:g}" for place, height in (reversed(kept) if back else kept)]
    return "M" + "L".join(points)
