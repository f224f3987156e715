"""Curves of the best value so far, against evaluations and against time, one line with its band for each algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from fedbo.plots.style import colours, remark, time_label
from fedbo.results.compare import metric_of
from fedbo.results.curves import Array, Curve
from fedbo.results.timeline_bars import horizon

if TYPE_CHECKING:
    from fedbo.results.result import Result


def draw_curves(axes: tuple[Axes, Axes], result: Result, cell: int, regret: bool = False) -> None:
    """Draw both pairs of axes: the left one against evaluations of each agent, the right one against time."""
    colour, metric = colours(result), metric_of(result, cell, regret)
    name = "simple regret" if regret else f"best {metric.name}"
    by_count = [curve for curve in result.curves("evaluations", regret=regret) if curve.cell == cell]
    by_time = [curve for curve in result.curves("time", points=400, regret=regret) if curve.cell == cell]
    first = max(1, result.study.agents.initial)
    for curve in by_count:
        line(axes[0], curve, curve.x >= first, color=colour[curve.algorithm], label=curve.algorithm)
    for curve in by_time:
        line(axes[1], curve, np.ones(len(curve.x), dtype=bool), color=colour[curve.algorithm])
    label_panel(axes[0], f"{name.capitalize()} against evaluations", "evaluations of each agent, initial points included")
    label_panel(axes[1], f"{name.capitalize()} against time", time_label(result))
    axes[0].set_ylabel(f"{name}, mean over agents")
    axes[1].set_xlim(0, horizon([t.finished[-1] for t in result.traces if t.cell == cell]))
    limits(axes, by_count, first)
    axes[0].legend(loc="upper right" if metric.sign < 0 else "lower right", handlelength=1.6, labelspacing=0.5)
    if any(np.isfinite(curve.error).any() for curve in by_count):
        remark(axes[1], "bands: ± 1 standard error over replicates")


def line(axes: Axes, curve: Curve, keep: np.typing.NDArray[np.bool_], alpha: float = 0.16, **options: Any) -> None:
    """Draw one curve with its band, so opaque, and a dot at its end; `options` are those of its line, such as the colour."""
    x, mean, error = curve.x[keep], curve.mean[keep], curve.error[keep]
    step, colour = curve.axis in ("time", "bytes"), options["color"]
    if np.isfinite(error).any():
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=alpha, linewidth=0, step="post" if step else None)
    style = "steps-post" if step else "default"
    axes.plot(x, mean, drawstyle=style, **{"linewidth": 2.0, "solid_capstyle": "round", **options})
    axes.plot(x[-1:], mean[-1:], "o", color=colour, markersize=5, markeredgecolor="white", markeredgewidth=0.8, zorder=5)


def limits(axes: Sequence[Axes], drawn: Sequence[Curve], first: int) -> None:
    """Give all the same vertical range, that of the means from the end of the initial points on.

    Regrets that cover more than a decade are drawn on a logarithmic scale.
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
    low, high = float(np.min(mean - error)), float(np.max(mean + error))
    decades = drawn[0].regret and float(mean.min()) > 0 and float(mean.max()) > 10 * float(mean.min())
    margin = 0.06 * (high - low or 1.0)
    for one in axes:
        if decades:
            one.set_yscale("log", nonpositive="clip")
            one.set_ylim(0.7 * float(mean.min()), 1.3 * high)
        else:
            one.set_ylim(low - margin, high + margin)


def label_panel(axes: Axes, title: str, label: str) -> None:
    """Name a panel and its horizontal axis."""
    axes.set_title(title)
    axes.set_xlabel(label)
    axes.margins(x=0.02)
