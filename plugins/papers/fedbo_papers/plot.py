"""Figures like those of a paper: curves with 95 % bands, final values against message lengths, and decision times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from fedbo.analysis.averages import Curve, curve, grid
from fedbo.analysis.summary import Difference, paired, student_factor
from fedbo.analysis.traces import Array
from fedbo.figures.curves import label_panel, limits, line
from fedbo.figures.layout import legend_above
from fedbo.figures.style import COLOURS, FAINT, STYLE, band_entry, darken, decades, save, style_at, styled
from fedbo_papers.statements import FigureData, message_length, native_mean, replicate_scores

_SHAPES = ("o", "s", "^", "D", "v", "P", "X")


def draw_paper(data: FigureData, path: Path, dark: bool = False) -> Path:
    """Draw a figure into a file."""
    with styled(STYLE):
        figure = paper_figure(data)
        FigureCanvasAgg(figure)
        save(darken(figure) if dark else figure, path, 110)
    return path


def paper_figure(data: FigureData) -> Figure:
    """Return the figure itself."""
    with styled(STYLE):
        wide = data.times is not None and data.figure.kind == "curves"
        figure = Figure(figsize=(12.5, 4.9) if wide else (8.2, 4.9), layout="constrained")
        panels = figure.subplots(1, 2, width_ratios=(3, 2)) if wide else [figure.subplots()]
        draw = {"curves": _curves, "messages": _messages, "decision_time": _growth}[data.figure.kind]
        draw(panels[0], data)
        if wide:
            _per_decision(panels[-1], data)
        return figure


def _labels(data: FigureData) -> list[str]:
    return [label for label in data.study.labels if label in data.figure.algorithms or not data.figure.algorithms]


def _colours(data: FigureData) -> dict[str, str]:
    return {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(_labels(data))}


def _name(data: FigureData, when: str = "") -> str:
    """Return the name of the metric, and which direction is better."""
    if data.figure.regret:
        return f"simple regret{when} (lower is better)"
    return f"best {data.metric.name}{when} ({'higher' if data.metric.sign > 0 else 'lower'} is better)"


def _legend(axes: Axes, band: str = "") -> None:
    """Place the legend above the panel, since intervals may reach anywhere inside."""
    legend_above(axes, [*axes.get_legend_handles_labels()[0], *([band_entry(band)] if band else [])])


def _curves(axes: Axes, data: FigureData) -> None:
    """Draw the best value against iterations, one curve for each algorithm."""
    drawn = list[Curve]()
    for label in _labels(data):
        traces = data.traces(label)
        if traces:
            made = curve(traces, "iteration", grid(traces, "iteration", 0), data.metric)
            count = len({trace.replicate for trace in traces})
            # The half width of the 95 % Student interval in place of the standard error.
            drawn.append(replace(made, error=made.error * student_factor(count)) if count > 1 else made)
            line(axes, drawn[-1], drawn[-1].x >= 0, alpha=0.13, label=label, **style_at(_labels(data).index(label)))
    label_panel(axes, "Best so far", "iterations after the initial points")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(_name(data))
    limits((axes,), drawn, 0)
    _legend(axes, _bands(data) if any(np.isfinite(one.error).any() for one in drawn) else "")


def _bands(data: FigureData) -> str:
    return f"95 % intervals over {data.study.study.replicates} replicates"


def _messages(axes: Axes, data: FigureData) -> None:
    """Draw final values against the numbers in a message; algorithms that send nothing are drawn as a level."""
    everything = list[Difference]()
    for place, (name, labels) in enumerate(data.figure.series.items()):
        known = [label for label in labels if data.traces(label)]
        finals = [_final(data, label) for label in known]
        apart = 1.0 + 0.05 * place  # messages of two methods may be equally long
        x = [apart * message_length(data, label) for label in known]
        _points(
            axes, x, finals, {"color": COLOURS[place % len(COLOURS)], "marker": _SHAPES[place % len(_SHAPES)], "label": name}
        )
        everything += finals
    for place, label in enumerate(each for each in data.figure.levels if data.traces(each)):
        colour, final = COLOURS[(len(data.figure.series) + place) % len(COLOURS)], _final(data, label)
        axes.axhline(final.mean, color=colour, linewidth=1.6, linestyle="--", label=f"{label} (sends nothing)")
        everything.append(final)
        if math.isfinite(final.low):
            axes.axhspan(final.low, final.high, color=colour, alpha=0.1, linewidth=0)
    lengths = [message_length(data, label) for labels in data.figure.series.values() for label in labels if data.traces(label)]
    decades(axes, 0.6 * max(1, min(lengths, default=1)), 1.8 * max(lengths, default=10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(*_range(everything))
    label_panel(axes, "", "8-byte numbers in each agent's message")
    axes.set_ylabel(_name(data, f" after {data.study.budget.decisions} iterations"))
    _legend(axes, _bands(data) if data.study.study.replicates > 1 else "")


def _range(found: Sequence[Difference]) -> tuple[float, float]:
    """Return a range that includes all means, and intervals unless they are much wider."""
    means = [one.mean for one in found]
    half_widths = [one.high - one.mean for one in found if math.isfinite(one.high)]
    span = max(max(means) - min(means), float(np.median(half_widths)) if half_widths else 0.0) or 0.1
    low = max(min([one.low for one in found if math.isfinite(one.low)], default=-math.inf), min(means) - span)
    high = min(max([one.high for one in found if math.isfinite(one.high)], default=math.inf), max(means) + span)
    return low - 0.06 * span, high + 0.06 * span


def _final(data: FigureData, label: str) -> Difference:
    return native_mean(replicate_scores(data, (label,), "end"), data.metric)


def _points(axes: Axes, x: Sequence[float], found: Sequence[Difference], options: Mapping[str, str]) -> None:
    """Draw joined points with their intervals."""
    means = [one.mean for one in found]
    half_widths = [one.high - one.mean if math.isfinite(one.high) else math.nan for one in found]
    axes.errorbar(x, means, yerr=half_widths, linewidth=1.8, markersize=6, capsize=3, elinewidth=1.1, **options)  # type: ignore[arg-type]


def _growth(axes: Axes, data: FigureData) -> None:
    """Draw the time of all decisions of a run against the number of other agents."""
    assert data.times is not None
    colour = _colours(data)
    order = sorted(data.times.seconds, key=data.times.others.__getitem__)
    for place, label in enumerate(_labels(data)):
        totals = [_geometric(data.times.seconds[cell][label].sum(axis=1)) for cell in order]
        x, mean = [data.times.others[cell] for cell in order], [one[0] for one in totals]
        half_widths = [[one[0] - one[1] for one in totals], [one[2] - one[0] for one in totals]]
        options = {"color": colour[label], "marker": _SHAPES[place % len(_SHAPES)], "label": label}
        axes.errorbar(x, mean, yerr=half_widths, linewidth=1.8, markersize=6, capsize=3, elinewidth=1.1, **options)  # type: ignore[arg-type]
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 3000 * low else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    label_panel(axes, "", "number N of other agents")
    axes.set_ylabel(f"processor seconds for {data.study.budget.decisions} decisions")
    axes.set_xlim(left=0)
    _legend(axes, "95 % intervals, one thread")


def _geometric(values: Array) -> tuple[float, float, float]:
    """Return the geometric mean of times and the ends of its interval, empty with a single one."""
    logs = paired(np.log(values)) or Difference(*[float(np.log(values[0]))] * 3)
    mean, low, high = np.exp([logs.mean, logs.low, logs.high])
    return float(mean), float(low), float(high)


def _per_decision(axes: Axes, data: FigureData) -> None:
    """Draw the mean time of a decision of each algorithm; as dots, since bars have no length on a logarithmic axis."""
    assert data.times is not None
    labels, colour = _labels(data), _colours(data)
    for row, label in enumerate(reversed(labels)):
        mean, low, high = _geometric(1e3 * data.times.seconds[data.figure.cell][label].mean(axis=1))
        axes.plot([low, high], [row, row], color=colour[label], linewidth=2.0)
        axes.plot([mean], [row], "o", color=colour[label], markersize=8)
        axes.text(mean, row + 0.17, f"{mean:.3g} ms", ha="center", fontsize=9.5, color=FAINT)
    axes.set_yticks(range(len(labels)), list(reversed(labels)))
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades(axes, low / 1.5, high * 1.5)
    axes.grid(axis="y", visible=False)
    label_panel(axes, "Time of a decision", "processor milliseconds of one thread")
    axes.set_ylim(-0.5, len(labels) - 0.4)
