"""The time that each cell of a sweep takes to reach a level: bars with intervals, and the paired differences beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.compare import Comparison, Reach
from fedbo.plot_cells import Looks
from fedbo.plot_style import FAINT, INK, rows_only
from fedbo.summary import Difference

TABLE = 0.29  # the width of the words beside the bars, as a part of that of the figure

Rows = Sequence[tuple[Reach, Comparison | None]]


def draw_reach(figure: Figure, box: tuple[float, float, float, float], table: tuple[Rows, Looks, str]) -> None:
    """Draw one bar for each cell in a part of the figure; beside it, what the cell differs by from the first."""
    rows, chosen, target = table
    found = [one for one, _ in rows]
    left, bottom, width, height = box
    margin = min(0.12, 0.012 + 0.0048 * max(len(title) for title in chosen.titles.values()))
    axes = figure.add_axes((left + margin, bottom, width - margin - TABLE, height))
    size = 9.5 if len(found) <= 12 else 7.5 if len(found) <= 24 else 5.5
    for row, one in enumerate(found):
        _bar(axes, row, one, str(chosen.lines[one.cell]["color"]))
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_yticks(range(len(found)), [chosen.titles[one.cell] for one in found], fontsize=size)
    rows_only(axes)
    axes.set_xlim(left=0)
    part = any(0 < len(one.reached) < len(one.times) for one in found)
    axes.set_xlabel("time: mean and 95 % interval" + part * "\n(hatched: of the replicates that reached it)")
    axes.set_title(f"Time to reach {target}", x=-margin / (width - margin - TABLE), pad=26)
    keys = " · ".join(key if len(chosen.keys) == 1 else key.split(".")[-1] for key in chosen.keys)
    axes.annotate(keys, (0, 1), (-5, 7), "axes fraction", textcoords="offset points", ha="right", fontsize=9, color=FAINT)
    _beside(axes, rows, size, 1 / (axes.get_position().width * float(figure.get_size_inches()[0])))


def _bar(axes: Axes, row: int, one: Reach, colour: str) -> None:
    mean, part = one.mean, len(one.reached) / len(one.times)
    if mean is None:
        axes.text(0.02, row, "not reached", transform=axes.get_yaxis_transform(), va="center", fontsize=9, color=FAINT)
        return
    look: dict[str, Any] = {"color": colour} if part == 1 else {"facecolor": "white", "edgecolor": colour, "hatch": "/////"}
    axes.barh(row, mean.mean, height=0.62, **look)
    reach = [[mean.mean - max(0.0, mean.low)], [mean.high - mean.mean]]
    axes.errorbar(mean.mean, row, xerr=reach, color=INK, elinewidth=1.1, capsize=2.5, capthick=1.1)


def _beside(axes: Axes, rows: Rows, size: float, inch: float) -> None:
    """Write a small table to the right of the bars, a line for each."""
    columns = ((1 + 0.42 * inch, "reached"), (1 + 1.65 * inch, "time minus first"), (1 + 3.6 * inch, "final minus first"))
    for place, heading in columns:
        axes.annotate(
            heading, (place, 1), (0, 7), "axes fraction", textcoords="offset points", ha="center", fontsize=9, color=FAINT
        )
    for row, (one, gap) in enumerate(rows):
        words = (
            f"{len(one.reached)} of {len(one.times)}",
            _short(gap.time if gap else None),
            _short(gap.final if gap else None),
        )
        for (place, _), word in zip(columns, words if gap else (words[0], "", ""), strict=True):
            axes.text(place, row, word, transform=axes.get_yaxis_transform(), ha="center", va="center", fontsize=size - 0.5)


def _short(gap: Difference | None) -> str:
    return "–" if gap is None else str(gap)
