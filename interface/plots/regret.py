"""Regret on the mean of all agents' functions against rounds: cumulative, and of single evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from fedbo.plots.style import colours, remark
from fedbo.results.curves import Array

if TYPE_CHECKING:
    from fedbo.results.result import Result

WINDOWS = 40  # over each of which the regret of one evaluation is averaged


def draw_regret(axes: tuple[Axes, Axes], result: Result, cell: int) -> None:
    """Draw both pairs of axes: cumulative regret of each agent on the left, that of one evaluation on the right."""
    colour = colours(result)
    found, coarse = ([c for c in result.regret_curves(points) if c.cell == cell] for points in (200, WINDOWS))
    for curve in found:
        _line(axes[0], curve.rounds, (curve.mean, curve.deviation), colour[curve.algorithm], curve.algorithm)
    for curve in coarse:
        _line(axes[1], curve.rounds, (curve.instant, curve.instant_deviation), colour[curve.algorithm], None)
    for one, title in zip(axes, ("Cumulative regret of an agent", "Regret of one evaluation"), strict=True):
        one.set_title(title)
        one.set_xlabel("evaluations of each agent (rounds)")
        one.margins(x=0.02)
    axes[0].set_ylabel("R / M, on the mean of all agents' functions")
    axes[1].set_ylabel(f"f* - f(x), mean over agents and 1/{WINDOWS} of the rounds")
    axes[0].set_ylim(bottom=0.0)
    positive = [float(curve.instant[curve.instant > 0.0].min()) for curve in coarse if (curve.instant > 0.0).any()]
    if positive:
        axes[1].set_yscale("log", nonpositive="clip")
        axes[1].set_ylim(bottom=0.7 * max(1e-7, min(positive)))
    axes[0].legend(loc="upper left", handlelength=1.6, labelspacing=0.5)
    if any(np.isfinite(curve.deviation).any() for curve in found):
        remark(axes[1], "bands: ± 1 standard deviation over replicates")


def _line(axes: Axes, x: Array, band: tuple[Array, Array], colour: str, label: str | None) -> None:
    mean, deviation = band
    if np.isfinite(deviation).any():
        axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.16, linewidth=0)
    axes.plot(x, mean, color=colour, label=label, linewidth=2.0, solid_capstyle="round")
