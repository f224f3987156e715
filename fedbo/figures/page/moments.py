"""One run at every moment: what each agent does, the messages on their way, the ends of rounds, and how old news is."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fedbo.analysis.agent_states import OWN_EVENTS, STATES, ends_life, event_intervals, state_intervals
from fedbo.analysis.disruptions import cause_of
from fedbo.analysis.grouping import grouped, of_kinds
from fedbo.analysis.traces import IncumbentTrace

Row = Mapping[str, Any]

DOING = ("evaluating", "waiting", "away", "crashed", "hanging", "done", "lost")
FATES = ("arrived", "late", "refused", "lost", "given up", "not arrived")
_ENDS = {"arrived": "arrived", "delivered": "arrived", "late": "late", "rejected": "refused", "missed": "lost", "lost": "lost"}
_COLUMNS = ("time", "kind", "agent", "step", "round", "answer", "direction", "reason", "fault", "again")
# What may end a round: the others of an instant follow from its end.
_CLOSING = frozenset({"arrived", "late", "rejected", "finished", "done", "crashed", "absent"})

_OWN = frozenset(OWN_EVENTS) - {"sent", "delivered", "failed"}

# What a line of the log says of its agent; # is its step, round or answer.
SENTENCES = {
    "started": "starts step #",
    "finished": "finishes step #",
    "failed": "has a failed evaluation in step #",
    "done": "is done",
    "absent": "leaves",
    "returned": "returns",
    "crashed": "crashes in step #",
    "restarted": "restarts",
    "hung": "hangs",
    "woke": "goes on after hanging",
    "slowed": "becomes slower",
    "recovered": "has its speed again",
    "cut": "is disconnected",
    "joined": "is connected again",
    "falsified": "falsifies its message of step #",
    "sent": "sends its message of step #",
    "lost": "has its message of step # lost",
    "lost down": "has answer # lost on its way",
    "arrived": "reaches the coordinator with its message of step #",
    "late": "is late with its message of step #, which is dropped",
    "rejected": "has its message of step # refused",
    "discarded": "has its report of step # discarded",
    "delivered": "receives answer #",
    "missed": "never receives answer #",
    "round": "closes round #",
    "down": "goes down",
    "up": "is back",
    "unmasked": "unmasks the sum of round #",
    "aborted": "cannot unmask the sum of round #",
}


class Activity(NamedTuple):
    """The begin of an activity of an agent, one of `DOING`, and the step at which it works."""

    time: float
    doing: str
    step: int | None


class LogLine(NamedTuple):
    """A line of the log: its key in `SENTENCES`, its agent (-2: the coordinator), its number, and its reason or ""."""

    time: float
    kind: str
    agent: int
    number: int | None
    why: str


class MessageFate(NamedTuple):
    """A message of an agent's step on its way to the coordinator (`up`), or an answer on its way to the agent.

    It ends with one of `FATES`; `end` is None where the log tells of no end.
    """

    agent: int
    up: bool
    number: int
    begin: float
    end: float | None
    fate: str
    why: str


class RoundEnd(NamedTuple):
    """The end of a round: the agent and the kind of the event that closed it, None and "" where none did, as at a deadline.

    `before` is the arrival before the last one in this round, None with fewer than two.
    """

    number: int
    time: float
    agent: int | None
    kind: str
    before: float | None


class Improvement(NamedTuple):
    """A new best value of an agent, in native units, and its step."""

    time: float
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class RunMoments:
    """One run over its time.

    - `agents`: their numbers; `end`: the time of the last event.
    - `lives`: by agent, its activities in the order of time.
    - `log`, `transmissions`, `rounds`: in the order of time, transmissions by their begin.
    - `ticks`: the times at which new information reached the coordinator: ends of rounds and buffers, or else arrivals.
    - `known`: by agent, times at which an answer reached it, and the number of ticks that this answer covers.
    - `bests`: by agent, its improvements.
    """

    agents: Sequence[int]
    end: float
    lives: Mapping[int, Sequence[Activity]]
    log: Sequence[LogLine]
    transmissions: Sequence[MessageFate]
    rounds: Sequence[RoundEnd]
    ticks: Sequence[float]
    known: Mapping[int, Sequence[tuple[float, int]]]
    bests: Mapping[int, Sequence[Improvement]]

    def withheld(self) -> RunMoments:
        """Return the same without values of single agents, and without messages: who sends tells who was sampled."""
        return replace(
            self,
            log=[line for line in self.log if line.kind in _OWN or line.agent < 0],
            transmissions=(),
            rounds=[one._replace(agent=None, kind="withheld", before=None) for one in self.rounds],
            ticks=[one.time for one in self.rounds],
            known={},
            bests={},
        )


def moments_of(events: Any, traces: Sequence[IncumbentTrace], metric: Any, faults: Sequence[str] = ()) -> RunMoments:
    """Return one run over its time, from its events and the traces of its agents.

    `faults` are the names of the planned faults, which name the causes of losses. The log does not say when an answer leaves:
    with rounds it is the end of its round, where agents take turns the draw, otherwise the arrival of the agent's newest
    message before.
    """
    rows = events.select(list(_COLUMNS)).to_pylist()
    rounds = _rounds(rows)
    sent = _transmissions(rows, rounds, faults)
    lives = _lives(events)
    ticks = [one.time for one in rounds] or [row["time"] for row in rows if row["kind"] == "arrived"]
    return RunMoments(
        agents=sorted(lives),
        end=max((row["time"] for row in rows), default=0.0),
        lives=lives,
        log=[line for row in rows if (line := _line(row, faults)) is not None],
        transmissions=sent,
        rounds=rounds,
        ticks=ticks,
        known=_known(sent, ticks, bool(rounds)),
        bests={trace.agent: _improvements(trace, metric) for trace in traces},
    )


def _lives(events: Any) -> dict[int, list[Activity]]:
    """List what each agent does, from 0 to the end of its life and what comes then."""
    started, crashed = defaultdict[int, list[tuple[float, int]]](list), defaultdict[int, list[tuple[float, float]]](list)
    for row in of_kinds(events, "started").select(["agent", "time", "step"]).to_pylist():
        started[row["agent"]].append((row["time"], row["step"]))
    for one in event_intervals(events, "crashed", "restarted"):
        crashed[one.agent].append((one.begin, one.end))
    found = defaultdict[int, list[Activity]](list)
    lived = state_intervals(_continued(events))
    spans = (column.tolist() for column in (lived.agent, lived.begin, lived.end, lived.state))
    for agent, begin, end, state in zip(*spans, strict=True):
        doing = STATES[state]
        if doing == "down":
            doing = "crashed" if any(low <= begin < high for low, high in crashed[agent]) else "hanging"
        elif doing == "evaluating":  # one step after the other, perhaps without a pause
            place = max(0, bisect_right(started[agent], begin, key=lambda one: one[0]) - 1)
            steps = {step: max(begin, time) for time, step in reversed(started[agent][place:]) if time < end}
            found[agent] += sorted(Activity(time, doing, step) for step, time in steps.items())
            continue
        found[agent].append(Activity(begin, doing, None))
    for row in events.filter(ends_life(events)).select(["agent", "time", "kind"]).to_pylist():
        last = found[row["agent"]]
        if not last or last[-1].doing not in ("done", "lost"):
            last.append(Activity(row["time"], "done" if row["kind"] == "done" else "lost", None))
    return dict(found)


def _continued(events: Any) -> Any:
    """Return the events with one more of every agent after the last, which changes no state: in a run that has not ended, too,
    an agent then has a state after its last event."""
    known = events.select(["agent", "time", "kind", "permanent"])
    agents = [agent for agent in pc.unique(known["agent"]).to_pylist() if agent >= 0]
    after = [{"agent": agent, "time": math.inf, "kind": "recovered", "permanent": None} for agent in agents]
    return pa.concat_tables([known, pa.Table.from_pylist(after, schema=known.schema)])


def _rounds(rows: Sequence[Row]) -> list[RoundEnd]:
    """List the ends of rounds, each with the event that closed it: the last one of an agent at the same time."""
    found, arrived = list[RoundEnd](), list[float]()
    last: Row | None = None
    for row in rows:
        if row["kind"] == "round":
            before = arrived[-2] if len(arrived) > 1 else None
            closed = last is not None and last["time"] == row["time"]
            agent, kind = (last["agent"], last["kind"]) if last is not None and closed else (None, "")
            found.append(RoundEnd(row["round"], row["time"], agent, kind, before))
            last, arrived = None, []
        elif row["kind"] in _CLOSING:
            last = row
            if row["kind"] == "arrived":
                arrived.append(row["time"])
    return found


def _transmissions(rows: Sequence[Row], rounds: Sequence[RoundEnd], faults: Sequence[str]) -> list[MessageFate]:
    """Pair the sending of messages and answers with their ends."""
    closed, own = {one.number: one.time for one in rounds}, dict[int, float]()
    open_, found = defaultdict[tuple[int, bool, int], list[float]](list), list[MessageFate]()
    for row in rows:
        kind, agent, time = row["kind"], row["agent"], row["time"]
        if kind == "sent":
            open_[agent, True, row["step"]].append(time)
        elif kind == "drawn":
            open_[agent, False, row["answer"]].append(time)
        elif kind in _ENDS:
            up, why = row["answer"] is None, _why(row, faults)
            number = row["step"] if up else row["answer"]
            if up and kind != "lost":
                own[agent] = time
            begun = open_[agent, up, number]
            if up and not begun:
                continue  # a copy, or a message in another's name
            # One that is lost as it is sent was not on its way; otherwise the first that was sent comes first.
            begin = (
                begun.pop(-1 if kind == "lost" and begun[-1] == time else 0) if begun else closed.get(number, own.get(agent))
            )
            if begin is None or (not up and kind == "rejected"):
                continue
            fate = "given up" if why == "given up" else _ENDS[kind]
            found.append(MessageFate(agent, up, number, begin=begin, end=time, fate=fate, why=why))
            if not up and kind == "lost":
                begun.append(time)  # it is sent again, of which there is no line
    found += [
        MessageFate(agent, up, number, begin=begin, end=None, fate="not arrived", why="")
        for (agent, up, number), begun in open_.items()
        for begin in begun
        if up
    ]
    return sorted(found, key=lambda one: (one.begin, one.agent, one.number))


def _known(sent: Sequence[MessageFate], ticks: Sequence[float], in_rounds: bool) -> dict[int, list[tuple[float, int]]]:
    """List by agent the answers that reached it: when, and how many ticks each covers."""
    answers = [(one.agent, one.end, one.number + 1 if in_rounds else bisect_right(ticks, one.begin))
               for one in sent if not one.up and one.fate == "arrived" and one.end is not None]  # fmt: skip
    by_agent = grouped(sorted(answers, key=lambda one: one[1]), lambda one: one[0])
    found = dict[int, list[tuple[float, int]]]()
    for agent, own in by_agent.items():
        newest = 0
        for _, time, count in own:
            newest = max(newest, count)
            found.setdefault(agent, []).append((time, newest))
    return found


def _improvements(trace: IncumbentTrace, metric: Any) -> list[Improvement]:
    """List the points at which the incumbent of an agent changed."""
    found, before = list[Improvement](), -1
    for time, step, best, row in zip(
        *(getattr(trace, name).tolist() for name in ("finished", "step", "best", "row")), strict=True
    ):
        if row >= 0 and row != before:
            found.append(Improvement(time, step, float(metric.native(best))))
            before = row
    return found


def _line(row: Row, faults: Sequence[str]) -> LogLine | None:
    """Return an event as a line of the log, None for kinds without a sentence."""
    kind, number = row["kind"], row["step"]
    if kind in ("lost", "rejected") and row["answer"] is not None:
        kind, number = "lost down" if kind == "lost" else "", row["answer"]
    elif kind in ("delivered", "missed"):
        number = row["answer"]
    elif row["agent"] < 0:
        number = row["round"]
    if kind not in SENTENCES:
        return None
    return LogLine(row["time"], kind, row["agent"], number, _why(row, faults))


def _why(row: Row, faults: Sequence[str]) -> str:
    """Return the reason of an event in words, "" without one."""
    if row["kind"] == "lost":
        return cause_of(row["reason"], row["fault"], faults)
    return "" if row["reason"] is None else str(row["reason"]).replace("_", " ")
