"""Figures of a run: drawn with matplotlib's objects, without a display and without any state outside the figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedbo.plot_regret import draw_curves
from fedbo.plot_timeline import draw_timeline

if TYPE_CHECKING:
    from fedbo.results import Result

KINDS = ("overview", "curves", "timeline")

# Okabe and Ito's colours in an order that keeps neighbours apart for every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B", "#B8A800")

INK, FAINT = "#262B33", "#6B7280"

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


class PlotError(ValueError):
    """A figure that cannot be drawn."""


def draw(result: Result, path: Path, kind: str = "overview", cell: int = 0) -> Path:
    """Draw one cell of a run into a file and give its path; PlotError when there is no such figure."""
    if kind not in KINDS:
        raise PlotError(f"no figure '{kind}'; there are: {', '.join(KINDS)}")
    cells = sorted({trace.cell for trace in result.traces})
    if cell not in cells:
        raise PlotError(f"no observations in cell {cell}; there are some in: {', '.join(map(str, cells)) or 'none'}")
    figure = figure_of(result, kind, cell)
    FigureCanvasAgg(figure)
    with rc_context(STYLE):
        try:
            figure.savefig(path, dpi=100)
        except ValueError as error:
            raise PlotError(f"'{path}': {error}") from None
    return path


def figure_of(result: Result, kind: str, cell: int) -> Figure:
    """Make the figure itself, for those who want to go on with it."""
    with rc_context(STYLE):
        return _figure(result, kind, cell)


def _figure(result: Result, kind: str, cell: int) -> Figure:
    if kind == "timeline":
        figure = Figure(figsize=(16, 7))
        _head(figure, result, cell)
        draw_timeline(figure.add_axes((0.06, 0.1, 0.92, 0.72)), result, cell)
        return figure
    figure = Figure(figsize=(16, 11) if kind == "overview" else (16, 6.4))
    _head(figure, result, cell)
    bottom, height = (0.545, 0.325) if kind == "overview" else (0.12, 0.66)
    left, right = (figure.add_axes((x, bottom, 0.42, height)) for x in (0.06, 0.56))
    draw_curves((left, right), result, cell, colours(result))
    if kind == "overview":
        draw_timeline(figure.add_axes((0.06, 0.065, 0.92, 0.375)), result, cell)
    return figure


def colours(result: Result) -> dict[str, str]:
    """Give every algorithm its colour, the same in all figures of a study."""
    return {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(result.study.labels)}


def _head(figure: Figure, result: Result, cell: int) -> None:
    inches = float(figure.get_size_inches()[1])
    header, study = result.study.study, result.study
    agents = len({trace.agent for trace in result.traces if trace.cell == cell})
    values = result.study.titles()[cell]
    figure.text(0.06, 1 - 0.42 / inches, header.name, fontsize=19, fontweight="bold", va="center")
    facts = [
        f"{agents} agents",
        f"{header.replicates} replicate{'s' * (header.replicates > 1)}",
        f"{study.budget.iterations} iterations after {study.agents.initial} initial points",
        f"{study.exchange.mode} exchange",
        f"seed {header.seed}",
        *([values] if values else []),
        *([result.manifest["status"]] if result.manifest["status"] != "complete" else []),
    ]
    figure.text(0.06, 1 - 0.8 / inches, "   ·   ".join(facts), fontsize=11, color=FAINT, va="center")
