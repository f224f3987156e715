"""Measurements of a run's or a log's world: durations, decisions, latencies, absences, crashes and losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedbo.analysis.agent_states import EventInterval, event_intervals, state_intervals
from fedbo.analysis.grouping import column_of, of_kinds
from fedbo.analysis.timeline_bars import placements
from fedbo.lab.twins.families import CensoredTimes
from fedbo.settings.errors import FedboError

if TYPE_CHECKING:
    from fedbo.study.study import Study

Array = npt.NDArray[np.float64]
Row = dict[str, Any]
Span = tuple[float, float]
CUT_SHORT = ("evaluations", "latencies", "absences", "downtimes")
_SHORTEST = 1e-6  # units of time that a crash takes at least; a study takes none of 0


class MeasurementError(FedboError, ValueError):
    """A run or a log with too little information to fit a world to it."""


@dataclass(slots=True)
class Measurements:
    """Measurements of all replicates together.

    - `durations` of evaluations, in a `unit` unknown for logs, with their `agents` and `points` of the unit cube; `failed`
      counts those without a value. `places` numbers the agents of a log by the order of their ids.
    - `thoughts` are pairs of t_n and the time of a decision that an agent had to wait for; `reports` the times from an
      evaluation's end to that of its step. `startups` are the times that places stay empty where points are decided in advance.
    - `latencies` of messages and answers; `begins` are pairs of an agent and the time of its first step beyond its evaluations.
    - `absences` and `downtimes` are lengths; there were `departures` in the time `present`, and `crashes` in the time `alive`.
      `lost_steps` are the ages of steps when their agents were found dead.
    - `cut` has the times so far of what had not ended, by kind: those of evaluations, of which a step that began again has had
      some, with their agents in `cut_agents`. `unmeasured` counts evaluations that had not ended and whose begin is unknown.
    - `lost` of `sent` transmissions; at most `together` simultaneous evaluations.
    - `cluster`, `resources` and `preemptions` are tables of the recorded study, and empty without a [cluster]. `queued` are the
      times in its queue; `interrupted` counts evaluations without a duration, since a preemption cut it in parts.
    - `notes` are sentences about a log.
    """

    unit: str = ""
    durations: list[float] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)
    points: list[list[float]] = field(default_factory=list)
    failed: int = 0
    thoughts: list[tuple[int, float]] = field(default_factory=list)
    reports: list[float] = field(default_factory=list)
    startups: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    begins: list[tuple[int, float]] = field(default_factory=list)
    absences: list[float] = field(default_factory=list)
    departures: int = 0
    present: float = 0.0
    downtimes: list[float] = field(default_factory=list)
    lost_steps: list[float] = field(default_factory=list)
    crashes: int = 0
    alive: float = 0.0
    places: dict[int, int] = field(default_factory=dict)
    cut: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in CUT_SHORT})
    cut_agents: list[int] = field(default_factory=list)
    unmeasured: int = 0
    sent: int = 0
    lost: int = 0
    together: int = 0
    cluster: Mapping[str, Any] = field(default_factory=dict)
    resources: Sequence[Mapping[str, float]] = ()
    preemptions: Sequence[Mapping[str, Any]] = ()
    queued: list[float] = field(default_factory=list)
    interrupted: int = 0
    notes: list[str] = field(default_factory=list)

    def columns(self) -> tuple[CensoredTimes, Array]:
        """Return the times of evaluations, those that ended first, and the points of these as arrays."""
        count = len(self.durations)
        points = np.array(self.points, dtype=np.float64).reshape(count, -1) if count else np.empty((0, 0))
        agents = np.array([*self.agents, *self.cut_agents], dtype=np.int64)
        return self.times("evaluations", self.durations)._replace(agents=agents), points

    def times(self, kind: str, ended: Sequence[float]) -> CensoredTimes:
        """Return times of one kind, those that `ended` before those that were cut short."""
        cut = self.cut[kind]
        return CensoredTimes(np.array([*ended, *cut], dtype=np.float64), np.repeat([True, False], [len(ended), len(cut)]))


def measure_run(into: Measurements, observations: Any, events: Any, study: Study) -> None:
    """Add the tables of one replicate; in real time neither absences nor hangs stop an evaluation."""
    into.unit = f", {study.timing.in_words}"
    real, policy = study.timing.clock == "wall", study.evaluation.make()
    names = ["agent", "phase", "step", "query", "u", "started", "finished", "pulls", "error"]
    rows = [row for row in observations.select(names).to_pylist() if row["phase"] != "history"]
    rows = [row for row in rows if not (row["error"] or "").startswith("forgotten")]
    into.together = max(
        into.together, most_at_once(*(np.array([row[name] for row in rows]) for name in ("started", "finished")))
    )
    on_cluster = study.cluster is not None
    if on_cluster:
        rows = _from_queue(into, rows, events, study)
    by_agent: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_agent[row["agent"]].append(row)
    pauses: dict[int, list[Span]] = defaultdict(list)
    for begins, ends in () if real else (("absent", "returned"), ("hung", "woke")):
        for one in event_intervals(events, begins, ends):
            pauses[one.agent].append((one.begin, one.end))
    for row in rows:
        into.failed += row["error"] is not None
        if on_cluster:  # whose workers do not stop with the agent
            length = row["length"]
        else:
            length = row["finished"] - row["started"] - _overlap(row["started"], row["finished"], pauses[row["agent"]])
        if np.isfinite(length) and length >= 0:
            into.durations.append(length / row["pulls"])
            into.agents.append(row["agent"])
            into.points.append(row["u"])
    thought = _steps(into, by_agent, pauses, events, policy.parallel if policy.prefetch else None)
    last = float(np.max(column_of(events, "time"), initial=0.0))
    until = last if real or study.budget.time is None else max(last, study.budget.time)
    open_ = list(_open_steps(events, until))
    if on_cluster:
        _cut_on_workers(into, rows, events, study)
    elif policy.prefetch or any(row["query"] or row["pulls"] > 1 for row in rows):
        into.unmeasured += len(open_)
    else:
        _cut_steps(into, open_, pauses, thought)
    _messages(into, events, until)
    _lives(into, events, by_agent if real else {}, until)
    if real and not policy.overlaps:
        into.lost_steps += _lost_steps(events, by_agent)


def _from_queue(into: Measurements, rows: Sequence[Row], events: Any, study: Study) -> list[Row]:
    """Return rows that begin with their entry into the cluster's queue, with their `length` at speed 1 without start-up."""
    assert study.cluster is not None
    tables = study.document()
    faults = [fault for fault in tables.get("fault", []) if fault["kind"] == "preemption"]
    into.cluster, into.preemptions = tables["cluster"], faults
    into.resources = tables.get("evaluation", {}).get("resources", ())
    workers = [one for one in study.cluster.classes() for _ in range(one.count)]
    placed: dict[tuple[int, ...], Row] = {}
    cut: set[tuple[int, ...]] = set()
    entered: dict[tuple[int, ...], float] = {}  # the first entry into the queue, before a preemption
    first_of: dict[tuple[int, ...], float] = {}  # the same of each evaluation that ended, for its copy
    for one in placements(events).to_pylist():
        into.queued.append(one["started_at"] - one["queued_at"])
        key = one["agent"], one["step"], one["query"]
        first = entered.pop(key, first_of.get(key, one["queued_at"]) if one["copy"] else one["queued_at"])
        first_of[key] = first
        if one["preempted"] and one["copy"]:
            entered[key] = first  # its original goes on
        elif one["preempted"]:
            cut.add(key)
            entered[key] = first
        else:
            placed[(*key, one["started_at"])] = {**one, "queued_at": first}
    kept, model = _keeps(into), study.cluster.make(())  # else work begins anew on the next worker
    found = []
    for row in rows:
        key = row["agent"], row["step"], row["query"]
        one = placed.get((*key, row["started"]))
        begun, length = row["started"], np.nan
        if one is not None:
            begun, worker = one["queued_at"], workers[one["worker"]]
            length = model.progress(max(0.0, row["finished"] - row["started"] - worker.startup) * worker.speed)[0]
        if kept and key in cut:
            into.interrupted, length = into.interrupted + 1, np.nan
        found.append({**row, "started": begun, "length": length, "placed": row["started"]})
    return found


def _keeps(into: Measurements) -> bool:
    """Return whether evaluations may keep work when a worker leaves."""
    return "checkpoint" in into.cluster or any("checkpoint" in one or one.get("notice") for one in into.preemptions)


def _open_steps(events: Any, until: float) -> Iterable[tuple[int, Span]]:
    """Yield the agent of each step that did not end, with its begin and the time at which it was begun again or lost."""
    begun: dict[int, dict[int, float]] = defaultdict(dict)
    for kind, agent, step, time in _listed(
        of_kinds(events, "started", "finished", "crashed", "done"), "kind", "agent", "step", "time"
    ):
        own = begun[agent]
        lost = [step] if kind == "started" else [*own] if kind in ("crashed", "done") else []
        yield from ((agent, (own.pop(one), time)) for one in lost if one in own)
        if kind == "started":
            own[step] = time
        elif kind == "finished":
            own.pop(step, None)
    yield from ((agent, (since, until)) for agent, own in begun.items() for since in own.values())


def _cut_steps(into: Measurements, steps: Iterable[tuple[int, Span]], pauses: Mapping[int, list[Span]], thought: float) -> None:
    """Add the times of the evaluations of steps that did not end, which a decision of so much time came before."""
    for agent, (since, until) in steps:
        length = until - since - thought - _overlap(since + thought, until, pauses[agent])
        if length > 0:
            into.cut["evaluations"].append(length)
            into.cut_agents.append(agent)


def _cut_on_workers(into: Measurements, rows: Iterable[Row], events: Any, study: Study) -> None:
    """Add the times of stays on workers without an end of their evaluation; where work is kept, these are parts of one."""
    assert study.cluster is not None
    workers = [one for one in study.cluster.classes() for _ in range(one.count)]
    ended = {(row["agent"], row["step"], row["query"], row["placed"]) for row in rows}
    kept, model = _keeps(into), study.cluster.make(())
    for one in placements(events).to_pylist():
        if (one["agent"], one["step"], one["query"], one["started_at"]) in ended or (kept and one["preempted"]):
            continue
        worker = workers[one["worker"]]
        length = model.progress(max(0.0, one["ended_at"] - one["started_at"] - worker.startup) * worker.speed)[0]
        if length > 0:
            into.cut["evaluations"].append(length)
            into.cut_agents.append(one["agent"])


def _overlap(since: float, until: float, pauses: Iterable[Span]) -> float:
    return sum(max(0.0, min(until, end) - max(since, begin)) for begin, end in pauses)


def most_at_once(begins: Array, ends: Array) -> int:
    """Count the largest number of simultaneous evaluations; one that ends makes room for one that begins then."""
    order = np.lexsort((np.repeat([1, 0], len(begins)), np.concatenate([begins, ends])))
    return int(np.cumsum(np.repeat([1, -1], len(begins))[order]).max(initial=0))


def _steps(
    into: Measurements, by_agent: Mapping[int, list[Row]], pauses: Mapping[int, list[Span]], events: Any, places: int | None
) -> float:
    """Measure the time of steps beyond their evaluations; restarted steps are left out. Return the time of a typical decision.

    With the number of `places`, points are decided in advance, and may wait for one.
    """
    decisions: list[float] = []
    begun: dict[tuple[int, int], list[float]] = defaultdict(list)
    over: dict[tuple[int, int], float] = {}
    for kind, agent, step, time in _listed(of_kinds(events, "started", "finished"), "kind", "agent", "step", "time"):
        if kind == "started":
            begun[agent, step].append(time)
        else:
            over[agent, step] = time
    for agent, rows in by_agent.items():
        starts, ends = (np.sort([row[name] for row in rows]) for name in ("started", "finished"))
        good = np.sort([row["finished"] for row in rows if row["error"] is None])
        waits: list[tuple[float, float]] = []
        known: list[tuple[int, float]] = []
        bounds: list[tuple[int, float]] = []
        for step, first in _firsts(rows).items():
            key = (agent, step)
            if len(begun[key]) != 1 or key not in over:
                continue
            since = begun[key][0]
            before = ends[: np.searchsorted(ends, over[key], side="right")]
            last = max(before[-1] if len(before) else since, min(first, over[key]))
            report = max(0.0, over[key] - last)
            if step == 0:
                into.begins.append((agent, max(0.0, first) + report))
                continue
            into.reports.append(report)
            free = -np.inf if places is None else _free_since(starts, ends, first, places)
            t_n, until = int(np.searchsorted(good, since, side="right")), min(first, over[key])
            if free > since:
                waits.append((free - since, first - free))
                bounds.append((t_n, min(free, over[key]) - since))
            else:
                known.append((t_n, max(0.0, until - since - _overlap(since, until, pauses[agent]))))
        typical = float(np.median([took for _, took in known])) if known else 0.0
        decisions += [took for _, took in known]
        into.thoughts += [*known, *((t_n, min(typical, most)) for t_n, most in bounds)]
        into.startups += [gap for _, gap in waits]
    return float(np.median(decisions)) if decisions else 0.0


def _firsts(rows: Iterable[Row]) -> dict[int, float]:
    """Return the start of the first evaluation of each step."""
    found: dict[int, float] = {}
    for row in rows:
        found[row["step"]] = min(row["started"], found.get(row["step"], np.inf))
    return found


def _free_since(starts: Array, ends: Array, moment: float, places: int) -> float:
    """Return the time since which an agent has had a free place, before a moment."""
    begun, ended = int(np.searchsorted(starts, moment)), int(np.searchsorted(ends, moment, side="right"))
    while ended:
        if begun and starts[begun - 1] >= ends[ended - 1]:
            begun -= 1
            continue
        ended -= 1
        if begun - ended >= places:
            return float(ends[ended])
    return -np.inf


def _messages(into: Measurements, events: Any, until: float) -> None:
    """Measure how long messages and answers took, those on their way at the end too, and count the transmissions lost."""
    sent: dict[tuple[int, int], float] = {}
    answered = 0.0
    kinds = of_kinds(events, "sent", "arrived", "late", "round", "drawn", "delivered", "lost", "missed")
    for kind, agent, step, answer, time, reason in _listed(kinds, "kind", "agent", "step", "answer", "time", "reason"):
        if kind == "sent":
            sent[agent, step] = time
            into.sent += 1
        elif kind == "lost":
            into.lost += 1
            sent.pop((agent, step), None)
            into.sent += answer is not None  # an answer has no line when it leaves
        elif kind == "missed":
            into.sent += reason == "agent_ended"
        elif kind in ("arrived", "late") and (agent, step) in sent:
            into.latencies.append(time - sent.pop((agent, step)))
            answered = time
        elif kind in ("round", "drawn"):
            answered = time
        elif kind == "delivered":
            into.sent += 1
            into.latencies.append(max(0.0, time - answered))
    into.cut["latencies"] += [until - begun for begun in sent.values() if begun < until]


def _lives(into: Measurements, events: Any, by_agent: Mapping[int, list[Row]], until: float) -> None:
    """Measure absences and crashes, and the time in which they could occur.

    In real time a spare process may be there at once; an agent is back when it evaluates again, by the rows `by_agent`.
    """
    lived = state_intervals(events, until)
    agents = np.unique(lived.agent)
    life = float(np.sum(lived.end - lived.begin))
    into.present += life - lived.total("away", agents) - lived.total("down", agents)
    into.alive += life - lived.total("down", agents)
    for one in event_intervals(events, "absent", "returned"):
        into.departures += one.begin > 0
        if one.begin > 0:
            (into.absences if one.ends else into.cut["absences"]).append(_last(one, until) - one.begin)
    backs: dict[int, float] = {}
    struck: dict[int, list[float]] = defaultdict(list)
    for agent, time in _listed(of_kinds(events, "crashed"), "agent", "time"):
        struck[agent].append(time)
    for one in event_intervals(events, "crashed", "restarted"):
        if one.begin < backs.get(one.agent, 0.0):
            continue  # its new process was gone before it had evaluated, as a spare one on the same host
        into.crashes += 1
        if not one.ends and not one.first["permanent"]:
            into.cut["downtimes"].append(max(_last(one, until) - max(struck[one.agent]), _SHORTEST))
        if one.ends:
            # A crash of an agent that is down prolongs that: each takes as long as the last one of them.
            begin = one.begin if by_agent else max(time for time in struck[one.agent] if time < one.end)
            back = min((row["started"] for row in by_agent.get(one.agent, ()) if row["started"] >= one.end), default=one.end)
            into.downtimes.append(max(back - begin, _SHORTEST))
            backs[one.agent] = back


def _last(one: EventInterval, until: float) -> float:
    """Return the end of an interval; one without an end lasts until the end of the run."""
    return one.end if one.ends else max(one.end, until)


def _lost_steps(events: Any, by_agent: Mapping[int, list[Row]]) -> Iterable[float]:
    """Yield the age of the evaluation or decision of each agent that crashed; agents that waited for an answer are left out."""
    since: dict[int, float] = {}
    before: dict[int, float] = {}
    for kind, agent, time in _listed(of_kinds(events, "started", "finished", "crashed"), "kind", "agent", "time"):
        if kind == "started":
            since[agent] = time
            continue
        begun, rows = since.pop(agent, None), by_agent.get(agent, ())
        if kind == "finished":
            continue
        was_back = agent not in before or any(before[agent] <= row["started"] < time for row in rows)
        if begun is not None and was_back:
            yield time - max([begun, *(row["finished"] for row in rows if row["finished"] <= time)])
        before[agent] = time


def _listed(table: Any, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)
