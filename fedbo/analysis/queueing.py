"""The queueing of evaluations for the workers of a simulated cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedbo.analysis.agent_states import STATES, StateIntervals
from fedbo.analysis.grouping import by_run, column_of, of_kinds

PLACEMENTS = pa.schema(
    [
        *((name, pa.int32() if name != "algorithm" else pa.string()) for name in ("cell", "algorithm", "replicate", "agent")),
        *((name, pa.int32()) for name in ("step", "query", "worker")),
        *((name, pa.float64()) for name in ("queued_at", "started_at", "ended_at")),
        ("preempted", pa.bool_()),
    ]
)


def placements(events: Any) -> Any:
    """List each stay of an evaluation on a worker, as an Arrow table, in the order of their ends.

    The evaluation entered the queue at `queued_at`, and was on its `worker` from `started_at`, start-up time included, to
    `ended_at`; stays that are open in the end last until then.
    """
    rows: list[tuple[Any, ...]] = []
    for key, own in by_run(events):
        begun: dict[tuple[int, int, int], tuple[int, float, float]] = {}
        happened = of_kinds(own, "placed", "released", "preempted")
        for time, kind, *job, worker, queued in listed_moves(happened):
            if kind == "placed":
                begun[tuple(job)] = worker, queued, time
            else:
                found = begun.pop(tuple(job))
                rows.append((*key, *job, *found, time, kind == "preempted"))
        end = float(column_of(own, "time").max())
        rows += [(*key, *job, *found, end, False) for job, found in begun.items()]
    columns = zip(*rows, strict=True) if rows else [()] * len(PLACEMENTS)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, PLACEMENTS, strict=True)], schema=PLACEMENTS)


def queued_time(placed: Any, lived: StateIntervals, agent: int) -> float:
    """Return the time of an agent's steps in which its evaluations waited for workers and none of them ran."""
    mine = placed.filter(pc.equal(placed["agent"], agent))
    queued, started, ended = (column_of(mine, name).astype(float) for name in ("queued_at", "started_at", "ended_at"))
    busy = (lived.agent == agent) & (lived.state == STATES.index("evaluating"))
    spans = ((queued, started), (started, ended), (lived.begin[busy], lived.end[busy]))
    time = np.concatenate([edge for span in spans for edge in span])
    order = np.argsort(time, kind="stable")
    sizes, waits = [len(span[0]) for span in spans], np.ones(max(0, len(time) - 1), dtype=bool)  # an agent may do nothing
    for place, (size, wanted) in enumerate(zip(sizes, (True, False, True), strict=True)):
        change, before = np.zeros(len(time), dtype=np.int64), 2 * sum(sizes[:place])
        change[before : before + size], change[before + size : before + 2 * size] = 1, -1
        waits &= (np.cumsum(change[order])[:-1] > 0) == wanted
    return float(np.diff(time[order])[waits].sum())


def listed_moves(events: Any) -> Any:
    """Yield time, kind, agent, step, query, worker and the start of queueing of each event."""
    names = ("time", "kind", "agent", "step", "query", "worker", "queued_at")
    return zip(*(events[name].to_pylist() for name in names), strict=True)
