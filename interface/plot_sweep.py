"""The cells of a sweep side by side: an algorithm's curves against evaluations, time and bytes, and its time to a level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbo.compare import Goal, against_first, metric_of
from fedbo.curves import Axis, Curve
from fedbo.plot_cells import Looks, looks
from fedbo.plot_reach import draw_reach
from fedbo.plot_regret import dress, limits, line
from fedbo.plot_style import FAINT, clock, remark
from fedbo.plot_timeline import horizon

if TYPE_CHECKING:
    from fedbo.results import Result


BOXES = ((0.06, 0.535, 0.42, 0.335), (0.56, 0.535, 0.42, 0.335), (0.06, 0.085, 0.325, 0.325))


def draw_sweep(figure: Figure, result: Result, goal: Goal) -> None:
    """Draw all cells of an algorithm: three panels of curves, one line for each cell, and one of times to the level."""
    found = against_first(result, goal)
    cells = [one.cell for one, _ in found]
    chosen = looks(result, cells)
    first = max(1, result.study.agents.initial)
    axes = [figure.add_axes(box) for box in BOXES]
    by: tuple[Axis, ...] = ("evaluations", "time", "bytes")
    curves = {axis: _curves(result, axis, goal) for axis in by}
    unit, size = _unit(curves["bytes"])
    for one, axis in zip(axes, by, strict=True):
        for curve in curves[axis]:
            keep = curve.x >= first if axis == "evaluations" else np.ones(len(curve.x), dtype=np.bool_)
            line(
                one,
                _scaled(curve, size if axis == "bytes" else 1.0),
                keep,
                min(0.14, 0.7 / len(cells)),
                **chosen.lines[curve.cell],
            )
    _name(axes, result, goal, unit)
    limits(axes, curves["evaluations"], first)
    axes[1].set_xlim(0, horizon([t.finished[-1] for t in result.traces if t.algorithm == goal.algorithm]))
    _explain(axes[0], chosen, metric_of(result, cells[0], goal.regret).sign)
    if goal.level is not None:
        for one in axes:
            one.axhline(goal.level, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1.5)
    draw_reach(figure, (0.44, 0.085, 0.54, 0.325), (found, chosen, _target(result, goal)))


def _curves(result: Result, axis: Axis, goal: Goal) -> list[Curve]:
    return [curve for curve in result.curves(axis, 400, goal.regret) if curve.algorithm == goal.algorithm]


def _target(result: Result, goal: Goal) -> str:
    what = "regret" if goal.regret else result.metric().name
    return f"{what} {goal.level:g}" if goal.level is not None else f"the final {what} of {result.study.labels[0]}"


def _unit(curves: Sequence[Curve]) -> tuple[str, float]:
    most = max(float(curve.x[-1]) for curve in curves)
    return next(((name, size) for name, size in (("MiB", 2.0**20), ("KiB", 2.0**10)) if most >= 4 * size), ("bytes", 1.0))


def _scaled(curve: Curve, size: float) -> Curve:
    return Curve(curve.cell, curve.algorithm, curve.axis, curve.x / size, curve.mean, curve.error, curve.regret)


def _name(axes: Sequence[Axes], result: Result, goal: Goal, unit: str) -> None:
    names = {result.metric(trace.cell).name for trace in result.traces}
    what = "simple regret" if goal.regret else f"best {names.pop() if len(names) == 1 else 'value'}"
    dress(axes[0], f"{goal.algorithm}: {what} against evaluations", "evaluations of each agent, initial points included")
    dress(axes[1], f"{goal.algorithm}: {what} against time", clock(result))
    dress(axes[2], f"{goal.algorithm}: {what} against bytes", f"{unit} sent and received, for each agent that optimises")
    for one in (axes[0], axes[2]):
        one.set_ylabel(f"{what}, mean over agents")
    if result.study.study.replicates > 1:
        remark(axes[1], "bands: ± 1 standard error over replicates")
    if all(curve.x[-1] == 0 for curve in result.curves("bytes", 2) if curve.algorithm == goal.algorithm):
        axes[2].text(0.5, 0.5, f"{goal.algorithm} sends nothing", transform=axes[2].transAxes, ha="center", color=FAINT)


def _explain(axes: Axes, chosen: Looks, sign: int) -> None:
    """Say which line is which cell, by a legend or by a bar of colours."""
    if chosen.bar is not None:
        inset = axes.inset_axes((0.52, 0.88 if sign < 0 else 0.2, 0.44, 0.04))
        axes.figure.colorbar(chosen.bar, cax=inset, orientation="horizontal")
        inset.set_title(chosen.keys[0], fontsize=9.5, fontweight="normal", pad=5, loc="left")
        inset.tick_params(labelsize=8.5, length=2)
        inset.grid(visible=False)
    spot = 0.98 if sign < 0 else 0.02
    if chosen.bar is not None:
        spot = 0.78 if sign < 0 else 0.32
    for key, handles in chosen.handles if sign < 0 else reversed(chosen.handles):
        place: dict[str, Any] = {"loc": "upper right" if sign < 0 else "lower right", "bbox_to_anchor": (1.0, spot)}
        legend = axes.legend(handles=list(handles), title=key, alignment="left", fontsize=9, labelspacing=0.35, **place)
        legend.get_title().set(color=FAINT, fontsize=9)
        axes.add_artist(legend)
        lines = 13.5 * (len(handles) + 1) + 9
        spot += np.copysign(lines / 72 / (axes.get_position().height * 11), sign)
