"""Best-so-far curves: how good the point is that each agent would name, as the study goes on.

An agent's incumbent is the point with the largest value that it has *seen*; it is judged by its noise-free *score*, so
that lucky noise flatters nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Metric

Array = npt.NDArray[np.float64]
Axis = Literal["iteration", "evaluations", "time"]


@dataclass(frozen=True, slots=True)
class Trace:
    """One target's way through one run: after each of its `e` evaluations, iteration, time and incumbent's score.

    `step (e,)`; `finished (e,)`; `score (e,)` is that of each point, NaN where its evaluation failed; `best (e,)` is the
    score of the incumbent, to be maximised, and `row (e,)` its row in the table of observations. Evaluations before the
    first that succeeded have `best` NaN and `row` -1.
    """

    cell: int
    algorithm: str
    replicate: int
    agent: int
    step: npt.NDArray[np.int64]
    finished: Array
    score: Array
    best: Array
    row: npt.NDArray[np.int64]

    def at(self, axis: Axis, x: Array) -> Array:
        """Give the incumbent's score at the places `x (p,)` of an axis; NaN before there is one."""
        places = {
            "iteration": self.step,
            "evaluations": np.arange(1, len(self.step) + 1),
            "time": self.finished,
        }[axis]
        index = np.searchsorted(places, x, side="right") - 1
        return np.where(index >= 0, self.best[np.maximum(index, 0)], np.nan)


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


def traces(observations: Any) -> list[Trace]:
    """Follow every agent that evaluated anything in the study itself; `observations` is in canonical order."""
    columns = {name: np.asarray(observations[name]) for name in ("cell", "replicate", "agent", "step", "finished")}
    columns["algorithm"] = np.asarray(observations["algorithm"].to_pylist(), dtype=object)
    rows = np.flatnonzero(np.asarray(observations["phase"].to_pylist(), dtype=object) != "history")
    value, score = (np.asarray(observations[name], dtype=np.float64) for name in ("value", "score"))
    # A failed evaluation cost time but gave nothing that could be an incumbent.
    failed = ~np.asarray(observations["error"].is_null()) | ~np.isfinite(value)
    seen = np.where(failed, -np.inf, value)
    return [_trace(columns, seen, score, group) for group in _groups(columns, rows)]


def curve(found: Sequence[Trace], axis: Axis, x: Array, metric: Metric) -> Curve:
    """Average one algorithm's traces in one cell over targets, then over replicates, at the places `x (p,)`."""
    means = replicate_means(found, axis, x)
    mean, error = mean_and_error(metric.native(np.stack(list(means.values()))))
    return Curve(found[0].cell, found[0].algorithm, axis, x, mean, error)


def by_cell_and_algorithm(found: Sequence[Trace]) -> dict[tuple[int, str], list[Trace]]:
    """Group traces by cell and algorithm, in their order."""
    groups: dict[tuple[int, str], list[Trace]] = {}
    for trace in found:
        groups.setdefault((trace.cell, trace.algorithm), []).append(trace)
    return groups


def replicate_means(found: Sequence[Trace], axis: Axis, grid: Array) -> dict[int, Array]:
    """Average the scores of one algorithm's targets at the places `grid (p,)`, for each replicate."""
    by_replicate: dict[int, list[Array]] = {}
    for trace in found:
        by_replicate.setdefault(trace.replicate, []).append(trace.at(axis, grid))
    return {replicate: np.mean(rows, axis=0) for replicate, rows in sorted(by_replicate.items())}


def mean_and_error(values: Array) -> tuple[Array, Array]:
    """Give the mean of `values (r, p)` over replicates and its standard error; the error of a single one is NaN."""
    count = len(values)
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full_like(mean, np.nan)
    return mean, error


def grid(found: Sequence[Trace], axis: Axis, points: int) -> Array:
    """Choose the places of one curve, from where every trace has an incumbent to where the last one ends."""
    if axis == "iteration":
        return np.arange(max(int(trace.step[-1]) for trace in found) + 1, dtype=np.float64)
    first = [int(np.argmax(trace.row >= 0)) for trace in found]
    if axis == "evaluations":
        return np.arange(max(first) + 1, max(len(trace.step) for trace in found) + 1, dtype=np.float64)
    begin = max(float(trace.finished[place]) for trace, place in zip(found, first, strict=True))
    return np.linspace(begin, max(float(trace.finished[-1]) for trace in found), points)


def _groups(columns: Mapping[str, Any], rows: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    if not len(rows):
        return
    changed = np.zeros(len(rows), dtype=bool)
    for name in ("cell", "algorithm", "replicate", "agent"):
        mine = columns[name][rows]
        changed[1:] |= mine[1:] != mine[:-1]
    yield from np.split(rows, np.flatnonzero(changed))


def _trace(columns: Mapping[str, Any], seen: Array, score: Array, rows: npt.NDArray[np.int64]) -> Trace:
    mine = seen[rows]
    record = np.maximum.accumulate(mine)
    new = mine > np.concatenate(([-np.inf], record[:-1]))
    place = np.maximum.accumulate(np.where(new, np.arange(len(rows)), -1))
    row = np.where(place >= 0, rows[np.maximum(place, 0)], -1)
    key = int(rows[0])
    return Trace(
        cell=int(columns["cell"][key]),
        algorithm=str(columns["algorithm"][key]),
        replicate=int(columns["replicate"][key]),
        agent=int(columns["agent"][key]),
        step=columns["step"][rows].astype(np.int64),
        finished=columns["finished"][rows].astype(np.float64),
        score=np.where(np.isfinite(mine), score[rows], np.nan),
        best=np.where(row >= 0, score[row], np.nan),
        row=row,
    )
