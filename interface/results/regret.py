"""Regret on the mean of all agents' functions, evaluation by evaluation: what a federation of bandits is judged by.

The regret of an evaluation at x is f* - f(x), where f is the mean over all agents of the federation of their noise-free values
and f* its largest value; R_m is the sum over agent m's evaluations, and R the sum over agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fedbo.actors.storage.rows import RunKey
from fedbo.results.grouping import by_run, column_of
from fedbo.results.mean_objective import ReplicateMean, means, points_of

if TYPE_CHECKING:
    from fedbo.results.result import Result

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RegretTrace:
    """One agent's points in one run, in order of time: how often each was evaluated `(e,)`, and its regret each time `(e,)`."""

    cell: int
    algorithm: str
    replicate: int
    agent: int
    pulls: npt.NDArray[np.int64]
    instant: Array

    @property
    def rounds(self) -> int:
        """Count the evaluations."""
        return int(self.pulls.sum())

    @property
    def total(self) -> float:
        """Give R_m."""
        return float(self.pulls @ self.instant)

    def cumulative(self, rounds: Array) -> Array:
        """Give the regret of the first so many evaluations `(p,)`; NaN beyond the last."""
        ends = np.concatenate([[0], np.cumsum(self.pulls)])
        sums = np.concatenate([[0.0], np.cumsum(self.pulls * self.instant)])
        return np.asarray(np.interp(rounds, ends, sums, right=np.nan))


@dataclass(frozen=True, slots=True)
class RegretCurve:
    """The regret of one algorithm in one cell against `rounds (p,)`, the evaluations of each agent.

    `mean (p,)` is R / M, cumulative, and `instant (p,)` that of one evaluation, averaged since the place before: means over
    agents, then over replicates; `deviation (p,)` and `instant_deviation (p,)` are standard deviations over replicates, NaN
    with a single one.
    """

    cell: int
    algorithm: str
    rounds: Array
    mean: Array
    deviation: Array
    instant: Array
    instant_deviation: Array


def regret_traces(result: Result) -> list[RegretTrace]:
    """Follow every agent's regret in the runs that count; ResultError where the mean function is not known."""
    observations, _ = result.shown
    searched = observations.filter(pc.not_equal(observations["phase"], "history"))
    known = means(result, searched)
    return [trace for key, rows in by_run(searched) for trace in _of_run(key, rows, known[key.cell, key.replicate])]


def regret_curves(found: Sequence[RegretTrace], points: int) -> list[RegretCurve]:
    """Average over agents, then over replicates; who has ended is left out from there on."""
    groups: dict[tuple[int, str], list[RegretTrace]] = {}
    for trace in found:
        groups.setdefault((trace.cell, trace.algorithm), []).append(trace)
    return [_curve(cell, label, mine, points) for (cell, label), mine in groups.items()]


def _of_run(key: RunKey, rows: Any, mean: ReplicateMean) -> Iterator[RegretTrace]:
    agents, finished = column_of(rows, "agent"), column_of(rows, "finished")
    counts = column_of(rows, "pulls") if "pulls" in rows.column_names else np.ones(len(rows))
    instant = mean.best.value - mean.at(points_of(rows))
    for agent in np.unique(agents):
        mine = np.flatnonzero(agents == agent)
        mine = mine[np.argsort(finished[mine], kind="stable")]
        yield RegretTrace(*key, int(agent), counts[mine].astype(np.int64), instant[mine])


def _curve(cell: int, label: str, mine: Sequence[RegretTrace], points: int) -> RegretCurve:
    last = max(trace.rounds for trace in mine)
    rounds = np.unique(np.linspace(1, last, min(points, last)).round())
    by_replicate: dict[int, list[RegretTrace]] = {}
    for trace in mine:
        by_replicate.setdefault(trace.replicate, []).append(trace)
    sums = np.stack([_mean_of([t.cumulative(rounds) for t in group]) for group in by_replicate.values()])
    single = np.stack([_mean_of([_each(t, rounds) for t in group]) for group in by_replicate.values()])
    return RegretCurve(cell, label, rounds, _mean_of(sums), _deviation(sums), _mean_of(single), _deviation(single))


def _each(trace: RegretTrace, rounds: Array) -> Array:
    """Give the mean regret of one evaluation since the place before."""
    edges = np.concatenate([[0.0], rounds])
    return np.asarray(np.diff(trace.cumulative(edges)) / np.diff(edges))


def _mean_of(rows: Sequence[Array] | Array) -> Array:
    """Average over rows, each place over those that have got so far; at every place there is one."""
    values = np.asarray(rows)
    there = ~np.isnan(values)
    return np.asarray(np.where(there, values, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1))


def _deviation(values: Array) -> Array:
    return np.asarray(values.std(axis=0, ddof=1)) if len(values) > 1 else np.full(values.shape[1], np.nan)
