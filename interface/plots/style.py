"""The style of figures: colours, letters and lines, the same in all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from fedbo.actors.storage import atomic

if TYPE_CHECKING:
    from fedbo.results.result import Result

# Okabe and Ito's colours in an order that keeps neighbours apart for every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B", "#B8A800")

INK, FAINT, PALE = "#262B33", "#6B7280", "#DFE2E8"

STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#9AA1AC",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": "#E6E8EC",
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.7,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "svg.hashsalt": "fedbo",
    "text.color": INK,
    "xtick.color": "#9AA1AC",
    "xtick.labelcolor": FAINT,
    "ytick.color": "#9AA1AC",
    "ytick.labelcolor": FAINT,
}


def colour_at(place: int) -> str:
    """Give the colour of the algorithm at a place; those beyond the last colour get the same again, darker."""
    colour, shade = COLOURS[place % len(COLOURS)], 0.55 ** (place // len(COLOURS))
    return "#" + "".join(f"{round(int(colour[at : at + 2], 16) * shade):02X}" for at in (1, 3, 5))


def colours(result: Result) -> dict[str, str]:
    """Give every algorithm its colour, the same in all figures of a study."""
    return {label: colour_at(place) for place, label in enumerate(result.study.labels)}


def time_label(result: Result) -> str:
    """Name the axis of time."""
    return "wall-clock seconds" if result.study.timing.clock == "wall" else "virtual time"


def remark(axes: Axes, text: str) -> None:
    """Write a remark above the right end of a panel."""
    axes.text(1.0, 1.02, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=9, color=FAINT)


def decades(axes: Axes, low: float, high: float) -> None:
    """Give a panel a logarithmic horizontal axis of plain numbers, from the one to the other."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 3000 * low else (1.0,)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def rows_only(axes: Axes) -> None:
    """Take away the lines that a panel of horizontal bars does not need."""
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def save(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure under another name and rename it, so that a link in its place is replaced and not followed.

    OSError, for instance where the folder is missing, which is a mistake in the name.
    """
    os.stat(os.path.join(path.parent, ""))
    kind = path.suffix.removeprefix(".") or "png"
    atomic.write(path, lambda file: figure.savefig(file, format=kind, dpi=dpi))
