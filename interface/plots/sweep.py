"""The cells of a sweep side by side: an algorithm's curves against evaluations, time and bytes, and its time to a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedbo.plots.cells import CellStyles, cell_styles, explain
from fedbo.plots.curves import label_panel, limits, line
from fedbo.plots.style import FAINT, decades, remark, time_label
from fedbo.plots.time_to_target import draw_time_to_target
from fedbo.results.compare import TargetValue, against_first, metric_of
from fedbo.results.curves import Array, Axis, Curve, IncumbentTrace, curve, early_span, grid
from fedbo.results.grouping import by_cell_and_algorithm
from fedbo.results.result import scored_traces
from fedbo.results.timeline_bars import horizon

if TYPE_CHECKING:
    from fedbo.results.result import Result


BOXES = ((0.06, 0.545, 0.42, 0.315), (0.56, 0.545, 0.42, 0.315), (0.06, 0.105, 0.29, 0.305))
TIMES_BOX = (0.385, 0.105, 0.595, 0.305)
BY: tuple[Axis, ...] = ("evaluations", "time", "bytes")
POINTS = 400


def draw_sweep(figure: Figure, result: Result, target: TargetValue) -> None:
    """Draw all cells of an algorithm: three panels of curves, one line for each cell, and one of times to the level."""
    found = against_first(result, target)
    chosen = cell_styles(result, [one.cell for one, _ in found])
    levels = {one.cell: one.level for one, _ in found}
    first = max(1, result.study.agents.initial)
    axes = [figure.add_axes(box) for box in BOXES]
    baseline = result.study.labels[0]
    drawn = {axis: _curves(result, axis, target, target.algorithm) for axis in BY}
    others = {axis: _curves(result, axis, target, baseline) if baseline != target.algorithm else [] for axis in BY[:2]}
    unit, size = _unit(drawn["bytes"])
    drawn["bytes"] = [replace(one, x=one.x / size) for one in drawn["bytes"]]
    for panel, axis in zip(axes, BY, strict=True):
        _lines(panel, drawn[axis], chosen, first)
        _baseline_lines(panel, others.get(axis, []), chosen, first)
    limits(axes, [*drawn["evaluations"], *others["evaluations"]], first)
    _span(axes[1], [*drawn["time"], *others["time"]], result, target)
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    _name(axes, result, target, unit)
    sign = metric_of(result, found[0][0].cell, target.regret).sign
    for panel in axes:
        _level(panel, levels, chosen, (_target_words(result, target) if panel is not axes[2] else "", sign))
    for one in drawn["time"]:
        _crossing(axes[1], one, levels[one.cell], (sign, str(chosen.lines[one.cell]["color"])))
    explain(figure, chosen, [("baseline", _entries(baseline, others))] if any(others.values()) else [])
    draw_time_to_target(
        figure,
        TIMES_BOX,
        (found, chosen, f"Time for {target.algorithm} to reach {_target_words(result, target)}"),
        time_label(result),
    )


def _curves(result: Result, axis: Axis, target: TargetValue, label: str) -> list[Curve]:
    groups = by_cell_and_algorithm(scored_traces(result, target.regret))
    return [
        curve(mine, axis, _places(mine, axis), metric_of(result, cell, target.regret), early=axis != "evaluations")
        for (cell, name), mine in groups.items()
        if name == label
    ]


def _places(found: Sequence[IncumbentTrace], axis: Axis) -> Array:
    if axis == "evaluations":
        return grid(found, axis, POINTS)
    begin, end = early_span(found, axis)
    if end <= begin:
        return np.array([begin])
    return np.geomspace(begin, end, POINTS) if axis == "time" and _wide(begin, end) else np.linspace(begin, end, POINTS)


def _wide(begin: float, end: float) -> bool:
    return 0 < 8 * begin < end


def _lines(axes: Axes, curves: Sequence[Curve], chosen: CellStyles, first: int) -> None:
    for one in curves:
        options = {**chosen.lines[one.cell], "gid": f"cell {one.cell}"}
        line(axes, one, _shown(one, first), min(0.14, 0.7 / len(curves)), **options)


def _baseline_lines(axes: Axes, curves: Sequence[Curve], chosen: CellStyles, first: int) -> None:
    """Draw the baseline: one grey line where it is the same in all cells, else a dashed one in the colour of each."""
    same = _same(curves)
    for one in curves[:1] if same else curves:
        colour, style = (FAINT, "-") if same else (str(chosen.lines[one.cell]["color"]), (0, (4, 2)))
        keep, steps = _shown(one, first), "steps-post" if one.axis == "time" else "default"
        options: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": 1.2, "gid": "baseline", "zorder": 1.9}
        axes.plot(one.x[keep], one.mean[keep], drawstyle=steps, **options)


def _same(curves: Sequence[Curve]) -> bool:
    return all(
        np.array_equal(one.x, curves[0].x) and np.array_equal(one.mean, curves[0].mean, equal_nan=True) for one in curves
    )


def _shown(one: Curve, first: int) -> np.typing.NDArray[np.bool_]:
    return one.x >= first if one.axis == "evaluations" else np.ones(len(one.x), dtype=np.bool_)


def _span(axes: Axes, curves: Sequence[Curve], result: Result, target: TargetValue) -> None:
    """Choose the axis of time: logarithmic where it is long, from where the first curve comes into sight."""
    begin, end = min(float(one.x[0]) for one in curves), max(float(one.x[-1]) for one in curves)
    if not _wide(begin, end):
        axes.set_xlim(0, horizon([t.finished[-1] for t in result.traces if t.algorithm == target.algorithm]))
        return
    low, high = sorted(axes.get_ylim())
    seen = [one.x[(one.mean >= low) & (one.mean <= high)] for one in curves]
    decades(axes, 0.9 * min((float(x[0]) for x in seen if len(x)), default=begin), 1.1 * end)


def _level(axes: Axes, levels: Mapping[int, float], chosen: CellStyles, label: tuple[str, int]) -> None:
    """Draw the level, in grey where it is the same in all cells, with its name at the end that curves leave free."""
    words, sign = label
    same = len(set(levels.values())) == 1
    for cell, level in list(levels.items())[:1] if same else levels.items():
        colour = FAINT if same else str(chosen.lines[cell]["color"])
        axes.axhline(level, color=colour, linewidth=1.1, linestyle=(0, (1, 2)), zorder=1.8, gid="level")
    options: dict[str, Any] = {"xytext": (4, 4 * sign), "textcoords": "offset points", "annotation_clip": True, "fontsize": 8.5}
    side = "top" if sign < 0 else "bottom"
    far = min(levels.values()) if sign < 0 else max(levels.values())
    axes.annotate(words, (0, far), xycoords=axes.get_yaxis_transform(), va=side, color=FAINT, **options)


def _crossing(axes: Axes, one: Curve, level: float, options: tuple[int, str]) -> None:
    """Mark where a cell's mean curve is first as good as the level, and drop a line from there to the axis."""
    sign, colour = options
    good = sign * (one.mean - level) >= -1e-12 * max(1.0, abs(level))
    if not good.any():
        return
    place = int(np.argmax(good))
    time, value = float(one.x[place]), level if place else float(one.mean[place])
    axes.plot([time, time], [axes.get_ylim()[0], value], color=colour, linewidth=1.1, gid=f"crossing {one.cell}", zorder=2.1)
    axes.plot([time], [value], "o", color=colour, markersize=6, markeredgecolor="white", markeredgewidth=0.8, zorder=6)


def _entries(baseline: str, curves: Mapping[Axis, Sequence[Curve]]) -> list[Artist]:
    same = {_same(found) for found in curves.values()}
    entries: list[tuple[str, Any]] = [(baseline, "-"), (f"{baseline}, in the cell's colour", (0, (4, 2)))]
    return [
        Line2D([], [], color=FAINT, linewidth=1.2, linestyle=style, label=label)
        for (label, style), alike in zip(entries, (True, False), strict=True)
        if alike in same
    ]


def _target_words(result: Result, target: TargetValue) -> str:
    what = "regret" if target.regret else result.metric().name
    return f"{what} {target.level:g}" if target.level is not None else f"the final {what} of {result.study.labels[0]}"


def _unit(curves: Sequence[Curve]) -> tuple[str, float]:
    most = max(float(curve.x[-1]) for curve in curves)
    return next(((name, size) for name, size in (("MiB", 2.0**20), ("KiB", 2.0**10)) if most >= 4 * size), ("bytes", 1.0))


def _name(axes: Sequence[Axes], result: Result, target: TargetValue, unit: str) -> None:
    names = {result.metric(trace.cell).name for trace in result.traces}
    what = "simple regret" if target.regret else f"best {names.pop() if len(names) == 1 else 'value'}"
    label_panel(
        axes[0], f"{target.algorithm}: {what} against evaluations", "evaluations of each agent, initial points included"
    )
    axes[1].set_title(f"{target.algorithm}: {what} against time")
    axes[1].set_xlabel(time_label(result))
    label_panel(
        axes[2], f"{target.algorithm}: {what} against bytes", f"{unit} sent and received, for each agent that optimises"
    )
    for one in (axes[0], axes[2]):
        one.set_ylabel(f"{what}, mean over agents")
    if result.study.study.replicates > 1:
        remark(axes[1], "bands: ± 1 standard error over replicates")
    if all(curve.x[-1] == 0 for curve in result.curves("bytes", 2) if curve.algorithm == target.algorithm):
        axes[2].text(0.5, 0.5, f"{target.algorithm} sends nothing", transform=axes[2].transAxes, ha="center", color=FAINT)
