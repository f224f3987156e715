"""Curves of the best value so far on any of the axes of curves, and of regret: a line with its band for each algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedbo.analysis.averages import Curve, curves
from fedbo.analysis.comparison import metric_of
from fedbo.analysis.regret import regret_curves
from fedbo.analysis.timeline_bars import horizon
from fedbo.analysis.traces import Array, Axis
from fedbo.figures.layout import FigurePanel
from fedbo.figures.style import band_entry, entries, styles
from fedbo.objectives.base import Metric

if TYPE_CHECKING:
    from fedbo.analysis.regret import RegretCurve
    from fedbo.analysis.result import Result


AXES: tuple[Axis, ...] = ("evaluations", "time", "bytes", "epsilon", "cost")
SHOWN = 2  # of them, unless others are asked for
POINTS = 400
BAND = "± 1 standard error"


class RunCurves(NamedTuple):
    """The curves of one cell of a run: the options of each algorithm's line by its label."""

    result: Result
    cell: int
    known: Mapping[str, Mapping[str, Any]]

    def along(self, axis: Axis, points: int = 200, regret: bool = False) -> list[Curve]:
        """Return the curves against an axis."""
        return [one for one in curves(self.result, axis, points, regret) if one.cell == self.cell]


def curve_panels(result: Result, cell: int, regret: bool = False) -> tuple[list[FigurePanel], list[Artist]]:
    """Return a panel for each axis, and the entries of their legend: a line for each algorithm in a cell."""
    known, run = styles(result), RunCurves(result, cell, styles(result))
    return run_panels([run], {one.algorithm: known[one.algorithm] for one in run.along("evaluations", regret=regret)}, regret)


def run_panels(
    runs: Sequence[RunCurves], shown: Mapping[str, Mapping[str, Any]], regret: bool
) -> tuple[list[FigurePanel], list[Artist]]:
    """Return a panel with the curves of all runs for each axis whose unit they share, and the entries of what is `shown`."""
    counted = [one for run in runs for one in run.along("evaluations", regret=regret)]
    legend = [*entries(shown), *([band_entry(BAND)] if any(np.isfinite(one.error).any() for one in counted) else [])]
    common = [axis for axis in AXES if len({axis_label(run.result, axis, "") for run in runs}) == 1]
    draw = partial(_draw, runs=runs, regret=regret, counted=counted)
    return [FigurePanel(axis, partial(draw, axis=axis), shown=axis in AXES[:SHOWN]) for axis in common], legend


def _draw(axes: Axes, axis: Axis, runs: Sequence[RunCurves], regret: bool, counted: Sequence[Curve]) -> Sequence[Artist]:
    result, metric = runs[0].result, metric_of(runs[0].result, runs[0].cell, regret)
    firsts = [max(1, run.result.study.agents.initial) for run in runs]
    found = [(run, first, one) for run, first in zip(runs, firsts, strict=True) for one in run.along(axis, POINTS, regret)]
    drawn, unit = in_units([one for *_, one in found])
    for (run, first, _), one in zip(found, drawn, strict=True):
        keep = one.x >= first if axis == "evaluations" else np.ones(len(one.x), dtype=bool)
        line(axes, one, keep, band_alpha(len(drawn)), **run.known[one.algorithm])
    label_panel(axes, f"{value_name(metric, regret).capitalize()} against {axis}", axis_label(result, axis, unit))
    axes.set_ylabel(value_label(metric, regret))
    if axis == "time":
        axes.set_xlim(0, horizon([t.finished[-1] for run in runs for t in run.result.traces if t.cell == run.cell]))
    limits((axes,), counted, min(firsts))
    return ()


def value_name(metric: Metric, regret: bool = False) -> str:
    """Return the name of a curve's value."""
    return "simple regret" if regret else f"best {metric.name}"


def value_label(metric: Metric, regret: bool = False) -> str:
    """Return the label of the axis of a curve's values, with their direction if they are minimised."""
    return f"{value_name(metric, regret)}, mean over agents" + ("\n(lower is better)" if metric.sign < 0 else "")


def axis_label(result: Result, axis: Axis, unit: str) -> str:
    """Return the label of an axis, with its unit."""
    deltas = getattr(result.study.privacy, "deltas", None)
    delta = f" at delta = {deltas[0]:.3g}" if deltas else ""
    return {
        "iteration": "iterations of each agent",
        "evaluations": "evaluations of each agent, initial points included",
        "time": result.study.timing.in_words,
        "bytes": f"{unit} sent and received\nby each agent",
        "epsilon": f"epsilon spent{delta}",
        "cost": f"{result.study.timing.in_words} of each agent in evaluations",
    }[axis]


def in_units(drawn: Sequence[Curve]) -> tuple[list[Curve], str]:
    """Return curves against bytes in a suitable unit, and its name; other curves unchanged."""
    if not drawn or drawn[0].axis != "bytes":
        return list(drawn), ""
    most = max(float(one.x[-1]) for one in drawn)
    unit, size = next(((name, size) for name, size in (("MiB", 2.0**20), ("KiB", 2.0**10)) if most >= 4 * size), ("bytes", 1.0))
    return [replace(one, x=one.x / size) for one in drawn], unit


def line(axes: Axes, curve: Curve, keep: np.typing.NDArray[np.bool_], alpha: float = 0.16, **options: Any) -> None:
    """Draw one curve with its band of opacity `alpha`; `options` are those of its line, such as the colour.

    A curve with a single place on an axis of amounts, such as bytes without messages, is drawn as a level.
    """
    x, mean, error = curve.x[keep], curve.mean[keep], curve.error[keep]
    amounts, colour = curve.axis not in ("iteration", "evaluations"), options["color"]
    if amounts and len(x) == 1:
        where = {name: options[name] for name in ("color", "linestyle", "linewidth", "gid", "zorder") if name in options}
        axes.axhline(float(mean[0]), **where)
        return
    if np.isfinite(error).any():
        steps: Any = {"step": "post"} if amounts else {}
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=alpha, linewidth=0, **steps)
    axes.plot(x, mean, drawstyle="steps-post" if amounts else "default", **{"solid_capstyle": "round", **options})


def band_alpha(count: int) -> float:
    """Return the opacity of bands, so that lines stay visible under many of them."""
    return min(0.16, 0.7 / max(1, count))


def limits(axes: Sequence[Axes], drawn: Sequence[Curve], first: int) -> None:
    """Set the same vertical range for all axes, that of the means after the initial points, with their bands.

    Regrets that cover more than a decade are drawn on a logarithmic scale, which shows bands down to a tenth of the least mean.
    """
    means, errors = list[Array](), list[Array]()
    begun = any((curve.x >= first).any() for curve in drawn)  # a study that was cut short may end before
    for curve in drawn:
        keep = (curve.x >= first if begun else np.ones_like(curve.x, dtype=np.bool_)) & np.isfinite(curve.mean)
        means.append(curve.mean[keep])
        errors.append(np.nan_to_num(curve.error[keep]))
    mean, error = np.concatenate(means), np.concatenate(errors)
    if not len(mean):
        return
    low, high, least = float(np.min(mean - error)), float(np.max(mean + error)), float(mean.min())
    decades = drawn[0].regret and least > 0 and float(mean.max()) > 10 * least
    margin = 0.06 * (high - low or 1.0)
    for one in axes:
        if decades:
            one.set_yscale("log", nonpositive="clip")
            one.set_ylim(0.8 * max(low, 0.1 * least), 1.3 * high)
        else:
            one.set_ylim(low - margin, high + margin)


def label_panel(axes: Axes, title: str, label: str, vertical: str = "") -> None:
    """Set the title and the labels of a panel, with whole numbers on horizontal axes of counts."""
    axes.set(title=title, xlabel=label, ylabel=vertical)
    axes.margins(x=0.02)
    if label.startswith(("evaluations", "iterations", "rounds", "release")):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


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
    label_panel(axes, "Cumulative regret of an agent", ROUNDS, "R / M, on the mean of all functions")
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
