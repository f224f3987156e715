"""The time that each cell of a sweep takes to reach a level: geometric means with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedbo.analysis.comparison import Comparison, TimeToTarget, short
from fedbo.figures.cells import CellStyles
from fedbo.figures.layout import row_labels
from fedbo.figures.style import FAINT, INK, decades, rows_only

ROOM = 40.0  # letters: in a panel that is narrower there is no room for the words beside the rows

Rows = Sequence[tuple[TimeToTarget, Comparison | None]]


def draw_time_to_target(axes: Axes, table: tuple[Rows, CellStyles, tuple[str, str]], unit: str) -> Sequence[Artist]:
    """Draw one row for each cell, with a title and the name of the level; if there is room, with the final value's difference.

    No ratio is shown: where replicates do not reach the level, that of restricted times is not the quotient of the means.
    """
    rows, chosen, (title, words) = table
    found = [one for one, _ in rows]
    _scale(axes, found)
    for row, one in enumerate(found):
        _row(axes, row, one, str(chosen.lines[one.cell]["color"]))
        if one.mean is not None and len(found) <= 8:
            where: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom"}
            axes.annotate(short(one.mean.mean), (one.mean.mean, row - 0.23), (0, 1.5), fontsize="small", color=INK, **where)
    axes.set_ylim(len(found) - 0.4, -0.8)
    row_labels(axes, [chosen.titles[one.cell] for one in found])
    rows_only(axes)
    axes.set_xlabel(f"{unit} to {words}")
    axes.set_title(title)
    figure = axes.figure
    if axes.get_window_extent().width / figure.dpi * 72 > ROOM * float(axes.xaxis.label.get_fontsize()):
        _side_table(axes, rows)
    keys = " · ".join(key if len(chosen.keys) == 1 else key.split(".")[-1] for key in chosen.keys)
    axes.set_ylabel(keys)
    return _row_entries(found)


def _row_entries(found: Sequence[TimeToTarget]) -> list[Artist]:
    """Return the legend entries that explain dots and boxes."""
    plain: dict[str, Any] = {"color": FAINT, "linestyle": "none", "marker": "o"}
    shown: list[Artist] = [
        Line2D([], [], markersize=3.6, label="a replicate", **plain),
        Line2D([], [], markersize=8, label="geometric mean", **plain),
        Patch(facecolor=FAINT, alpha=0.25, label="its 95 % interval"),
    ]
    if any(one.mean is not None and len(one.reached) < len(one.times) for one in found):
        hatched = {"facecolor": "white", "edgecolor": FAINT, "hatch": "/////", "linewidth": 0.8}
        shown.append(Patch(label="some replicates count up to their end", **hatched))  # type: ignore[arg-type]
    return shown


def _scale(axes: Axes, found: Sequence[TimeToTarget]) -> None:
    """Set the axis: logarithmic if it spans more than a factor of 5. Extremely wide intervals are cut."""
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
        axes.text(0.02, row, "not reached", transform=axes.get_yaxis_transform(), va="center", fontsize="small", color=FAINT)
        return
    options: dict[str, Any] = {"facecolor": "white", "edgecolor": colour, "hatch": "/////", "alpha": 0.6}
    if len(one.reached) == len(one.times):
        options = {"color": colour, "alpha": 0.25}
    axes.barh(row, mean.high - mean.low, left=mean.low, height=0.46, linewidth=0.8, **options)
    times = list(one.reached.values())
    axes.plot(times, [row] * len(times), "o", color=colour, markersize=3.6, alpha=0.7, markeredgewidth=0, zorder=3)
    axes.plot([mean.mean], [row], "o", color=colour, markersize=9, markeredgecolor="white", markeredgewidth=1.2, zorder=4)


def _side_table(axes: Axes, rows: Rows) -> None:
    """Write a small table to the right of the rows, a line for each; the differences are from the first cell, paired."""
    size = float(axes.xaxis.label.get_fontsize())
    places = (2.6 * size, 12.0 * size)  # points beyond the end of the panel
    options: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": "small"}
    for place, heading in zip(places, ("reached", "final minus first"), strict=True):
        axes.annotate(heading, (1, -0.7), (place, 0), axes.get_yaxis_transform(), color=FAINT, **options)
    for row, (one, gap) in enumerate(rows):
        words = [f"{len(one.reached)} of {len(one.times)}"]
        if gap is not None:
            words.append("–" if gap.final is None else str(gap.final))
        for place, word in zip(places, words, strict=False):
            axes.annotate(word, (1, row), (place, 0), axes.get_yaxis_transform(), **options)
