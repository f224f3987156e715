"""The fronts of a cell as panels of the page: one for all agents, and one for each of the first agents."""

from __future__ import annotations

from collections.abc import Sequence

from fedbo.analysis.agent_fronts import goals_of
from fedbo.analysis.result import Result
from fedbo.analysis.traces import Array
from fedbo.figures.fronts import SHOWN, FrontPanel, axis_name, front_figures
from fedbo.figures.page.curve_panels import Panel, Series, colour_of
from fedbo.figures.style import INK

EXACT = "exact front"
MOST_PALE = 400  # dominated points of one series, the last ones where there are more


def front_panels(result: Result, cell: int) -> list[Panel]:
    """Return the panels of a cell; none where there is one objective."""
    known = goals_of(result, cell)
    if known is None or not known.several:
        return []
    figures = front_figures(result, cell)
    return [_panel(result, figure) for number, figure in enumerate(figures) if figure.agent is None or number <= SHOWN]


def _panel(result: Result, figure: FrontPanel) -> Panel:
    series = [
        _series(figure, label, colour_of(result, label), front, _inside(figure, dominated)[-MOST_PALE:])
        for label, (dominated, front) in figure.outcomes.items()
    ]
    if len(figure.exact):
        series.append(_series(figure, EXACT, INK, figure.exact, ()))
    (x_range, y_range), names = figure.ranges, figure.names
    caption = f"{figure.title}: {names[1]} against {names[0]}"
    return Panel(
        title=names[0],
        x_name=axis_name(figure, 0),
        y_name=axis_name(figure, 1),
        x_range=x_range,
        y_range=y_range,
        series=series,
        caption=caption,
    )


def _series(figure: FrontPanel, label: str, colour: str, front: Array, pale: Sequence[tuple[float, float]]) -> Series:
    """Return a front: its staircase under the pointer, and its points; three objectives or more have no staircase."""
    corners = figure.levels(front) if figure.staircase else front[:0]
    x, y = ([float(f"{value:.5g}") for value in column] for column in corners.T)
    dots = [] if label == EXACT and figure.staircase else _inside(figure, front)
    return Series(label, colour, x, mean=y, error=[float("nan")] * len(x), steps=True, dots=dots, pale=pale)


def _inside(figure: FrontPanel, points: Array) -> list[tuple[float, float]]:
    """Return the points within the axes."""
    (first, last), (low, high) = figure.ranges
    return [(x, y) for x, y in points.tolist() if first <= x <= last and low <= y <= high]
