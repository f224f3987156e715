"""Traces: the score of each agent's incumbent against iterations, evaluations, time, bytes, epsilon or cost.

With several objectives, or with limits, a trace follows another indicator (`fedbo.analysis.indicators`).

An agent's incumbent is the point with the largest value that it has *seen*; it is judged by its noise-free *score*, so
that noise gives no advantage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.grouping import by_run, column_of, sent_down, sent_up, starts
from fedbo.analysis.indicators import Incumbent, Indicator, IndicatorSeries, Points

Array = npt.NDArray[np.float64]
Axis = Literal["iteration", "evaluations", "time", "bytes", "epsilon", "cost"]

PLACES: dict[Axis, str] = {
    **{"iteration": "step", "evaluations": "evaluated", "time": "finished", "bytes": "moved"},
    **{"epsilon": "spent", "cost": "used"},
}


@dataclass(frozen=True, slots=True)
class IncumbentTrace:
    """The incumbent of one target in a run, or another indicator, after each of its `e` points in the order of time.

    - `step (e,)`: the iteration of each point.
    - `evaluated (e,)`: the number of evaluations up to and with each point, which may be evaluated many times.
    - `finished (e,)`: the end of each point's evaluation.
    - `score (e,)`: the score of each point, NaN if its evaluation failed.
    - `best (e,)`: the score of the incumbent, to be maximised, and `row (e,)` its row in the table of observations. Before the
      first success `best` is NaN and `row` -1; without any success, `best` is the worst known score (`_without_success`).
    - `moved (e,)`: the bytes for each target that the whole run had transmitted in both directions before each end.
    - `spent (e,)`: the epsilon spent in the run before each end, at the first delta and by the agent that spent most.
    - `used (e,)`: the time that the target had spent in evaluations, which is their cost.
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
    moved: Array
    evaluated: npt.NDArray[np.int64]
    spent: Array
    used: Array

    @property
    def begun(self) -> bool:
        """Check whether the target ever had an incumbent."""
        return bool(self.row[-1] >= 0)

    @property
    def first(self) -> float:
        """Return the score of the target's first incumbent, or the worst known score if it never had one."""
        return float(self.best[np.argmax(self.row >= 0)])

    def places(self, axis: Axis) -> Array:
        """Return the place of each evaluation on an axis."""
        return np.asarray(getattr(self, PLACES[axis]))

    def at(self, axis: Axis, x: Array) -> Array:
        """Return the incumbent's score at the places `x (p,)` of an axis; NaN before the first incumbent."""
        if not self.begun:
            return np.full(len(x), self.best[-1])
        places = self.places(axis)
        if axis == "iteration":
            # The search needs ascending places, but steps go back after a crash, and failed points do not count.
            places = np.maximum.accumulate(np.where(np.isnan(self.score), 0, places))
        index = np.searchsorted(places, x, side="right") - 1
        return np.where(index >= 0, self.best[np.maximum(index, 0)], np.nan)


def traces(
    observations: Any, events: Any = None, privacy: Any = None, indicators: Sequence[Indicator] = ()
) -> list[IncumbentTrace]:
    """Return the traces of all agents with evaluations in the study itself; the tables are in canonical order.

    Without `events`, no messages are counted; without `privacy`, no releases. `indicators` are those of the cells, by default
    `Incumbent` in each.
    """
    columns = {
        name: column_of(observations, name)
        for name in ("cell", "algorithm", "replicate", "agent", "step", "started", "finished", "pulls", "copied")
    }
    rows = np.flatnonzero(column_of(observations, "phase") != "history")
    value = column_of(observations, "value").astype(np.float64)
    # An evaluation that failed, or was forgotten, cost time but gave nothing that could be an incumbent.
    failed = ~np.asarray(observations["error"].is_null()) | ~np.isfinite(value)
    chosen = {indicator: indicator.points(observations, failed) for indicator in {*(indicators or (Incumbent(),))}}
    traffic = {} if events is None else _traffic(events, targets_of(observations))
    released = {} if privacy is None else _released(privacy)
    first = starts(*(columns[name][rows] for name in ("cell", "algorithm", "replicate", "agent")))
    # Sorted by time: after a crash an agent repeats the steps that it forgot, so steps go back, but time does not.
    found = list[IncumbentTrace]()
    for group in np.split(rows, np.flatnonzero(first))[1:]:
        indicator = indicators[int(columns["cell"][group[0]])] if indicators else Incumbent()
        mine, points = group[np.argsort(columns["finished"][group], kind="stable")], chosen[indicator]
        series = indicator.series(Points(points.seen[mine], points.score[mine]))
        found.append(_trace(columns, series, mine, (traffic, released)))
    return _without_success(found, [indicator.floor for indicator in indicators])


def _without_success(found: list[IncumbentTrace], floors: Sequence[float | None]) -> list[IncumbentTrace]:
    """Score targets without any success with the worst score of the same agent, or else of any agent, in the cell.

    The worst is taken over all algorithms and replicates. If such a target were left out of the mean of its replicate, the
    algorithm with the most failures would look best. Where an indicator has a floor, such a target is there.
    """
    if all(trace.begun for trace in found):
        return found
    worst = dict[tuple[int, int | None], float]()
    for trace in (trace for trace in found if trace.begun):
        lowest = float(np.nanmin(trace.score))
        for key in ((trace.cell, trace.agent), (trace.cell, None)):
            worst[key] = min(worst.get(key, np.inf), lowest)
    known = [worst.get((one.cell, one.agent), worst.get((one.cell, None), np.nan)) for one in found]
    kept = [one.begun or (len(floors) > 0 and floors[one.cell] is not None) for one in found]
    return [
        one if keep else replace(one, best=np.full_like(one.best, score))
        for one, score, keep in zip(found, known, kept, strict=True)
    ]


def targets_of(observations: Any) -> dict[int, npt.NDArray[np.int64]]:
    """Return the targets of each cell: the agents with evaluations in any of its runs, in ascending order."""
    cell, agent = (column_of(observations, name).astype(np.int64) for name in ("cell", "agent"))
    return {int(number): np.unique(agent[cell == number]) for number in np.unique(cell)}


def _traffic(events: Any, targets: Mapping[int, npt.NDArray[np.int64]]) -> dict[RunKey, tuple[Array, Array]]:
    """Return the times of each run's transmissions, and the cumulative bytes for each target."""
    found = {}
    for key, own in by_run(events):
        moved = pa.concat_tables([sent_up(own), sent_down(own)])
        time, size = column_of(moved, "time").astype(np.float64), column_of(moved, "bytes").astype(np.float64)
        order = np.argsort(time, kind="stable")
        found[key] = time[order], np.cumsum(size[order]) / max(1, len(targets.get(key.cell, ())))
    return found


def _released(privacy: Any) -> dict[RunKey, tuple[Array, Array]]:
    """Return the times of each run's releases, and the cumulative epsilon."""
    found = {}
    for key, own in by_run(privacy):
        made = [row for row in own.select(["time", "epsilon", "refused"]).to_pylist() if not row["refused"]]
        time, spent = np.array([row["time"] for row in made]), np.array([row["epsilon"][0] for row in made])
        keep = np.isfinite(spent)
        found[key] = time[keep], spent[keep]
    return found


def _trace(
    columns: Mapping[str, Any],
    series: IndicatorSeries,
    rows: npt.NDArray[np.int64],
    totals: tuple[Mapping[RunKey, tuple[Array, Array]], Mapping[RunKey, tuple[Array, Array]]],
) -> IncumbentTrace:
    row = np.where(series.place >= 0, rows[np.maximum(series.place, 0)], -1)
    first = int(rows[0])
    key = RunKey(int(columns["cell"][first]), str(columns["algorithm"][first]), int(columns["replicate"][first]))
    finished = columns["finished"][rows].astype(np.float64)
    return IncumbentTrace(
        cell=key.cell,
        algorithm=key.algorithm,
        replicate=key.replicate,
        agent=int(columns["agent"][first]),
        step=columns["step"][rows].astype(np.int64),
        finished=finished,
        score=series.score,
        best=series.best,
        row=row,
        moved=_before(totals[0].get(key), finished),
        evaluated=np.cumsum(columns["pulls"][rows], dtype=np.int64),
        spent=_before(totals[1].get(key), finished),
        used=np.cumsum(finished - columns["started"][rows].astype(np.float64) + np.nan_to_num(columns["copied"][rows])),
    )


def _before(totals: tuple[Array, Array] | None, finished: Array) -> Array:
    """Return a total just before each of these times; transmissions and releases at the same time come later."""
    if totals is None:
        return np.zeros(len(finished))
    time, total = totals
    return np.append(0.0, total)[np.searchsorted(time, finished, side="left")]
