"""The indicator of a run: what its traces follow, one number that never falls for each agent; and the columns of metrics.

Which one a run has follows from its study: the incumbent, the incumbent among feasible points where there are limits, or the
hypervolume above a declared reference where there are several objectives. The table of observations has a column for each of
a study's [[metric]] tables, and `feasible`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.analysis.grouping import column_of
from fedbo.objectives.base import Metric
from fedbo.objectives.goals import AgentGoals, Goals, goals_in
from fedbo.objectives.outcome import Outcome, read_metrics
from fedbo.surrogates.fronts import hypervolumes

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Points(NamedTuple):
    """The points of a table: `seen (n,)`, by which they are compared, -inf where they do not count, and `score (n, m)`."""

    seen: Array
    score: Array


class IndicatorSeries(NamedTuple):
    """An indicator after each of `e` points: each point's own `score (e,)`, NaN where it does not count, and the `best (e,)`.

    `place (e,)` is the place of the point that made it, -1 before the first one that counts.
    """

    score: Array
    best: Array
    place: Ints


class Indicator(Protocol):
    """A number that never falls while points are added.

    floor: its value before the first point that counts; None where it has none.
    """

    floor: ClassVar[float | None]

    def metric(self, own: Metric) -> Metric:
        """Return its name and direction, given those of the values."""

    def points(self, observations: Any, failed: Bools) -> Points:
        """Return the points of a table of observations, of which some have `failed (n,)`."""

    def series(self, points: Points) -> IndicatorSeries:
        """Return the indicator after each point of one agent, in order."""


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The score of the point with the largest value that the agent has seen."""

    floor: ClassVar[float | None] = None

    def metric(self, own: Metric) -> Metric:
        """Return the metric of the values."""
        return own

    def points(self, observations: Any, failed: Bools) -> Points:
        """Return values and scores of the points that succeeded."""
        value, score = (column_of(observations, name).astype(np.float64) for name in ("value", "score"))
        return Points(np.where(failed, -np.inf, value), score[:, None])

    def series(self, points: Points) -> IndicatorSeries:
        """Return the scores of the incumbents; ties are won by the first point."""
        seen, score = points.seen, points.score[:, 0]
        record = np.maximum.accumulate(seen)
        new = seen > np.concatenate(([-np.inf], record[:-1]))
        place = np.maximum.accumulate(np.where(new, np.arange(len(seen)), -1))
        best = np.where(place >= 0, score[place], np.nan)
        return IndicatorSeries(np.where(np.isfinite(seen), score, np.nan), best, place)


@dataclass(frozen=True, slots=True)
class FeasibleIncumbent(Incumbent):
    """The score of the feasible point with the largest value that the agent has seen."""

    def points(self, observations: Any, failed: Bools) -> Points:
        """Return values and scores of the feasible points."""
        return Incumbent.points(self, observations, failed | ~column_of(observations, FEASIBLE).astype(np.bool_))


@dataclass(frozen=True, slots=True)
class Hypervolume:
    """The volume that the feasible points dominate above a reference, by their noise-free scores.

    - `names`, `signs`: the metrics of the objectives, the first of which is that of the values.
    - `reference (m,)`: as values to be maximised.
    """

    names: tuple[str, ...]
    signs: tuple[int, ...]
    reference: tuple[float, ...]
    floor: ClassVar[float | None] = 0.0

    def metric(self, own: Metric) -> Metric:
        """Return the metric of hypervolumes."""
        return Metric("hypervolume")

    def points(self, observations: Any, failed: Bools) -> Points:
        """Return the values of all objectives, of the feasible points for which all are known."""
        others = [
            sign * column_of(observations, column_name(name)).astype(np.float64)
            for name, sign in zip(self.names[1:], self.signs[1:], strict=True)
        ]
        values = np.stack([column_of(observations, "score").astype(np.float64), *others], axis=1)
        bad = failed | ~column_of(observations, FEASIBLE).astype(np.bool_) | np.isnan(values).any(axis=1)
        values[bad] = np.nan
        return Points(np.where(bad, -np.inf, values[:, 0]), values)

    def series(self, points: Points) -> IndicatorSeries:
        """Return the hypervolume after each point."""
        best = hypervolumes(points.score, np.array(self.reference))
        counts = np.isfinite(points.seen)
        new = np.diff(best, prepend=0.0) > 0.0
        new |= counts & (np.cumsum(counts) == 1)
        place = np.maximum.accumulate(np.where(new, np.arange(len(best)), -1))
        return IndicatorSeries(np.where(counts, best, np.nan), best, place)


def indicator_of(goals: Goals | None) -> Indicator:
    """Return the indicator of a study's cell."""
    if goals is None or not (goals.several or goals.constraints):
        return Incumbent()
    if not goals.several:
        return FeasibleIncumbent()
    names, signs = zip(*((goal.name, goal.sign) for goal in goals.objectives), strict=True)
    return Hypervolume(names, signs, goals.references)


def indicators_in(manifest: Mapping[str, Any]) -> list[Indicator]:
    """Return the indicators of a run's cells by its manifest; an empty list where all are `Incumbent`."""
    return [indicator_of(found.common) for found in goals_in(manifest)]


def is_plain(manifest: Mapping[str, Any], cell: int) -> bool:
    """Return whether a cell of a run has one objective and no limits."""
    found = indicators_in(manifest)
    return not found or type(found[cell]) is Incumbent


FEASIBLE = "feasible"
_READ = ("cell", "agent", "value", "score", "metrics", "error")


def column_name(metric: str) -> str:
    """Return the name of a metric's column."""
    return f"metric.{metric}"


def with_metrics(observations: Any, goals: Sequence[AgentGoals]) -> Any:
    """Return the table with the metrics of each row, in native units, and whether it is feasible for its agent.

    `goals` are those of each cell; without any the table is unchanged. A metric that is not known is NaN.
    """
    if not goals:
        return observations
    names = list(dict.fromkeys(name for each in goals for name in each.common.names))
    metrics: dict[str, list[float]] = {name: [] for name in names}
    feasible = list[bool]()
    for row in observations.select(list(_READ)).to_pylist():
        mine = goals[row["cell"]].of(row["agent"])
        outcome = Outcome(row["value"], row["score"], read_metrics(row["metrics"])[0])
        for name in names:
            metrics[name].append(mine.native(name, outcome))
        feasible.append(row["error"] is None and mine.feasible(outcome))
    for name in names:
        observations = observations.append_column(
            pa.field(column_name(name), pa.float64()), pa.array(metrics[name], pa.float64())
        )
    return observations.append_column(pa.field(FEASIBLE, pa.bool_()), pa.array(feasible, pa.bool_()))
