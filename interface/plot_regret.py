"""Curves of the best value so far, against evaluations and against time, one line with its band for each algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from fedbo.curves import Array, Curve
from fedbo.plot_timeline import horizon

if TYPE_CHECKING:
    from fedbo.results import Result


def draw_curves(axes: tuple[Axes, Axes], result: Result, cell: int, colours: Mapping[str, str]) -> None:
    """Draw both pairs of axes: the left one against evaluations of each agent, the right one against time."""
    clock = "wall-clock seconds" if result.study.timing.clock == "wall" else "virtual time"
    name = f"best {result.metric(cell).name}"
    by_count = [curve for curve in result.curves("evaluations") if curve.cell == cell]
    by_time = [curve for curve in result.curves("time", points=400) if curve.cell == cell]
    first = max(1, result.study.agents.initial)
    for curve in by_count:
        _line(axes[0], curve, colours[curve.algorithm], curve.x >= first)
    for curve in by_time:
        _line(axes[1], curve, colours[curve.algorithm], np.ones(len(curve.x), dtype=bool))
    _dress(axes[0], f"{name.capitalize()} against evaluations", "evaluations of each agent, initial points included")
    _dress(axes[1], f"{name.capitalize()} against time", clock)
    axes[0].set_ylabel(f"{name}, mean over agents")
    axes[1].set_xlim(0, horizon([t.finished[-1] for t in result.traces if t.cell == cell]))
    _limits(axes, by_count, first)
    axes[0].legend(loc="upper right" if result.metric(cell).sign < 0 else "lower right", handlelength=1.6, labelspacing=0.5)
    if any(np.isfinite(curve.error).any() for curve in by_count):
        axes[1].text(1.0, 1.02, "bands: ± 1 standard error over replicates", transform=axes[1].transAxes, ha="right",
                     va="bottom", fontsize=9, color="#6B7280")  # fmt: skip


def _line(axes: Axes, curve: Curve, colour: str, keep: np.typing.NDArray[np.bool_]) -> None:
    x, mean, error = curve.x[keep], curve.mean[keep], curve.error[keep]
    step = curve.axis == "time"
    if np.isfinite(error).any():
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.16, linewidth=0, step="post" if step else None)
    style = "steps-post" if step else "default"
    axes.plot(x, mean, color=colour, linewidth=2.0, label=curve.algorithm, drawstyle=style, solid_capstyle="round")
    axes.plot(x[-1:], mean[-1:], "o", color=colour, markersize=5, markeredgecolor="white", markeredgewidth=0.8, zorder=5)


def _limits(axes: tuple[Axes, Axes], drawn: list[Curve], first: int) -> None:
    """Give both the same vertical range, that of the means from the end of the initial points on."""
    values: list[Array] = []
    begun = any((curve.x >= first).any() for curve in drawn)  # a study that was cut short may end before
    for curve in drawn:
        keep = curve.x >= first if begun else np.ones_like(curve.x, dtype=np.bool_)
        error = np.nan_to_num(curve.error[keep])
        values += [curve.mean[keep] - error, curve.mean[keep] + error]
    low, high = float(np.nanmin(np.concatenate(values))), float(np.nanmax(np.concatenate(values)))
    margin = 0.06 * (high - low or 1.0)
    for one in axes:
        one.set_ylim(low - margin, high + margin)


def _dress(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(label)
    axes.margins(x=0.02)
