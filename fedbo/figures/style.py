"""The common style of all figures: colours, fonts and lines."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from colorsys import hls_to_rgb, rgb_to_hls
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import ListedColormap, to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter

from fedbo.actors.storage import atomic

if TYPE_CHECKING:
    from fedbo.analysis.result import Result

_drawing = threading.RLock()

# Okabe and Ito's colours in an order that keeps neighbours apart for every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B", "#B8A800")

INK, FAINT, PALE = "#262B33", "#6B7280", "#DFE2E8"
GRID, RULE = "#E6E8EC", "#9AA1AC"

# What becomes of the ink and of the lightest colours in a dark figure; `on_dark` decides on all others.
GAMMA = 2.2
DARK = {INK.lower(): "#E4E7EC", "#ffffff": "#14171C", GRID.lower(): "#2D333C", PALE.lower(): "#333A44"}

# Four kinds of line, and then the same with a marker: twelve series differ in grey too.
LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("", "o", "s", "^", "D", "v")

# Sizes of letters are relative, so that one number changes them all. Fonts of type 42 are those that publishers accept.
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": RULE,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": "medium",
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "large",
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.7,
    "legend.fontsize": "medium",
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",  # letters stay text, which can be searched and edited
    "svg.hashsalt": "fedbo",
    "text.color": INK,
    "xtick.color": RULE,
    "xtick.labelcolor": FAINT,
    "ytick.color": RULE,
    "ytick.labelcolor": FAINT,
}


def colour_at(place: int) -> str:
    """Return the colour of the algorithm at a place; beyond the last colour they repeat, darker."""
    colour, shade = COLOURS[place % len(COLOURS)], 0.55 ** (place // len(COLOURS))
    return "#" + "".join(f"{round(int(colour[at : at + 2], 16) * shade):02X}" for at in (1, 3, 5))


def style_at(place: int) -> dict[str, Any]:
    """Return the options of the line of the algorithm at a place: its colour, its line style and its marker."""
    marker = MARKERS[place // len(LINES) % len(MARKERS)]
    shift = 0.02 * (place % len(LINES))  # markers of neighbours do not cover each other
    return {
        **{"color": colour_at(place), "linestyle": LINES[place % len(LINES)], "marker": marker},
        **{"markevery": (0.05 + shift, 0.2), "markersize": 4.5, "markeredgewidth": 0},
    }


def mark_at(place: int) -> str:
    """Return the marker of a series whose points are drawn without a line that would tell it apart in grey."""
    return MARKERS[1 + place % (len(MARKERS) - 1)]


def dashes_at(place: int) -> str:
    """Return the same line style for SVG: the lengths of dashes and gaps of a line of width 2."""
    line = LINES[place % len(LINES)]
    return "none" if line == "-" else " ".join(f"{2 * length:g}" for length in line[1])


def styles(result: Result) -> dict[str, dict[str, Any]]:
    """Return the options of every algorithm's line, the same in all figures of a study."""
    return {label: style_at(place) for place, label in enumerate(result.study.labels)}


def entries(shown: Mapping[str, Mapping[str, Any]]) -> list[Artist]:
    """Return the legend entries, from the name of each line to its options."""
    return [Line2D([], [], label=label, **{**options, "markevery": None}) for label, options in shown.items()]


def band_entry(words: str) -> Artist:
    """Return the legend entry that explains the bands."""
    return Patch(facecolor=FAINT, alpha=0.25, linewidth=0, label=words)


def decades(axes: Axes, low: float, high: float) -> None:
    """Set a logarithmic horizontal axis with plain numbers, between two bounds."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 3000 * low else (1.0,)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def rows_only(axes: Axes) -> None:
    """Remove the lines that a panel of horizontal bars does not need."""
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def grey(rgb: Sequence[float]) -> float:
    """Return the grey, from 0 to 1, that is as bright as a colour."""
    return float((np.power(rgb, GAMMA) @ (0.2126, 0.7152, 0.0722)) ** (1 / GAMMA))


@cache
def on_dark(colour: Any) -> Any:
    """Return what a colour becomes in a dark figure: its hue and its opacity stay, and it is the brighter the darker it was."""
    *rgb, alpha = to_rgba(colour)
    if not alpha:
        return "none"  # else the opacity of an artist would make it seen
    if known := DARK.get(to_hex(colour)):
        return to_rgba(known, alpha)
    hue, _, saturation = rgb_to_hls(*rgb)
    shades = [hls_to_rgb(hue, step / 100, saturation) for step in range(101)]
    return *min(shades, key=lambda shade: abs(grey(shade) - 0.85 + 0.42 * grey(rgb))), alpha


def darken(figure: Figure) -> Figure:
    """Recolour all that is drawn in a figure for a dark page, and return it."""
    found = dict.fromkeys(one for one in figure.findobj() if isinstance(one, Line2D | Patch | Collection | Text))
    boxes = [box for one in found if isinstance(one, Text) and (box := one.get_bbox_patch()) is not None]
    for one in (*found, *boxes):
        names = ["color", "markerfacecolor", "markeredgecolor", "facecolor", "edgecolor"]
        if isinstance(one, Collection) and one.get_array() is not None:  # its faces have the colours of a map
            one.set_cmap(ListedColormap([on_dark(tuple(shade)) for shade in one.get_cmap()(range(256))]))
            names.remove("facecolor")
        was = {name: read() for name in names if (read := getattr(one, f"get_{name}", None)) is not None}
        for name, colour in was.items():
            several = isinstance(one, Collection)
            if len(colour):
                getattr(one, f"set_{name}")([on_dark(tuple(each)) for each in colour] if several else on_dark(colour))
    for axes in figure.axes:  # ticks that are yet to come
        axes.tick_params(which="both", color=on_dark(RULE), labelcolor=on_dark(FAINT), grid_color=on_dark(GRID))
    return figure


@contextmanager
def styled(settings: dict[Any, Any]) -> Iterator[None]:
    """Draw with settings of matplotlib, which all threads share: one thread at a time."""
    with _drawing, rc_context(settings):
        yield


def labels(figure: Figure) -> str:
    """Return the words on a figure's axes and in its legends, a line for each panel and one for the legend entries."""
    parts = [figure, *figure.subfigs]
    panels = [f"{axes.get_ylabel()} against {axes.get_xlabel()}" for axes in figure.axes]
    boxes = [*(box for part in parts for box in part.legends), *(box for axes in figure.axes if (box := axes.get_legend()))]
    entries = [text.get_text() for box in boxes for text in box.get_texts()]
    return "\n".join(" ".join(words.split()) for words in [*panels, "; ".join(entries)])


def save(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure under another name and rename it, so that a link in its place is replaced and not followed.

    A PNG has the figure's `labels` as its description.

    Raises:
        OSError: the file cannot be written, for example because its folder is missing.
    """
    os.stat(os.path.join(path.parent, ""))
    kind = path.suffix.removeprefix(".")
    words: Any = {"metadata": {"Description": labels(figure)}} if kind == "png" else {}
    atomic.write(path, lambda file: figure.savefig(file, format=kind, dpi=dpi, **words))
