"""The curves of a cell as panels: best value against evaluations, time, bytes and epsilon, with a series for each algorithm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedbo.analysis.agent_fronts import feasible_traces, goals_of
from fedbo.analysis.averages import Curve, curve, grid
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.privacy_summary import spending
from fedbo.analysis.result import Result
from fedbo.analysis.timeline_bars import horizon
from fedbo.analysis.traces import Axis
from fedbo.figures.curves import value_label
from fedbo.figures.fronts import SHARE
from fedbo.figures.page.axes import spanned
from fedbo.figures.style import colour_at, time_label

POINTS = 160  # places of a curve


@dataclass(frozen=True, slots=True)
class Series:
    """One algorithm's curve: its colour, and at each place `x` the mean and its standard error, NaN without one.

    With `steps` it is constant between two places. A series with a single place is drawn as a level. `dots` are points beside
    the curve, and `pale` ones that matter less.
    """

    label: str
    colour: str
    x: Sequence[float]
    mean: Sequence[float]
    error: Sequence[float]
    steps: bool
    dots: Sequence[tuple[float, float]] = ()
    pale: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawing of curves: its title, the names of its axes, the ends of both, the series, and its own caption, if any."""

    title: str
    x_name: str
    y_name: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    series: Sequence[Series]
    caption: str = ""


def colour_of(result: Result, label: str) -> str:
    """Return the colour of an algorithm, the same in all figures of a study."""
    return colour_at(result.study.labels.index(label))


def curve_panels(result: Result, cell: int) -> list[Panel]:
    """Return the panels of a cell; against bytes if anything was sent, against epsilon if anything is private."""
    groups = {label: mine for (number, label), mine in by_cell_and_algorithm(result.traces).items() if number == cell}
    metric, first = result.metric(cell), max(1, result.study.agents.initial)

    def against(axis: Axis) -> list[Curve]:
        return [curve(mine, axis, grid(mine, axis, POINTS), metric) for mine in groups.values()]

    counted = [_thinned(result, one, first) for one in against("evaluations")]
    if not any(len(one.x) for one in counted):
        return []
    y_name, y_range = value_label(metric).replace("\n", " "), _value_range(counted)
    panels = [Panel("evaluations", "evaluations of each agent, initial points included", y_name,
                    x_range=_place_range(counted), y_range=y_range, series=counted)]  # fmt: skip
    timed = [_thinned(result, one) for one in against("time")]
    last = horizon([float(trace.finished[-1]) for mine in groups.values() for trace in mine])
    panels.append(Panel("time", time_label(result), y_name, x_range=(0.0, last or 1.0), y_range=y_range, series=timed))
    moved = [_thinned(result, one) for one in against("bytes")]
    if any(len(one.x) > 1 for one in moved):
        unit, size = _unit(_place_range(moved)[1])
        moved = [replace(one, x=[_rounded(place / size) for place in one.x]) for one in moved]
        name = f"{unit} sent and received by each agent"
        panels.append(
            Panel("communication", name, y_name, x_range=(0.0, _place_range(moved)[1]), y_range=y_range, series=moved)
        )
    spent = [_thinned(result, one) for one in against("epsilon")]
    if any(len(one.x) > 1 for one in spent):
        delta = next(row.deltas[0] for row in spending(result) if row.cell == cell)
        name = f"epsilon spent at delta = {delta:.3g}"
        panels.append(Panel("epsilon", name, y_name, x_range=(0.0, _place_range(spent)[1]), y_range=y_range, series=spent))
    return panels


def feasible_panels(result: Result, cell: int) -> list[Panel]:
    """Return the share of feasible evaluations so far against evaluations and time; empty without limits."""
    known = goals_of(result, cell)
    if known is None or not known.limits:
        return []
    groups = by_cell_and_algorithm(feasible_traces(result, cell)).values()
    panels = []
    axes: tuple[tuple[Axis, str], ...] = (("evaluations", "evaluations of each agent"), ("time", time_label(result)))
    for axis, name in axes:
        series = [_thinned(result, curve(mine, axis, grid(mine, axis, POINTS), SHARE)) for mine in groups]
        x_range = _place_range(series) if axis == "evaluations" else (0.0, _place_range(series)[1])
        words = f"{SHARE.name} so far, mean over agents"
        panels.append(Panel(title=axis, x_name=name, y_name=words, x_range=x_range, y_range=(0.0, 1.02), series=series))
    return panels


def _thinned(result: Result, found: Curve, first: int = 0) -> Series:
    """Return a series of a curve from a given place on, thinned to the resolution of a drawing."""
    keep = np.flatnonzero((found.x >= first) & np.isfinite(found.mean))
    if not len(keep):
        keep = np.flatnonzero(np.isfinite(found.mean))
    if len(keep) > POINTS:
        keep = keep[np.unique(np.linspace(0, len(keep) - 1, POINTS).round().astype(int))]
    x, mean, error = ([_rounded(value) for value in column[keep].tolist()] for column in (found.x, found.mean, found.error))
    steps = found.axis not in ("evaluations", "iteration")
    return Series(found.algorithm, colour_of(result, found.algorithm), x, mean=mean, error=error, steps=steps)


def _value_range(found: Iterable[Series]) -> tuple[float, float]:
    pairs = [(m, 0.0 if math.isnan(e) else e) for one in found for m, e in zip(one.mean, one.error, strict=True)]
    return spanned(min(m - e for m, e in pairs), max(m + e for m, e in pairs), 0.06)


def _place_range(found: Iterable[Series]) -> tuple[float, float]:
    places = [place for one in found for place in one.x]
    return spanned(min(places), max(places))


def _unit(most: float) -> tuple[str, float]:
    """Return the unit in which a number of bytes is moderate, and its size."""
    units = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
    return next(((name, size) for name, size in units if most >= size), ("bytes", 1.0))


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
