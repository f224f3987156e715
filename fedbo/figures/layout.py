"""The layout of a figure: its panels in rows, its head, and legends beside the panels, never on them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, FigureBase
from matplotlib.font_manager import FontProperties, findfont

from fedbo.figures.style import FAINT, STYLE, darken, styled
from fedbo.settings import arguments
from fedbo.settings.errors import FedboError

WIDE = 16.0  # inches of a figure for a screen
PAPER = 10.0  # inches: a narrower figure is for print, with smaller letters
COLUMN = 5.5  # inches: a narrower figure has one column of panels
PAGE = 9.0  # inches: the panels of a figure for print are flatter where it would be higher
FLATTEST = 0.4  # of the height that a panel should have
LETTER, BOLD = 0.52, 1.25  # the mean width of a letter as a share of its size, and how much wider bold ones are
MARGIN = 0.65  # inches beside a panel for the names of its vertical axis
NARROWEST, WIDEST = 2.5, 40.0
SPACING: dict[str, Any] = {
    "columnspacing": 1.3,
    "handlelength": 2.2,
    "handletextpad": 0.5,
    "labelspacing": 0.35,
    "handleheight": 0.8,
    "borderpad": 0.1,
}


class PlotError(FedboError, ValueError):
    """A figure that cannot be drawn."""


@dataclass(frozen=True, slots=True)
class Look:
    """The size of a figure in inches, its font and font size in points, whether it has titles, and whether it is dark."""

    width: float | None = None
    height: float | None = None
    font: str | None = None
    font_size: float | None = None
    title: bool = True
    dark: bool = False

    @property
    def inches(self) -> float:
        """Return the width."""
        return self.width or WIDE

    @property
    def points(self) -> float:
        """Return the font size."""
        return self.font_size or (10.0 if self.inches >= PAPER else 8.0)

    @property
    def dpi(self) -> int:
        """Return the resolution in pixels per inch, high enough for print."""
        return 100 if self.width is None else 300

    def style(self) -> Any:
        """Return the settings of matplotlib."""
        scale = self.points / 10.0
        thin = {name: scale * STYLE[name] for name in ("axes.linewidth", "grid.linewidth", "hatch.linewidth")}
        return {
            **STYLE,
            **thin,
            **{"font.size": self.points, "lines.linewidth": 1.9 * scale, "lines.markersize": 6.0 * scale},
            **{"axes.titlesize": "large" if self.inches >= PAPER else "medium"},
            **({"font.family": self.font} if self.font else {}),
        }

    def check(self) -> None:
        """Raise PlotError for an impossible look."""
        arguments.flag("dark", self.dark)
        limits = (("width", self.width, NARROWEST, WIDEST), ("height", self.height, 1.0, WIDEST))
        for name, value, low, high in (*limits, ("font_size", self.font_size, 4.0, 40.0)):
            if value is not None and not low <= arguments.number(name, value) <= high:
                unit = "points" if name == "font_size" else "inches"
                raise PlotError(f"{name} = {value:g}: must be between {low:g} and {high:g} {unit}")
        if self.font is not None:
            try:
                findfont(FontProperties(family=self.font), fallback_to_default=False)
            except ValueError:
                raise PlotError(
                    f"font '{self.font}': is not installed; choose another, for example 'DejaVu Serif' or 'serif'"
                ) from None


@dataclass(frozen=True, slots=True)
class FigurePanel:
    """A panel: its name, a function that draws it and returns its own legend entries, and its size.

    A `wide` panel has a row of its own. A panel of bars has `rows` of them. A panel that is not `shown` is drawn only on
    request.
    """

    name: str
    draw: Callable[[Axes], Sequence[Artist]]
    wide: bool = False
    rows: int = 0
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Sheet:
    """The content of a figure: its panels, their common legend entries, and its head: a title and facts."""

    panels: Sequence[FigurePanel]
    entries: Sequence[Artist] = ()
    title: str = ""
    facts: Sequence[str] = ()


def arrange(sheet: Sheet, look: Look) -> Figure:
    """Draw a sheet as a separate figure."""
    look.check()
    with styled(look.style()):
        figure = Figure(figsize=(look.inches, look.inches), layout="constrained")
        FigureCanvasAgg(figure)  # without one, each measure of a text draws an empty figure
        if not look.title:
            inches = _body(figure, sheet, look)
            figure.set_size_inches(look.inches, _height(look, 0.0, inches))
            return darken(figure) if look.dark else figure
        outer = figure.add_gridspec(2, 1)
        above = _head(figure.add_subfigure(outer[0]), sheet, look)
        whole = _height(look, above, _body(figure.add_subfigure(outer[1]), sheet, look))
        outer.set_height_ratios([above, whole - above])
        figure.set_size_inches(look.inches, whole)
        return darken(figure) if look.dark else figure


def _height(look: Look, above: float, wanted: float) -> float:
    """Return the height of a figure: the sum of its head and its panels, or the requested height if the panels fit."""
    least = above + FLATTEST * wanted
    if look.height is not None and look.height < least:
        raise PlotError(f"height = {look.height:g}: is too small for these panels; set at least {math.ceil(10 * least) / 10:g}")
    return look.height or above + wanted


def draw_into(axes: Axes, sheet: Sheet, title: bool) -> Axes:
    """Draw the only panel of a sheet into another figure's axes, in their current style."""
    (panel,) = sheet.panels
    legend_above(axes, [*sheet.entries, *panel.draw(axes)])
    if not title:
        _untitle(axes)
    return axes


def legend_above(axes: Axes, handles: Sequence[Artist]) -> float:
    """Place a legend between a panel and its title, and wrap its words to its width; return the legend's height in inches."""
    width, size = _width(axes), float(axes.title.get_fontsize())
    words, height = axes.get_title("left"), 0.0
    if handles:
        options: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.25}
        height = _fitted(lambda own, n: axes.legend(handles=own, ncols=n, **SPACING, **options), handles, width)
    axes.set_title(_wrapped(words, width, BOLD * size), loc="left", pad=72 * height + 0.3 * size + 3)
    axes.set_xlabel(_wrapped(axes.get_xlabel(), width, float(axes.xaxis.label.get_fontsize())))
    return height


def _width(axes: Axes) -> float:
    """Return the width of a panel in inches, without the part that row labels need beyond the usual margin."""
    figure = axes.figure
    names = [label.get_window_extent().width for label in axes.get_yticklabels() if label.get_text()]
    taken = max(0.0, max(names, default=0.0) - 0.06 * figure.bbox.width)
    return float(max(0.4 * axes.get_window_extent().width, axes.get_window_extent().width - taken) / figure.dpi)


def row_labels(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows of a panel of bars, the first on top, with font size and line breaks that fit."""
    figure = axes.figure
    small = "medium" if len(names) <= 12 else "small" if len(names) <= 24 else "xx-small"
    width = 0.32 * axes.get_window_extent().width / figure.dpi
    size = float(axes.xaxis.label.get_fontsize())
    axes.set_yticks(range(len(names)), [_wrapped(name, max(width, 0.6), size) for name in names], fontsize=small)


def _fitted(make: Callable[[Sequence[Artist], int], Any], handles: Sequence[Artist], width: float) -> float:
    """Fit a legend into a width in inches with as many columns as possible, read row by row; return its height in inches."""
    for handle in handles:
        handle.set_label(_wrapped(str(handle.get_label()), width - 0.4, rcParams["font.size"]))
    for columns in range(min(len(handles), 8), 0, -1):
        # matplotlib fills columns from top to bottom, the longer ones first.
        legend = make([handles[place] for column in range(columns) for place in range(column, len(handles), columns)], columns)
        place = legend.get_window_extent()
        if place.width <= width * legend.figure.dpi:
            break
        if columns > 1:
            legend.remove()
    return float(place.height / legend.figure.dpi)


def _head(figure: FigureBase, sheet: Sheet, look: Look) -> float:
    """Write the title and the facts; return their height in inches."""
    size = look.points
    big = 1.8 * size if look.inches >= PAPER else 1.3 * size
    title, facts = (
        _wrapped(sheet.title, look.inches - 0.2, BOLD * big),
        _wrapped("  ·  ".join(sheet.facts), look.inches - 0.2, size),
    )
    first, second = 1.25 * big * (1 + title.count("\n")), 1.3 * size * (1 + facts.count("\n"))
    inches = (first + second + 0.4 * size) / 72
    x, y = 0.1 / look.inches, 1 - 0.5 * size / 72 / inches
    figure.text(x, y, title, fontsize=big, fontweight="bold", va="top")
    figure.text(x, y - first / 72 / inches, facts, fontsize=size, color=FAINT, va="top", linespacing=1.25)
    return inches


def _body(figure: Any, sheet: Sheet, look: Look) -> float:
    """Draw the panels and their legends; return their height in inches."""
    columns = _columns([panel for panel in sheet.panels if not panel.wide], look)
    places = _places(sheet.panels, columns)
    rows = 1 + max(row for row, _ in places)
    # Texts are measured before the layout, which chooses its own ends: these give panels about the width that they will have.
    share = (1 / columns - MARGIN / look.inches) * (1.2 * columns - 0.2)
    grid = figure.add_gridspec(rows, 1, left=MARGIN / look.inches, right=min(0.99, share + MARGIN / look.inches))
    inner = [grid[row].subgridspec(1, columns) for row in range(rows)]  # what stands beside one row narrows no other
    legends, alone, drawn = [0.0] * rows, len(sheet.panels) == 1, list[Axes]()
    for panel, (row, column) in zip(sheet.panels, places, strict=True):
        axes = figure.add_subplot(inner[row][0, :] if panel.wide else inner[row][0, column])
        drawn.append(axes)
        handles = panel.draw(axes)
        above = legend_above(axes, [*(sheet.entries if alone else ()), *handles])
        if not look.title:
            _untitle(axes)
        legends[row] = max(legends[row], above)
    options: dict[str, Any] = {"loc": "outside upper left", **SPACING}
    make = lambda own, n: figure.legend(handles=own, ncols=n, **options)  # noqa: E731
    common = 0.0 if alone or not sheet.entries else _fitted(make, sheet.entries, look.inches - 0.2)
    heights = _on_a_page(sheet.panels, [row for row, _ in places], (look, columns), common + sum(legends))
    for (row, _), axes in zip(places, drawn, strict=True):
        axes.set_ylabel(_wrapped(axes.get_ylabel(), 0.8 * heights[row], look.points))
    grid.set_height_ratios([height + above for height, above in zip(heights, legends, strict=True)])
    return sum(heights) + sum(legends) + common


def _on_a_page(panels: Sequence[FigurePanel], rows: Sequence[int], look: tuple[Look, int], legends: float) -> list[float]:
    """Return the heights of rows without their legends; for print, flatter curves if the figure were higher than a page."""
    own, columns = look
    heights, bars = [0.0] * (1 + max(rows)), {row for panel, row in zip(panels, rows, strict=True) if panel.rows}
    for panel, row in zip(panels, rows, strict=True):
        heights[row] = max(heights[row], _inches(panel, own, columns))
    plain = sum(height for row, height in enumerate(heights) if row not in bars)
    if own.inches >= PAPER or own.height is not None or not plain:
        return heights
    left = PAGE - legends - (sum(heights) - plain)
    share = min(1.0, max(FLATTEST, left / plain))
    return [height if row in bars else share * height for row, height in enumerate(heights)]


def _columns(panels: Sequence[FigurePanel], look: Look) -> int:
    """Return the number of columns for the panels that share rows."""
    if look.inches < COLUMN or len(panels) < 2:
        return 1
    return 3 if len(panels) == 3 or (len(panels) > 4 and look.inches >= PAPER) else 2


def _inches(panel: FigurePanel, look: Look, columns: int) -> float:
    """Return the height of a panel without its legend."""
    width = look.inches / (1 if panel.wide else columns)
    plain = min((0.5 if panel.wide and look.inches >= COLUMN else 0.75) * width, 5.2)
    bars = look.points / 72 * (7 + 1.35 * panel.rows)
    return max(bars, 0.6 * min(plain, 3.2)) if panel.rows else plain


def _places(panels: Sequence[FigurePanel], columns: int) -> list[tuple[int, int]]:
    """Return the row and the column of each panel, in order."""
    found, row, column = list[tuple[int, int]](), 0, 0
    for panel in panels:
        if column and (panel.wide or column == columns):
            row, column = row + 1, 0
        found.append((row, column))
        column = columns if panel.wide else column + 1
    return found


def _untitle(axes: Axes) -> None:
    axes.set_title("", loc="left")


def _wrapped(words: str, inches: float, points: float) -> str:
    """Wrap a text of a font size to a width in inches."""
    letters = max(8, int(72 * inches / (LETTER * points)))
    return "\n".join(textwrap.fill(line, letters, break_long_words=False) for line in words.split("\n"))
