"""Regret on the mean of all agents' functions against rounds: cumulative, and of single evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from fedbo.analysis.regret import regret_curves
from fedbo.analysis.traces import Array
from fedbo.figures.curves import label_panel
from fedbo.figures.layout import FigurePanel
from fedbo.figures.style import band_entry, entries, styles

if TYPE_CHECKING:
    from fedbo.analysis.regret import RegretCurve
    from fedbo.analysis.result import Result

WINDOWS = 40  # over each of which the regret of one evaluation is averaged
ROUNDS = "evaluations of each agent (rounds)"

Line = tuple[Array, Array, Array]  # places, mean and its deviation


def regret_panels(result: Result, cell: int) -> tuple[list[FigurePanel], list[Artist]]:
    """Return both panels, of cumulative regret and of that of one evaluation, and their legend entries."""
    found, coarse = ([c for c in regret_curves(result, points) if c.cell == cell] for points in (200, WINDOWS))
    legend = entries({label: options for label, options in styles(result).items() if label in {c.algorithm for c in found}})
    if any(np.isfinite(curve.deviation).any() for curve in found):
        legend.append(band_entry("± 1 standard deviation"))
    return [
        FigurePanel("cumulative", partial(_cumulative, found=found, known=styles(result))),
        FigurePanel("single", partial(_single, found=coarse, known=styles(result))),
    ], legend


def _cumulative(axes: Axes, found: Sequence[RegretCurve], known: Mapping[str, Any]) -> Sequence[Artist]:
    _lines(axes, found, known, lambda one: (one.rounds, one.mean, one.deviation))
    label_panel(axes, "Cumulative regret of an agent", ROUNDS)
    axes.set_ylabel("R / M, on the mean of all functions")
    axes.set_ylim(bottom=0.0)
    return ()


def _single(axes: Axes, found: Sequence[RegretCurve], known: Mapping[str, Any]) -> Sequence[Artist]:
    _lines(axes, found, known, lambda one: (one.rounds, one.instant, one.instant_deviation))
    label_panel(axes, "Regret of one evaluation", ROUNDS)
    averaged = any(one.rounds[-1] > WINDOWS for one in found)
    axes.set_ylabel("f* - f(x), mean over agents" + f"\nand 1/{WINDOWS} of the rounds" * averaged)
    positive = [float(curve.instant[curve.instant > 0.0].min()) for curve in found if (curve.instant > 0.0).any()]
    if positive:
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylim(bottom=0.7 * max(1e-7, min(positive)))
    return ()


def _lines(axes: Axes, found: Sequence[RegretCurve], known: Mapping[str, Any], numbers: Callable[[RegretCurve], Line]) -> None:
    for one in found:
        options = known[one.algorithm]
        x, mean, deviation = numbers(one)
        if np.isfinite(deviation).any():
            axes.fill_between(x, mean - deviation, mean + deviation, color=options["color"], alpha=0.16, linewidth=0)
        axes.plot(x, mean, solid_capstyle="round", **options)
