"""The bars of a timeline: the activities of each agent in one run, from its observations and its events.

`placements` are those of evaluations that queued for the workers of a simulated cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fedbo.analysis.agent_states import event_intervals, state_intervals
from fedbo.analysis.grouping import by_run, column_of, grouped, of_kinds
from fedbo.analysis.summary import FEDERATED

PLACEMENTS = pa.schema(
    [
        *((name, pa.int32() if name != "algorithm" else pa.string()) for name in ("cell", "algorithm", "replicate", "agent")),
        *((name, pa.int32()) for name in ("step", "query", "worker")),
        *((name, pa.float64()) for name in ("queued_at", "started_at", "kept_until", "ended_at")),
        ("preempted", pa.bool_()),
        ("copy", pa.bool_()),
    ]
)


def placements(events: Any) -> Any:
    """List each stay of an evaluation on a worker, as an Arrow table, in the order of their ends.

    The evaluation entered the queue at `queued_at`, and was on its `worker` from `started_at`, start-up time included, to
    `ended_at`; stays that are open in the end last until then. Its work since `kept_until` was lost there.
    """
    rows: list[tuple[Any, ...]] = []
    for key, own in by_run(events):
        begun: dict[tuple[int, ...], tuple[int, float, float]] = {}
        happened = of_kinds(own, "placed", "released", "preempted")
        for time, kind, *job, worker, queued, lost in listed_moves(happened):
            if kind == "placed":
                begun[tuple(job)] = worker, queued, time
            else:
                found = begun.pop(tuple(job))
                rows.append((*key, *job[:3], *found, time - (lost or 0.0), time, kind == "preempted", job[3] is True))
        end = float(column_of(own, "time").max())
        rows += [(*key, *job[:3], *found, end, end, False, job[3] is True) for job, found in begun.items()]
    columns = zip(*rows, strict=True) if rows else [()] * len(PLACEMENTS)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, PLACEMENTS, strict=True)], schema=PLACEMENTS)


def listed_moves(events: Any) -> Any:
    """Yield time, kind, agent, step, query, copy, worker, the start of queueing and the lost time of each event."""
    names = ("time", "kind", "agent", "step", "query", "copy", "worker", "queued_at", "lost")
    return zip(*(events[name].to_pylist() for name in names), strict=True)


Bars = list[tuple[float, float, float]]  # row, which may be a lane within one, begin, end

Span = tuple[float, float]

MAX_AGENTS = 40  # more agents than this, and a timeline shows so many of them, from the fastest to the slowest
EVALUATION_KINDS = ("initial point", "own query", "federated query", "failed or forgotten")
BAR_KINDS = ("waiting", *EVALUATION_KINDS, "work lost", "queueing", "deciding")
HALF = 0.36  # of the height of a row is above its middle, and as much below
PAUSES = (("absent", "returned"), ("crashed", "restarted"), ("hung", "woke"))


def horizon(ends: Sequence[float]) -> float:
    """Return the end of a time axis: the last end, or that of nearly all agents if a few stragglers take much longer."""
    nearly, last = float(np.quantile(ends, 0.95)), float(np.max(ends))
    return 1.02 * (last if last <= 1.3 * nearly else 1.1 * nearly)


def by_speed(observations: Any) -> list[int]:
    """Sort agents by the mean length of their evaluations, and thin them out evenly if there are too many."""
    agent = column_of(observations, "agent")
    length = column_of(observations, "finished") - column_of(observations, "started")
    names = np.unique(agent)
    means = np.array([length[agent == name].mean() for name in names])
    order = [int(name) for name in names[np.argsort(means, kind="stable")]]
    if len(order) <= MAX_AGENTS:
        return order
    return [order[round(float(spot))] for spot in np.linspace(0, len(order) - 1, MAX_AGENTS)]


def evaluation_bars(observations: Any, events: Any, place: Mapping[int, int]) -> tuple[dict[str, Bars], int]:
    """Return the bars of each kind of evaluation, and of the steps' other activities, and the number of lanes in a row.

    Evaluations are interrupted where their agent paused. Overlapping ones of an agent are in separate lanes.
    """
    kinds: dict[str, Bars] = {kind: [] for kind in BAR_KINDS}
    pauses = dict[int, list[Span]]()
    for one in (interval for pair in PAUSES for interval in event_intervals(events, *pair)):
        pauses.setdefault(one.agent, []).append((one.begin, one.end))
    names = ["agent", "step", "query", "phase", "origin", "started", "finished", "error"]
    evaluated = observations.select(names).to_pylist()
    rows = [row for row in evaluated if row["agent"] in place and row["phase"] != "history"]
    by_key = {(row["agent"], row["step"], row["query"]): row for row in rows}
    for stay in placements(events).to_pylist():  # work that was saved before a preemption is of the same evaluation
        key, times = (
            (stay["agent"], stay["step"], stay["query"]),
            {"started": stay["started_at"], "finished": stay["kept_until"]},
        )
        if stay["preempted"] and key in by_key and times["started"] < times["finished"]:
            rows.append(by_key[key] | times)
    whole, count = in_lanes([(place[row["agent"]], row["started"], row["finished"]) for row in rows])
    for row, (middle, *span) in zip(rows, whole, strict=True):
        cuts = without((span[0], span[1]), pauses.get(row["agent"], ()))
        kinds[kind_of(row)] += [(middle, begin, end) for begin, end in cuts]
    own = grouped(rows, lambda row: row["agent"])
    _between(kinds, events, place, {agent: [(row["started"], row["finished"]) for row in rows] for agent, rows in own.items()})
    for agent, *span in state_intervals(events).of("waiting"):
        if agent in place:
            busy = merged((row["started"], row["finished"]) for row in own.get(agent, ()))
            kinds["waiting"] += [(place[agent], *cut) for cut in without((span[0], span[1]), busy)]
    # Rounding leaves slivers between spans, which are no bars.
    tiny = 1e-9 * max((end for bars in kinds.values() for _, _, end in bars), default=0.0)
    return {kind: [bar for bar in bars if bar[2] - bar[1] > tiny] for kind, bars in kinds.items()}, count


def _between(kinds: dict[str, Bars], events: Any, place: Mapping[int, int], evaluated: Mapping[int, Sequence[Span]]) -> None:
    """Add the bars of steps without a running evaluation: lost work, queueing for workers, deciding."""
    broken, (preempted, queued) = _broken(events), _placed(events)
    for agent, begin, end in state_intervals(events).of("evaluating"):
        if agent not in place:
            continue
        rest = without((begin, end), [span for span in evaluated.get(agent, ()) if span[0] < end and span[1] > begin])
        # One that was begun again had evaluated too, and to no effect; a decision is what nothing else explains.
        for kind, holes in (
            ("work lost", [*broken.get(agent, ()), *preempted.get(agent, ())]),
            ("queueing", queued.get(agent, ())),
        ):
            joined = merged(holes)
            kinds[kind] += [(place[agent], *cut) for span in rest for cut in within(span, joined)]
            rest = [left for span in rest for left in without(span, joined)]
        kinds["deciding"] += [(place[agent], *cut) for cut in rest]


def _placed(events: Any) -> tuple[dict[int, list[Span]], dict[int, list[Span]]]:
    """List for each agent of a run the times of preempted evaluations, and those of evaluations waiting for workers."""
    preempted, queued = dict[int, list[Span]](), dict[int, list[Span]]()
    for row in placements(events).to_pylist():
        queued.setdefault(row["agent"], []).append((row["queued_at"], row["started_at"]))
        if row["preempted"]:
            preempted.setdefault(row["agent"], []).append((row["kept_until"], row["ended_at"]))
    return preempted, queued


def in_lanes(bars: Bars) -> tuple[Bars, int]:
    """Move bars that overlap in their row into lanes of it, the same number in all rows; return both, in the same order."""
    lane = lanes_of(bars)
    count = 1 + max(lane, default=0)
    moved = [
        (row + 2 * HALF * ((own + 0.5) / count - 0.5), begin, end) for own, (row, begin, end) in zip(lane, bars, strict=True)
    ]
    return moved, count


def lanes_of(bars: Bars) -> list[int]:
    """Return for each bar the first free lane of its row, so that no two bars in a lane overlap."""
    lane, free = [0] * len(bars), dict[float, list[float]]()
    for number in sorted(range(len(bars)), key=lambda number: bars[number]):
        row, begin, end = bars[number]
        until = free.setdefault(row, [])
        lane[number] = next((place for place, time in enumerate(until) if time <= begin), len(until))
        until[lane[number] :] = [end, *until[lane[number] + 1 :]]
    return lane


def merged(spans: Iterable[Span]) -> list[Span]:
    """Join spans that overlap or touch; return them in order."""
    found = list[Span]()
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > begin:
            found.append((begin, end))
    return found


def kind_of(row: Mapping[str, Any]) -> str:
    """Return the kind of a row's evaluation."""
    if row["error"] is not None:
        return "failed or forgotten"
    if row["phase"] == "initial":
        return "initial point"
    return "federated query" if row["origin"] == FEDERATED else "own query"


def without(span: tuple[float, float], holes: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Cut holes out of a span of time; return the rest, in order."""
    left, (begin, end) = list[tuple[float, float]](), span
    for opens, closes in sorted(holes):
        if closes <= begin or opens >= end:
            continue
        if opens > begin:
            left.append((begin, opens))
        begin = closes
    return [*left, (begin, end)] if begin < end else left


def within(span: tuple[float, float], others: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the parts of a span of time that lie in others."""
    cuts = [(max(span[0], begin), min(span[1], end)) for begin, end in others]
    return [cut for cut in cuts if cut[0] < cut[1]]


def _broken(events: Any) -> dict[int, list[tuple[float, float]]]:
    """List for each agent the steps, from their start on, that a crash or a return restarted."""
    broken, since = dict[int, list[tuple[float, float]]](), dict[int, float]()
    for mark in of_kinds(events, "started", "finished", "crashed").select(["agent", "time", "kind"]).to_pylist():
        begun = since.pop(mark["agent"], None)
        if begun is not None and mark["kind"] != "finished":
            broken.setdefault(mark["agent"], []).append((begun, mark["time"]))
        if mark["kind"] == "started":
            since[mark["agent"]] = mark["time"]
    return broken


def spans_of(observations: Any, events: Any, place: Mapping[int, int]) -> Bars:
    """Return each agent's whole time in the study: time without an evaluation is waiting."""
    ends: dict[int, tuple[float, float]] = {}
    rows = zip(*(column_of(observations, name).tolist() for name in ("agent", "started", "finished")), strict=True)
    lived = state_intervals(events)
    life = zip(lived.agent.tolist(), lived.begin.tolist(), lived.end.tolist(), strict=True)
    for agent, begin, end in rows:
        low, high = ends.get(agent, (begin, end))
        ends[agent] = min(low, begin), max(high, end)
    for agent, _, end in life:
        if agent in ends:
            ends[agent] = ends[agent][0], max(ends[agent][1], end)
    return [(row, *ends[agent]) for agent, row in place.items()]


def during(events: Any, pair: tuple[str, str], place: Mapping[int, int], ends: Mapping[int, float]) -> Bars:
    """Return the intervals between two kinds of events of the agents with a row, up to the end of each agent's bars."""
    found = [one for one in event_intervals(events, *pair) if one.agent in place and one.begin <= ends[one.agent]]
    bars = [(place[one.agent], one.begin, min(one.end, ends[one.agent])) for one in found]
    return [bar for bar in bars if bar[2] > bar[1]]


def crashes(events: Any, place: Mapping[int, int], ends: Mapping[int, float]) -> tuple[list[tuple[int, float]], ...]:
    """Return row and time of the crashes from which an agent returned, and of the permanent ones."""
    rows = of_kinds(events, "crashed").select(["agent", "time", "permanent"]).to_pylist()
    rows = [row for row in rows if row["agent"] in place and row["time"] <= ends[row["agent"]]]
    gone, back = ([row for row in rows if row["permanent"] is final] for final in (True, False))
    return [(place[row["agent"]], row["time"]) for row in back], [(place[row["agent"]], row["time"]) for row in gone]
