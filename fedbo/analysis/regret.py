"""Regret on the mean of all agents' functions: traces, curves, and one summary row for each algorithm in each cell.

The regret of an evaluation at x is f* - f(x), where f is the mean over all agents of the federation of their noise-free values
and f* its largest value; R_m is the sum over agent m's evaluations, and R the sum over agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fedbo.actors.storage.rows import RunKey
from fedbo.algorithms.catalog import algorithms
from fedbo.analysis.finished_run import FinishedRun, counted_tables
from fedbo.analysis.grouping import (
    by_cell_and_algorithm,
    by_replicate,
    by_run,
    bytes_of,
    column_of,
    of_algorithm,
    of_kinds,
    sent_down,
    sent_up,
)
from fedbo.analysis.mean_objective import ReplicateMean, means, points_of
from fedbo.analysis.records.records import Records
from fedbo.settings import arguments

Array = npt.NDArray[np.float64]

_NUMBER = 8  # bytes of a number in a message
_BANDITS = "fedbo.algorithms.bandits."


def plays_bandits(result: FinishedRun) -> bool:
    """Return whether any algorithm of a study is a bandit, which is judged by its regret."""
    known = algorithms()
    names = [table.name for table in result.study.algorithm]
    return any(name in known and known[name].settings.__module__.startswith(_BANDITS) for name in names)


@dataclass(frozen=True, slots=True)
class RegretTrace:
    """One agent's points in one run, in order of time: the evaluations of each `(e,)`, and its regret each time `(e,)`."""

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
        """Return R_m."""
        return float(self.pulls @ self.instant)

    def cumulative(self, rounds: Array) -> Array:
        """Return the regret of the first `rounds` evaluations `(p,)`; NaN beyond the last."""
        ends = np.concatenate([[0], np.cumsum(self.pulls)])
        sums = np.concatenate([[0.0], np.cumsum(self.pulls * self.instant)])
        return np.asarray(np.interp(rounds, ends, sums, right=np.nan))


@dataclass(frozen=True, slots=True)
class RegretCurve:
    """The regret of one algorithm in one cell against `rounds (p,)`, the evaluations of each agent.

    `mean (p,)` is R / M, cumulative, and `instant (p,)` that of one evaluation, averaged since the previous place: means over
    agents, then over replicates. `deviation (p,)` and `instant_deviation (p,)` are standard deviations over replicates, NaN
    with a single one.
    """

    cell: int
    algorithm: str
    rounds: Array
    mean: Array
    deviation: Array
    instant: Array
    instant_deviation: Array


@dataclass(frozen=True, slots=True)
class RegretRow:
    """The regret and the communication of one algorithm in one cell; all are means over replicates.

    `rounds` are the evaluations of each agent. `mean` is R / M with its standard `deviation` over replicates (None with one),
    `total` is R, and `last` the regret of the last evaluation, a mean over the M agents. `rounds_up` is the number of messages
    from each agent, `scalars_up` and `scalars_down` the numbers of eight bytes from and to it.
    """

    cell: int
    algorithm: str
    replicates: int
    agents: int
    rounds: float
    mean: float
    deviation: float | None
    total: float
    last: float
    rounds_up: float
    scalars_up: float
    scalars_down: float


_KNOWN = WeakKeyDictionary[FinishedRun, list[RegretTrace]]()


def regret_traces(result: FinishedRun) -> list[RegretTrace]:
    """Return the regret of all evaluations on the mean of all agents' functions; ResultError if it is not known.

    The largest value of the mean is computed once, which may take a minute, and stored beside the tables as `optima.json`. The
    traces are kept while the result exists.
    """
    if result not in _KNOWN:
        observations, _ = counted_tables(result)
        searched = observations.filter(pc.not_equal(observations["phase"], "history"))
        known = means(result, searched)
        _KNOWN[result] = [
            trace for key, rows in by_run(searched) for trace in _of_run(key, rows, known[key.cell, key.replicate])
        ]
    return _KNOWN[result]


def regret_curves(result: FinishedRun, points: int = 200) -> Records[RegretCurve]:
    """Average that regret over agents and replicates, cumulative and instantaneous, against evaluations of each agent."""
    return Records("regret_curves", RegretCurve, regret_averages(regret_traces(result), arguments.whole("points", points, 1)))


def regret_averages(found: Sequence[RegretTrace], points: int) -> list[RegretCurve]:
    """Average traces over agents, then over replicates; agents that have ended are left out from there on."""
    return [_curve(cell, label, mine, points) for (cell, label), mine in by_cell_and_algorithm(found).items()]


def regret_summary(result: FinishedRun) -> Records[RegretRow]:
    """Summarise that regret and its communication, one row for each algorithm in each cell."""
    groups, (_, events) = by_cell_and_algorithm(regret_traces(result)).items(), counted_tables(result)
    return Records("regret", RegretRow, (_row(mine, of_algorithm(events, *key)) for key, mine in groups))


def _row(found: Sequence[RegretTrace], events: Any) -> RegretRow:
    """Summarise one algorithm in one cell; `events` are its events."""
    groups = by_replicate(found).values()
    totals = np.array([sum(trace.total for trace in group) for group in groups])
    counts = np.array([len(group) for group in groups])
    means, lives = totals / counts, len(found)
    return RegretRow(
        cell=found[0].cell,
        algorithm=found[0].algorithm,
        replicates=len(groups),
        agents=int(counts.max()),
        rounds=float(np.mean([trace.rounds for trace in found])),
        mean=float(means.mean()),
        deviation=float(means.std(ddof=1)) if len(means) > 1 else None,
        total=float(totals.mean()),
        last=float(np.mean([trace.instant[-1] for trace in found])),
        rounds_up=len(of_kinds(events, "sent")) / lives,
        scalars_up=bytes_of(sent_up(events)) / _NUMBER / lives,
        scalars_down=bytes_of(sent_down(events)) / _NUMBER / lives,
    )


def _of_run(key: RunKey, rows: Any, mean: ReplicateMean) -> Iterator[RegretTrace]:
    agents, finished = column_of(rows, "agent"), column_of(rows, "finished")
    counts = column_of(rows, "pulls") if "pulls" in rows.column_names else np.ones(len(rows))
    instant = mean.best.value - mean.at(points_of(rows))
    for agent in np.unique(agents):
        mine = np.flatnonzero(agents == agent)
        mine = mine[np.argsort(finished[mine], kind="stable")]
        pulls = counts[mine].astype(np.int64)
        yield RegretTrace(**key._asdict(), agent=int(agent), pulls=pulls, instant=instant[mine])


def _curve(cell: int, label: str, mine: Sequence[RegretTrace], points: int) -> RegretCurve:
    last = max(trace.rounds for trace in mine)
    rounds = np.unique(np.linspace(1, last, min(points, last)).round())
    groups = by_replicate(mine).values()
    sums = np.stack([_mean_of([t.cumulative(rounds) for t in group]) for group in groups])
    single = np.stack([_mean_of([_each(t, rounds) for t in group]) for group in groups])
    return RegretCurve(
        cell,
        label,
        rounds,
        mean=_mean_of(sums),
        deviation=_deviation(sums),
        instant=_mean_of(single),
        instant_deviation=_deviation(single),
    )


def _each(trace: RegretTrace, rounds: Array) -> Array:
    """Return the mean regret of one evaluation since the previous place."""
    edges = np.concatenate([[0.0], rounds])
    return np.asarray(np.diff(trace.cumulative(edges)) / np.diff(edges))


def _mean_of(rows: Sequence[Array] | Array) -> Array:
    """Average over rows, each place over the rows that reach it; every place has at least one."""
    values = np.asarray(rows)
    there = ~np.isnan(values)
    return np.asarray(np.where(there, values, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1))


def _deviation(values: Array) -> Array:
    return np.asarray(values.std(axis=0, ddof=1)) if len(values) > 1 else np.full(values.shape[1], np.nan)
