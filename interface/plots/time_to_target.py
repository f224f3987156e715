"""The time that each cell of a sweep takes to reach a level: geometric means with intervals, and ratios beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.plots.cells import CellStyles
from fedbo.plots.style import FAINT, INK, decades, rows_only
from fedbo.results.compare import Comparison, TimeToTarget, short

TABLE = 0.29  # the width of the words beside the rows, as a part of that of the figure

CAPTION = (
    "large dot and box: geometric mean with its 95 % interval, hatched where some replicates count with the end of their run\n"
    "small dots: replicates that reached it · ratio to first: paired, with its 95 % interval, up to where the first run ended"
)

Rows = Sequence[tuple[TimeToTarget, Comparison | None]]


def draw_time_to_target(
    figure: Figure, box: tuple[float, float, float, float], table: tuple[Rows, CellStyles, str], unit: str
) -> None:
    """Draw one row for each cell in a part of the figure; beside it, how the cell compares with the first."""
    rows, chosen, title = table
    found = [one for one, _ in rows]
    left, bottom, width, height = box
    keys = " · ".join(key if len(chosen.keys) == 1 else key.split(".")[-1] for key in chosen.keys)
    margin = min(0.13, 0.012 + 0.0042 * max(map(len, (keys, *chosen.titles.values()))))
    axes = figure.add_axes((left + margin, bottom, width - margin - TABLE, height))
    size = 9.5 if len(found) <= 12 else 7.5 if len(found) <= 24 else 5.5
    _scale(axes, found)
    for row, one in enumerate(found):
        _row(axes, row, one, str(chosen.lines[one.cell]["color"]))
        if one.mean is not None and len(found) <= 8:
            where: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom"}
            axes.annotate(short(one.mean.mean), (one.mean.mean, row - 0.23), (0, 1.5), fontsize=9, color=INK, **where)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_yticks(range(len(found)), [chosen.titles[one.cell] for one in found], fontsize=size)
    rows_only(axes)
    axes.set_xlabel(unit)
    figure.text(left, 0.018, CAPTION, fontsize=9, color=FAINT, va="bottom", linespacing=1.4)
    axes.set_title(title, x=-margin / (width - margin - TABLE), pad=26)
    axes.annotate(keys, (0, 1), (-5, 7), "axes fraction", textcoords="offset points", ha="right", fontsize=9, color=FAINT)
    _side_table(axes, rows, size, 1 / (axes.get_position().width * float(figure.get_size_inches()[0])))


def _scale(axes: Axes, found: Sequence[TimeToTarget]) -> None:
    """Choose the axis: logarithmic where it spans more than a factor of 5. An interval beyond all reason is cut."""
    times = [time for one in found for time in one.reached.values()]
    means = [one.mean for one in found if one.mean is not None]
    if not times:
        axes.set_xticks([])
        return
    low = max(min(mean.low for mean in means), min(times) / 4)
    high = min(max(mean.high for mean in means), max(times) * 4)
    low, high = min(low, *times), max(high, *times)
    if 0 < 5 * low < high:
        decades(axes, low / 1.2, high * 1.2)
    else:
        axes.set_xlim(0, 1.05 * high or 1.0)


def _row(axes: Axes, row: int, one: TimeToTarget, colour: str) -> None:
    mean = one.mean
    if mean is None:
        axes.text(0.02, row, "not reached", transform=axes.get_yaxis_transform(), va="center", fontsize=9, color=FAINT)
        return
    options: dict[str, Any] = {"facecolor": "white", "edgecolor": colour, "hatch": "/////", "alpha": 0.6}
    if len(one.reached) == len(one.times):
        options = {"color": colour, "alpha": 0.25}
    axes.barh(row, mean.high - mean.low, left=mean.low, height=0.46, linewidth=0.8, **options)
    times = list(one.reached.values())
    axes.plot(times, [row] * len(times), "o", color=colour, markersize=3.6, alpha=0.7, markeredgewidth=0, zorder=3)
    axes.plot([mean.mean], [row], "o", color=colour, markersize=9, markeredgecolor="white", markeredgewidth=1.2, zorder=4)


def _side_table(axes: Axes, rows: Rows, size: float, inch: float) -> None:
    """Write a small table to the right of the rows, a line for each."""
    columns = ((1 + 0.42 * inch, "reached"), (1 + 1.65 * inch, "ratio to first"), (1 + 3.6 * inch, "final minus first"))
    for place, heading in columns:
        axes.annotate(
            heading, (place, 1), (0, 7), "axes fraction", textcoords="offset points", ha="center", fontsize=9, color=FAINT
        )
    for row, (one, gap) in enumerate(rows):
        words = [f"{len(one.reached)} of {len(one.times)}"]
        if gap is not None:
            words += ["–" if gap.ratio is None else f"× {gap.ratio}", "–" if gap.final is None else str(gap.final)]
        for (place, _), word in zip(columns, words, strict=False):
            axes.text(place, row, word, transform=axes.get_yaxis_transform(), ha="center", va="center", fontsize=size - 0.5)
