"""The figure of attacks: gain against leakage, one point for each method and target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedbo.analysis.result import Choices
from fedbo.figures.curves import label_panel
from fedbo.figures.layout import FigurePanel, Sheet, arrange
from fedbo.figures.plot import View, write
from fedbo.figures.style import COLOURS, FAINT
from fedbo_leak.attacks import best_point, membership, observations
from fedbo_leak.readings import COORDINATOR
from fedbo_leak.result import Leak

SHOWN = {best_point.BEST: "o", observations.POINTS: "s", observations.VALUES: "^", membership.MEMBER: "D"}


def draw_leak(leak: Leak, path: Path | None = None, look: Choices | None = None) -> Path:
    """Draw the figure of attacks and return its path, by default in their directory."""
    return write(leak_figure(leak, look), path or leak.directory, "leak", View.of("leak", 0, look or {}).look)


def leak_figure(leak: Leak, look: Choices | None = None) -> Figure:
    """Return the figure itself."""
    legend: list[Artist] = [
        Line2D([], [], color=COLOURS[place], marker=marker, linestyle="", label=target)
        for place, (target, marker) in enumerate(SHOWN.items())
    ]
    panels = [FigurePanel("leakage", partial(_draw, leak=leak))]
    return arrange(Sheet(panels, legend, f"What messages betray: {leak.study}", []), View.of("leak", 0, look or {}).look)


def _draw(axes: Axes, leak: Leak) -> Sequence[Artist]:
    axes.axvline(0.0, color=FAINT, linewidth=1.0)
    for method in leak.methods:
        own = {row.target: row for row in leak.strongest if row.algorithm == method.algorithm and row.view == COORDINATOR}
        for place, (target, marker) in enumerate(SHOWN.items()):
            if (row := own.get(target)) is not None:
                axes.plot([row.leakage_low, row.leakage_high], [method.best] * 2, color=COLOURS[place], linewidth=0.8)
                axes.plot([row.leakage], [method.best], color=COLOURS[place], marker=marker, markersize=4)
        axes.annotate(method.algorithm, (1.02, method.best), fontsize=6, annotation_clip=False, va="center")
    axes.set_xlim(-0.03, 1.0)
    label_panel(axes, "Gain against leakage", "leakage to a curious coordinator")
    axes.set_ylabel("mean best score")
    return ()
