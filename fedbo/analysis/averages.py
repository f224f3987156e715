"""Curves: the traces of an algorithm, averaged over targets and then over replicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from fedbo.analysis.finished_run import FinishedRun, scored_traces
from fedbo.analysis.grouping import by_cell_and_algorithm, by_replicate
from fedbo.analysis.records.records import Records
from fedbo.analysis.traces import Array, Axis, IncumbentTrace
from fedbo.objectives.base import Metric
from fedbo.settings import arguments

REGRET = Metric("regret", -1)
_MAX_POINTS = 2000  # places of a curve against evaluations


@dataclass(frozen=True, slots=True)
class Curve:
    """The mean best-so-far of one algorithm in one cell, over targets and replicates, in native units or as regret.

    `x (p,)`, `mean (p,)` and `error (p,)`, its standard error over replicates: agents of one replicate share their
    world, so their mean counts as one draw. With a single replicate `error` is NaN.
    """

    cell: int
    algorithm: str
    axis: Axis
    x: Array
    mean: Array
    error: Array
    regret: bool = False


def curves(result: FinishedRun, by: Axis = "iteration", points: int = 200, regret: bool = False) -> Records[Curve]:
    """Average best-so-far over targets and replicates, against iterations, evaluations, time, bytes, epsilon or cost.

    Evaluations include the initial points, and failed ones; the other axes have `points` places. Bytes are those sent and
    delivered so far in the whole run, for each target. Epsilon is the run's spending so far, at the first delta; the cost
    is the time that the target had spent in evaluations. With `regret`, the curves show the distance to each agent's own
    best value instead of the native quantity; ResultError if that is not known.
    """
    arguments.one_of("by", by, get_args(Axis))
    arguments.whole("points", points, 1)
    groups = by_cell_and_algorithm(scored_traces(result, regret)).items()
    drawn = (curve(mine, by, grid(mine, by, points), REGRET if regret else result.metric(cell)) for (cell, _), mine in groups)
    return Records("curves", Curve, drawn)


def curve(found: Sequence[IncumbentTrace], axis: Axis, x: Array, metric: Metric, early: bool = False) -> Curve:
    """Average one algorithm's traces in one cell over targets, then over replicates, at the places `x (p,)`.

    With `early`, a target that has no incumbent yet counts with its first one.
    """
    means = replicate_means(found, axis, x, early)
    mean, error = mean_and_error(metric.native(np.stack(list(means.values()))))
    return Curve(found[0].cell, found[0].algorithm, axis, x=x, mean=mean, error=error, regret=metric == REGRET)


def replicate_means(found: Sequence[IncumbentTrace], axis: Axis, grid: Array, early: bool = False) -> dict[int, Array]:
    """Average the scores of one algorithm's targets at the places `grid (p,)`, for each replicate.

    A target that never had an incumbent counts with the worst known score (`_without_success`). With `early`, a target that
    has none yet counts with its first one.
    """
    means = {}
    for replicate, counted in sorted(by_replicate(found).items()):
        scores = [trace.at(axis, grid) for trace in counted]
        if early:
            scores = [np.where(np.isnan(own), trace.first, own) for trace, own in zip(counted, scores, strict=True)]
        means[replicate] = np.mean(scores, axis=0)
    return means


def mean_and_error(values: Array) -> tuple[Array, Array]:
    """Return the mean of `values (r, p)` over replicates and its standard error; the error of a single one is NaN."""
    count = len(values)
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full_like(mean, np.nan)
    return mean, error


def grid(found: Sequence[IncumbentTrace], axis: Axis, points: int) -> Array:
    """Return the places of one curve, from where every trace has an incumbent to the last end."""
    if axis == "iteration":
        return np.arange(max(int(trace.step.max()) for trace in found) + 1, dtype=np.float64)
    begun = [trace for trace in found if trace.begun] or found
    first = [int(np.argmax(trace.row >= 0)) for trace in begun]
    if axis == "evaluations":
        least = max(int(trace.evaluated[number]) for trace, number in zip(begun, first, strict=True))
        most = max(int(trace.evaluated[-1]) for trace in found)
        return np.unique(np.linspace(least, most, min(_MAX_POINTS, most - least + 1)).round())
    places = [trace.places(axis) for trace in begun]
    begin = max(float(place[number]) for place, number in zip(places, first, strict=True))
    end = max(float(place[-1]) for place in places)
    return np.linspace(begin, end, points) if end > begin else np.array([begin])


def early_span(found: Sequence[IncumbentTrace], axis: Axis) -> tuple[float, float]:
    """Return where half of the traces have an incumbent on an axis of amounts, and where the last one ends."""
    begun = [trace for trace in found if trace.begun] or found
    places = [trace.places(axis) for trace in begun]
    firsts = sorted(float(place[np.argmax(trace.row >= 0)]) for place, trace in zip(places, begun, strict=True))
    return firsts[(len(firsts) - 1) // 2], max(float(place[-1]) for place in places)
