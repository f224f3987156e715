"""The figure of a hunt: the worlds in the order in which they were tried, and the verdict on the reported one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedbo.analysis.result import Choices
from fedbo.figures.curves import label_panel
from fedbo.figures.layout import FigurePanel, Sheet, arrange
from fedbo.figures.plot import View, write
from fedbo.figures.style import COLOURS, FAINT, INK
from fedbo_hunt.claims import lower_bound
from fedbo_hunt.result import Hunt, VerdictRow

_HOW = {"drawn": (COLOURS[0], "o"), "guided": (COLOURS[1], "s")}


def draw_hunt(hunt: Hunt, path: Path | None = None, look: Choices | None = None) -> Path:
    """Draw the figure of a hunt and return its path, by default in its directory."""
    return write(hunt_figure(hunt, look), path or hunt.directory, "hunt", View.of("hunt", 0, look or {}).look)


def hunt_figure(hunt: Hunt, look: Choices | None = None) -> Figure:
    """Return the figure itself."""
    panels = [FigurePanel("worlds", partial(_draw_worlds, hunt=hunt))]
    shown = hunt.reported or (max(hunt.verdicts, key=lambda row: row.low) if hunt.verdicts else None)
    legend: list[Artist] = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{how} world")
        for how, (colour, marker) in _HOW.items()
        if any(row.how == how for row in hunt.tried)
    ]
    if shown is not None and shown.excesses:
        panels.append(FigurePanel("verdict", partial(_draw_verdict, row=shown)))
        legend += [_line(INK, "mean so far"), _line(COLOURS[2], "95 % confidence sequence")]
    facts = ["the claim fails" if hunt.broken else "the claim stands", f"{hunt.worlds} worlds"]
    return arrange(Sheet(panels, legend, hunt.claim, facts), View.of("hunt", 0, look or {}).look)


def _line(colour: str, label: str) -> Artist:
    return Line2D([], [], color=colour, label=label)


def _draw_worlds(axes: Axes, hunt: Hunt) -> Sequence[Artist]:
    axes.axhline(0.0, color=FAINT, linewidth=1.0)
    for number, row in enumerate(hunt.tried, start=1):
        colour, marker = _HOW[row.how]
        axes.plot([number, number], [row.low, row.mean], color=colour, linewidth=0.8)
        axes.plot([number], [row.mean], color=colour, marker=marker, markersize=3.5)
    if hunt.tried:  # one world with a long tail would hide all others
        means = [abs(row.mean) for row in hunt.tried]
        axes.set_yscale("symlog", linthresh=max(float(np.median(means)), 1e-9))
    label_panel(axes, "Worlds as they were tried", "world")
    axes.set_ylabel("mean excess over the claim")
    return ()


def _draw_verdict(axes: Axes, row: VerdictRow) -> Sequence[Artist]:
    count = np.arange(1, len(row.excesses) + 1)
    axes.axhline(0.0, color=FAINT, linewidth=1.0)
    axes.plot(count, row.excesses, color=COLOURS[0], marker="o", markersize=3.0, linestyle="", alpha=0.6)
    axes.plot(count, np.cumsum(row.excesses) / count, color=INK)
    low = [max(lower_bound(row.excesses[:n], row.limit), -row.limit) for n in count]
    bottom = min(0.0, *row.excesses)
    axes.plot(count, np.maximum(low, bottom - 0.1 * abs(bottom)), color=COLOURS[2])
    label_panel(axes, f"Verdict on fresh seeds: the {row.how} world", "replicates")
    axes.set_ylabel("excess over the claim")
    return ()
