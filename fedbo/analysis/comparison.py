"""The comparison of a sweep's cells: times to a target value, and differences paired by replicate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedbo.analysis.averages import REGRET, replicate_means
from fedbo.analysis.finished_run import ResultError, check_label, scored_traces
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Difference, difference, main_algorithm, paired
from fedbo.analysis.traces import Array, Axis, IncumbentTrace
from fedbo.objectives.base import Metric
from fedbo.settings import arguments
from fedbo.study.base import Positive

# Where a value of a run is read: after so many iterations, at the end, or as the mean over all iterations.
At = Literal["end", "mean"] | Positive


@dataclass(frozen=True, slots=True)
class GeometricMean:
    """A geometric mean of times, or of ratios of times, with the ends of the 95 % Student interval of their logarithms."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{short(self.mean)} [{short(self.low)}, {short(self.high)}]"


@dataclass(frozen=True, slots=True)
class TimeToTarget:
    """The time at which one algorithm's mean over targets first reached a level in one cell, for each replicate.

    `levels` are native values, or regrets; `times` are in the study's unit, infinite where the level was not reached; `ends`
    are the times at which the runs ended.
    """

    cell: int
    algorithm: str
    levels: Mapping[int, float]
    times: Mapping[int, float]
    ends: Mapping[int, float]

    @property
    def level(self) -> float:
        """Return the mean level over replicates; NaN without any."""
        return float(np.mean(list(self.levels.values()))) if self.levels else math.nan

    @property
    def reached(self) -> dict[int, float]:
        """Return the times of the replicates that reached the level."""
        return {replicate: time for replicate, time in self.times.items() if math.isfinite(time)}

    @property
    def mean(self) -> GeometricMean | None:
        """Return the geometric mean time with its 95 % interval; None if no replicate reached the level.

        A replicate that did not reach the level counts with the end of its run, so the mean is then a lower bound. With one
        replicate, and if a time is 0, the interval is empty.
        """
        if not self.reached:
            return None
        times = np.array([min(time, self.ends[replicate]) for replicate, time in self.times.items()])
        if len(times) == 1 or not times.all():
            return GeometricMean(*[float(times.min())] * 3)
        return geometric(times)

    @property
    def mean_in_words(self) -> str:
        """Format the mean time, with "≥" if some replicates did not reach the level."""
        bound = "≥ " if len(self.reached) < len(self.times) else ""
        return "not reached" if self.mean is None else f"{bound}{self.mean}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Cell `cells[0]` against cell `cells[1]`, paired by replicate, for one algorithm.

    `final` is the first minus the second, of the final mean best native value (or of the regret). `ratio` is the first
    divided by the second, of the restricted time to the level (`restricted_ratio`). Each is None with fewer than two pairs,
    `ratio` also if no replicate reached the level, or if a time is 0. `pairs` is the number of replicates.
    """

    cells: tuple[int, int]
    algorithm: str
    final: Difference | None
    ratio: GeometricMean | None
    pairs: int


@dataclass(frozen=True, slots=True)
class TargetValue:
    """The target value of an algorithm: native, or with `regret` a regret; without a level, the baseline's final one.

    The baseline is the first algorithm of the study. Its mean over targets is taken in the same cell and replicate.
    """

    algorithm: str
    level: float | None = None
    regret: bool = False

    def __post_init__(self) -> None:
        if self.level is not None:
            arguments.number("level", self.level)


def target_of(result: Result, algorithm: str | None, level: float | None = None, regret: bool = False) -> TargetValue:
    """Return the target of an algorithm; ResultError if there is no such algorithm.

    The default is the algorithm whose settings are swept, or else the main one.
    """
    chosen = algorithm or swept_algorithm(result) or main_algorithm(result.summary(), result.study.labels)
    return TargetValue(check_label(result, chosen), level, regret)


def swept_algorithm(result: Result) -> str | None:
    """Return the first algorithm with a swept setting; None if no single algorithm has one."""
    labels, there = result.study.labels, {trace.algorithm for trace in result.traces}
    for key in result.study.sweep:
        mine = [label for place, label in enumerate(labels) if key.startswith((f"algorithm.{label}.", f"algorithm.{place}."))]
        if mine and mine[0] in there:
            return mine[0]
    return None


def times_to_target(result: Result, target: TargetValue) -> list[TimeToTarget]:
    """Return for each cell the times at which an algorithm reached the level."""
    groups = by_cell_and_algorithm(scored_traces(result, target.regret))
    first = result.study.labels[0]
    return [
        time_to_target(mine, groups.get((cell, first), []), metric_of(result, cell, target.regret), target.level)
        for (cell, label), mine in groups.items()
        if label == target.algorithm
    ]


def compare(
    result: Result, cells: tuple[int, int], algorithm: str, level: float | None = None, regret: bool = False
) -> Comparison:
    """Compare an algorithm in two cells of a sweep, the first against the second, paired by replicate.

    Final values are subtracted, times to a level divided. Cells use common random numbers. `level` is a native target
    value, or a target regret; the default is the final one of the study's first algorithm in the same replicate.

    Raises:
        ResultError: a cell has no such algorithm, or the cells have different metrics.
    """
    if not isinstance(cells, tuple | list) or len(cells) != 2:
        raise arguments.wrong("cells", cells, "must be the numbers of two cells, for example (0, 1)")
    cells = arguments.whole("cells", cells[0]), arguments.whole("cells", cells[1])
    return _comparison(result, cells, TargetValue(check_label(result, algorithm), level, regret))


def _comparison(result: Result, cells: tuple[int, int], target: TargetValue) -> Comparison:
    """Compare an algorithm in two cells, the first against the second; ResultError if they are not comparable."""
    times = {one.cell: one for one in times_to_target(result, target)}
    if gone := [cell for cell in cells if cell not in times]:
        there = ", ".join(map(str, times)) or "none"
        raise ResultError(f"no runs of '{target.algorithm}' in cell {gone[0]}; use one of the cells: {there}")
    one, other = (metric_of(result, cell, target.regret) for cell in cells)
    if one != other:
        raise ResultError(
            f"cells {cells[0]} and {cells[1]} have different metrics: {one.name} and {other.name}; choose other cells"
        )
    groups = by_cell_and_algorithm(scored_traces(result, target.regret))
    found, against = (groups[cell, target.algorithm] for cell in cells)
    ratio, pairs = ratio_of_times(*(times[cell] for cell in cells))
    return Comparison(cells, target.algorithm, difference(found, against, one), ratio, pairs)


def ratio_of_times(mine: TimeToTarget, other: TimeToTarget) -> tuple[GeometricMean | None, int]:
    """Return the restricted ratio of two times to a level, paired by replicate, and the number of pairs."""
    shared = sorted(set(mine.times) & set(other.times))
    costs = np.array([(mine.times[number], other.times[number]) for number in shared]).reshape(-1, 2)
    ends = np.array([(mine.ends[number], other.ends[number]) for number in shared]).reshape(-1, 2)
    return restricted_ratio(costs, ends) if costs.all() else None, len(shared)


def restricted_ratio(costs: Array, ends: Array) -> GeometricMean | None:
    """Return the geometric mean of the first of two paired `costs (r, 2)` over the second, each restricted to its horizon.

    The horizon of a pair is the earlier end of its two runs, `ends (r, 2)`; a cost beyond it, or an infinite one, counts as the
    horizon. Without the restriction only pairs in which both reached the level could count, and thus only the lucky runs of a
    method that seldom reaches it. None if no remaining pair reached the level, or with fewer than two pairs. Pairs with a cost
    of 0 are left out.
    """
    horizon = ends.min(axis=1, keepdims=True)
    usable = (costs > 0).all(axis=1) & (horizon[:, 0] > 0)
    restricted = np.minimum(costs, horizon)[usable]
    return geometric(restricted[:, 0] / restricted[:, 1]) if np.isfinite(costs[usable]).any() else None


def geometric(ratios: Array) -> GeometricMean | None:
    """Return the geometric mean of positive `ratios (r,)` with its 95 % interval; None with fewer than two of them."""
    logs = paired(np.log(ratios))
    return None if logs is None else GeometricMean(*(float(np.exp(end)) for end in (logs.mean, logs.low, logs.high)))


def short(value: float) -> str:
    """Format a positive number with two significant digits, three above 1, and without an exponent up to a million."""
    digits = next((digits for digits, limit in ((2, 9.995), (1, 99.95), (0, 1e6)) if value < limit), None)
    return f"{value:.2g}" if digits is None or value < 0.0995 else f"{value:.{digits}f}"


def against_first(result: Result, target: TargetValue) -> list[tuple[TimeToTarget, Comparison | None]]:
    """Return each cell's times to the level, and its comparison with the first cell if they are comparable."""
    found, rows = times_to_target(result, target), list[tuple[TimeToTarget, Comparison | None]]()
    for one in found:
        same = metric_of(result, one.cell, target.regret) == metric_of(result, found[0].cell, target.regret)
        comparable = same and one is not found[0]
        rows.append((one, _comparison(result, (one.cell, found[0].cell), target) if comparable else None))
    return rows


def metric_of(result: Result, cell: int, regret: bool) -> Metric:
    """Return the metric of a cell: the native quantity, or regret."""
    return REGRET if regret else result.metric(cell)


def time_to_target(
    found: Sequence[IncumbentTrace], baseline: Sequence[IncumbentTrace], metric: Metric, level: float | None = None
) -> TimeToTarget:
    """Return the times at which an algorithm reaches a level in a cell, by default the baseline's final one per replicate."""
    if level is None:
        ends = replicate_means(baseline, "time", np.array([math.inf]))
        mine = {trace.replicate for trace in found}
        wanted = {number: float(mean[0]) for number, mean in ends.items() if number in mine}
    else:
        wanted = {trace.replicate: metric.sign * (level - metric.offset) for trace in found}
    times = {number: first_place(found, number, target) for number, target in sorted(wanted.items())}
    levels = {number: metric.offset + metric.sign * wanted[number] for number in times}
    last = {number: last_place(found, number) for number in times}
    return TimeToTarget(found[0].cell, found[0].algorithm, levels, times, last)


def last_place(found: Sequence[IncumbentTrace], replicate: int, axis: Axis = "time") -> float:
    """Return the end of one replicate on an axis."""
    return max(float(trace.places(axis)[-1]) for trace in found if trace.replicate == replicate)


def first_place(found: Sequence[IncumbentTrace], replicate: int, target: float, axis: Axis = "time") -> float:
    """Return the first place at which one replicate's mean over targets is at least the target; infinite if there is none."""
    mine = [trace for trace in found if trace.replicate == replicate]
    x = np.unique(np.concatenate([trace.places(axis) for trace in mine])).astype(np.float64)
    # The mean of the same numbers may differ in its last bits from a level that is their mean.
    slack = 1e-12 * max(1.0, abs(target))
    good = replicate_means(mine, axis, x)[replicate] >= target - slack
    return float(x[np.argmax(good)]) if good.any() else math.inf
