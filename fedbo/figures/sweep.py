"""The cells of a sweep side by side: an algorithm's curves against evaluations, time and bytes, and its time to a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedbo.analysis.averages import Curve, curve, early_span, grid
from fedbo.analysis.comparison import TargetValue, against_first, metric_of
from fedbo.analysis.finished_run import scored_traces
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.timeline_bars import horizon
from fedbo.analysis.traces import Array, Axis, IncumbentTrace
from fedbo.figures.cells import CellStyles, cell_styles
from fedbo.figures.curves import (
    BAND,
    POINTS,
    axis_label,
    band_alpha,
    in_units,
    label_panel,
    limits,
    line,
    value_label,
    value_name,
)
from fedbo.figures.layout import FigurePanel
from fedbo.figures.style import FAINT, LINES, band_entry, decades, time_label
from fedbo.figures.time_to_target import draw_time_to_target

if TYPE_CHECKING:
    from fedbo.analysis.result import Result


BY: tuple[Axis, ...] = ("evaluations", "time", "bytes", "epsilon", "cost")
SHOWN = 3  # of these, unless others are asked for


@dataclass(frozen=True, slots=True)
class SweepCurves:
    """The common facts of the curves' panels: the target and its name, a level and a style for each cell, and the baseline."""

    result: Result
    target: TargetValue
    words: str
    levels: Mapping[int, float]
    chosen: CellStyles
    baseline: str | None

    def curves(self, axis: Axis, label: str) -> list[Curve]:
        """Return the curves of an algorithm, one for each cell."""
        return in_units(_curves(self.result, axis, self.target, label))[0]

    @property
    def counted(self) -> list[Curve]:
        """Return all curves against evaluations, which determine the range of values."""
        labels = [self.target.algorithm, *([self.baseline] if self.baseline else [])]
        return [one for label in labels for one in self.curves("evaluations", label)]


def sweep_panels(result: Result, target: TargetValue) -> tuple[list[FigurePanel], list[Artist]]:
    """Return the panels of all cells of an algorithm: one line for each cell, and a row for its time to the level."""
    found = against_first(result, target)
    chosen = cell_styles(result, [one.cell for one, _ in found])
    first = result.study.labels[0]
    there = first != target.algorithm and any(trace.algorithm == first for trace in result.traces)
    levels = {one.cell: one.level for one, _ in found}
    what = "regret" if target.regret else result.metric().name
    words = f"{what} {target.level:g}" if target.level is not None else f"the final {what} of {result.study.labels[0]}"
    shared = SweepCurves(result, target, words, levels=levels, chosen=chosen, baseline=first if there else None)
    panels = [FigurePanel(axis, partial(_draw, axis=axis, shared=shared), shown=place < SHOWN) for place, axis in enumerate(BY)]
    title = f"Time for {target.algorithm} to reach {shared.words}"
    draw = partial(draw_time_to_target, table=(found, chosen, (title, shared.words)), unit=time_label(result))
    panels.append(FigurePanel("times", draw, wide=True, rows=3 * len(found) // 2))
    return panels, [*chosen.handles, *_other_entries(shared)]


def _draw(axes: Axes, axis: Axis, shared: SweepCurves) -> Sequence[Artist]:
    """Draw all cells against one axis."""
    result, target, chosen = shared.result, shared.target, shared.chosen
    first, metric = max(1, result.study.agents.initial), metric_of(result, next(iter(shared.levels)), target.regret)
    drawn, unit = in_units(_curves(result, axis, target, target.algorithm))
    # The baseline is a control for the values, not for the messages: it has no curve against bytes and epsilon.
    others = shared.curves(axis, shared.baseline) if shared.baseline and axis not in ("bytes", "epsilon") else []
    for one in drawn:
        line(axes, one, _shown(one, first), band_alpha(len(drawn)), **{**chosen.lines[one.cell], "gid": f"cell {one.cell}"})
    _baseline_lines(axes, others, chosen, first)
    limits((axes,), shared.counted, first)
    names = {result.metric(trace.cell).name for trace in result.traces}
    shown = metric if len(names) == 1 else replace(metric, name="value", sign=1)  # several have no common direction
    label_panel(axes, f"{target.algorithm}: {value_name(shown, target.regret)} against {axis}", axis_label(result, axis, unit))
    axes.set_ylabel(value_label(shown, target.regret))
    if axis == "time":
        _span(axes, [*drawn, *others], result, target)
    _level(axes, shared.levels, chosen)
    if axis == "bytes" and all(one.x[-1] == 0 for one in drawn):
        axes.text(0.5, 0.5, f"{target.algorithm} sends nothing", transform=axes.transAxes, ha="center", color=FAINT)
    return ()


def _other_entries(shared: SweepCurves) -> list[Artist]:
    """Return the legend entries of the baseline, the level and the bands."""
    found = list[Artist]()
    if shared.baseline:
        same = {_same(shared.curves(axis, shared.baseline)) for axis in BY[:2]}
        names = {True: (shared.baseline, "-"), False: (f"{shared.baseline}, in the cell's colour", LINES[1])}
        found = [
            Line2D([], [], color=FAINT, linewidth=1.2, linestyle=names[one][1], label=names[one][0]) for one in sorted(same)
        ]
    found.append(Line2D([], [], color=FAINT, linewidth=1.1, linestyle=(0, (1, 2)), label=shared.words))
    return [*found, band_entry(BAND)] if shared.result.study.study.replicates > 1 else found


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


def _baseline_lines(axes: Axes, curves: Sequence[Curve], chosen: CellStyles, first: int) -> None:
    """Draw the baseline: one grey line if it is the same in all cells, otherwise a dashed one in the colour of each."""
    same = _same(curves)
    for one in curves[:1] if same else curves:
        colour, style = (FAINT, "-") if same else (str(chosen.lines[one.cell]["color"]), (0, (4, 2)))
        keep, steps = _shown(one, first), "default" if one.axis == "evaluations" else "steps-post"
        options: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": 1.2, "gid": "baseline", "zorder": 1.9}
        axes.plot(one.x[keep], one.mean[keep], drawstyle=steps, **options)


def _same(curves: Sequence[Curve]) -> bool:
    return all(
        np.array_equal(one.x, curves[0].x) and np.array_equal(one.mean, curves[0].mean, equal_nan=True) for one in curves
    )


def _shown(one: Curve, first: int) -> np.typing.NDArray[np.bool_]:
    return one.x >= first if one.axis == "evaluations" else np.ones(len(one.x), dtype=np.bool_)


def _span(axes: Axes, curves: Sequence[Curve], result: Result, target: TargetValue) -> None:
    """Set the axis of time: logarithmic if it is long, from the first visible place of a curve."""
    begin, end = min(float(one.x[0]) for one in curves), max(float(one.x[-1]) for one in curves)
    if not _wide(begin, end):
        axes.set_xlim(0, horizon([t.finished[-1] for t in result.traces if t.algorithm == target.algorithm]))
        return
    low, high = sorted(axes.get_ylim())
    seen = [one.x[(one.mean >= low) & (one.mean <= high)] for one in curves]
    decades(axes, 0.9 * min((float(x[0]) for x in seen if len(x)), default=begin), 1.1 * end)


def _level(axes: Axes, levels: Mapping[int, float], chosen: CellStyles) -> None:
    """Draw the level, in grey if it is the same in all cells."""
    same = len(set(levels.values())) == 1
    for cell, level in list(levels.items())[:1] if same else levels.items():
        colour = FAINT if same else str(chosen.lines[cell]["color"])
        axes.axhline(level, color=colour, linewidth=1.1, linestyle=(0, (1, 2)), zorder=1.8, gid="level")
