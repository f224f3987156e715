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
from matplotlib.patches import Patch

from fedbo.analysis.averages import Curve, curve, early_span, grid
from fedbo.analysis.comparison import Comparison, TargetValue, TimeToTarget, against_first, metric_of, short
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
from fedbo.figures.layout import FigurePanel, row_labels
from fedbo.figures.style import FAINT, INK, LINES, band_entry, decades, rows_only

if TYPE_CHECKING:
    from fedbo.analysis.result import Result


BY: tuple[Axis, ...] = ("evaluations", "time", "bytes", "epsilon", "cost")
SHOWN = 3  # of these, unless others are asked for
ROOM = 40.0  # letters: in a panel that is narrower there is no room for the words beside the rows

Rows = Sequence[tuple[TimeToTarget, Comparison | None]]


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
    draw = partial(_draw_times, table=(found, chosen, (title, shared.words)), unit=result.study.timing.in_words)
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


def _draw_times(axes: Axes, table: tuple[Rows, CellStyles, tuple[str, str]], unit: str) -> Sequence[Artist]:
    """Draw one row for each cell: the geometric mean of its times, with an interval, and the final value's difference.

    No ratio is shown: where replicates do not reach the level, that of restricted times is not the quotient of the means.
    """
    rows, chosen, (title, words) = table
    found = [one for one, _ in rows]
    _scale(axes, found)
    for row, one in enumerate(found):
        _row(axes, row, one, str(chosen.lines[one.cell]["color"]))
        if one.mean is not None and len(found) <= 8:
            where: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom"}
            least = "≥ " * (len(one.reached) < len(one.times))  # as in the report
            axes.annotate(
                least + short(one.mean.mean), (one.mean.mean, row - 0.23), (0, 1.5), fontsize="small", color=INK, **where
            )
    axes.set_ylim(len(found) - 0.4, -0.8)
    row_labels(axes, [chosen.titles[one.cell] for one in found])
    rows_only(axes)
    axes.set(title=title, xlabel=f"{unit} to {words}")
    figure = axes.figure
    if axes.get_window_extent().width / figure.dpi * 72 > ROOM * float(axes.xaxis.label.get_fontsize()):
        _side_table(axes, rows)
    keys = " · ".join(key if len(chosen.keys) == 1 else key.split(".")[-1] for key in chosen.keys)
    axes.set_ylabel(keys)
    return _row_entries(found)


def _row_entries(found: Sequence[TimeToTarget]) -> list[Artist]:
    """Return the legend entries that explain dots and boxes."""
    plain: dict[str, Any] = {"color": FAINT, "linestyle": "none", "marker": "o"}
    shown: list[Artist] = [
        Line2D([], [], markersize=3.6, label="a replicate", **plain),
        Line2D([], [], markersize=8, label="geometric mean", **plain),
        Patch(facecolor=FAINT, alpha=0.25, label="its 95 % interval"),
    ]
    if any(one.mean is not None and len(one.reached) < len(one.times) for one in found):
        hatched = {"facecolor": "white", "edgecolor": FAINT, "hatch": "/////", "linewidth": 0.8}
        shown.append(Patch(label="some replicates count up to their end", **hatched))  # type: ignore[arg-type]
    return shown


def _scale(axes: Axes, found: Sequence[TimeToTarget]) -> None:
    """Set the axis: logarithmic if it spans more than a factor of 5. Extremely wide intervals are cut."""
    times = [time for one in found for time in one.reached.values()]
    means = [one.mean for one in found if one.mean is not None]
    if not times:
        axes.set_xticks([])
        return
    low = max(min(mean.low for mean in means), min(times) / 4)
    high = min(max(mean.high for mean in means), max(times) * 4)
    low, high = min(low, *times), max(high, *times)
    if 0 < 5 * low < high:
        decades(axes, low / 1.2, high * 1.2)
    else:
        axes.set_xlim(0, 1.05 * high or 1.0)


def _row(axes: Axes, row: int, one: TimeToTarget, colour: str) -> None:
    mean = one.mean
    if mean is None:
        axes.text(0.02, row, "not reached", transform=axes.get_yaxis_transform(), va="center", fontsize="small", color=FAINT)
        return
    options: dict[str, Any] = {"facecolor": "white", "edgecolor": colour, "hatch": "/////", "alpha": 0.6}
    if len(one.reached) == len(one.times):
        options = {"color": colour, "alpha": 0.25}
    axes.barh(row, mean.high - mean.low, left=mean.low, height=0.46, linewidth=0.8, **options)
    times = list(one.reached.values())
    axes.plot(times, [row] * len(times), "o", color=colour, markersize=3.6, alpha=0.7, markeredgewidth=0, zorder=3)
    axes.plot([mean.mean], [row], "o", color=colour, markersize=9, markeredgecolor="white", markeredgewidth=1.2, zorder=4)


def _side_table(axes: Axes, rows: Rows) -> None:
    """Write a small table to the right of the rows, a line for each; the differences are from the first cell, paired."""
    size = float(axes.xaxis.label.get_fontsize())
    places = (2.6 * size, 12.0 * size)  # points beyond the end of the panel
    options: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": "small"}
    for place, heading in zip(places, ("reached", "final minus first"), strict=True):
        axes.annotate(heading, (1, -0.7), (place, 0), axes.get_yaxis_transform(), color=FAINT, **options)
    for row, (one, gap) in enumerate(rows):
        words = [f"{len(one.reached)} of {len(one.times)}"]
        if gap is not None:
            words.append("–" if gap.final is None else str(gap.final))
        for place, word in zip(places, words, strict=False):
            axes.annotate(word, (1, row), (place, 0), axes.get_yaxis_transform(), **options)
