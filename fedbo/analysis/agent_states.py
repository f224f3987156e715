"""The states of agents over time: intervals of evaluating, waiting, being away and being down, from the events of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fedbo.analysis.grouping import column_of, of_kinds, starts

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

STATES = ("evaluating", "waiting", "away", "down")

# Events of an agent itself; those of its messages, and partitions, may come after its end.
OWN_EVENTS = (
    *("started", "finished", "failed", "sent", "delivered", "done", "absent", "returned"),
    *("crashed", "restarted", "hung", "woke", "slowed", "recovered"),
)


@dataclass(frozen=True, slots=True)
class StateIntervals:
    """The state intervals of one run's agents, by agent and then by time: from `begin` to `end (s,)`, in `STATES[state]`.

    They cover each agent's life without gaps, from 0 to its last event. An agent that is down or away in the middle of a
    step does not evaluate meanwhile; one that hangs counts as down.
    """

    agent: Integers
    begin: Array
    end: Array
    state: Integers

    def total(self, state: str, agents: Integers) -> float:
        """Return the total time that some agents spent in a state."""
        mine = (self.state == STATES.index(state)) & np.isin(self.agent, agents)
        return float(np.sum(self.end[mine] - self.begin[mine]))

    def of(self, state: str) -> list[tuple[int, float, float]]:
        """List the intervals in a state as agent, begin, end."""
        mine = self.state == STATES.index(state)
        return list(zip(self.agent[mine].tolist(), self.begin[mine].tolist(), self.end[mine].tolist(), strict=True))


def state_intervals(events: Any, until: float | None = None) -> StateIntervals:
    """Return the states of the agents over the events of one run.

    A life ends with `done`, with a permanent crash, or otherwise at the time `until`; without one, with the agent's last event
    of its own.
    """
    happened = of_kinds(events, *OWN_EVENTS)
    agent, time, kind = (column_of(happened, name) for name in ("agent", "time", "kind"))
    is_over = np.asarray(ends_life(happened))
    order = np.argsort(agent, kind="stable")
    order = order[_alive(agent[order], is_over[order])]
    agent, time, is_over = agent[order].astype(np.int64), time[order].astype(np.float64), is_over[order]
    state = _states(agent, kind[order])
    first = starts(agent)
    last = np.append(first[1:], True) if len(first) else first
    end = np.where(last, 0.0 if until is None else until, np.roll(time, -1))
    inside = ~last if until is None else ~(last & is_over)
    begin = np.concatenate([np.zeros(int(first.sum())), time[inside]])
    who = np.concatenate([agent[first], agent[inside]])
    what = np.concatenate([np.full(int(first.sum()), STATES.index("waiting")), state[inside]])
    return _joined(who, begin, np.concatenate([time[first], end[inside]]), what)


def ends_life(events: Any) -> Any:
    """Return for each event whether it ends its agent's life: the agent is done, or has crashed for good."""
    permanent = pc.fill_null(events["permanent"], False)
    return pc.or_(pc.equal(events["kind"], "done"), pc.and_(pc.equal(events["kind"], "crashed"), permanent))


class EventInterval(NamedTuple):
    """The interval between two events of an agent: its begin and end, and the first event as a row.

    `ends` tells whether the end event was seen; otherwise the interval ends with the agent's life or the run.
    """

    agent: int
    begin: float
    end: float
    first: Mapping[str, Any]
    ends: bool


def event_intervals(events: Any, begins: str, ends: str) -> list[EventInterval]:
    """Pair the opening and closing events of one run, in the order of their ends.

    Overlapping intervals of an agent are merged. One without an end lasts until the end of the agent, or of the run.
    """
    found, since, depth = list[EventInterval](), dict[int, dict[str, Any]](), Counter[int]()
    for event in of_kinds(events, begins, ends).to_pylist():
        agent, opened = event["agent"], event["kind"] == begins
        depth[agent] = max(0, depth[agent] + (1 if opened else -1))
        if opened:
            since.setdefault(agent, event)
        elif agent in since and not depth[agent]:
            first = since.pop(agent)
            found.append(EventInterval(agent, first["time"], event["time"], first, True))
    deaths = events.filter(ends_life(events)).select(["agent", "time"]).to_pylist() if since else []
    over = {row["agent"]: row["time"] for row in reversed(deaths)}  # the first of each agent
    last = float(np.max(column_of(events, "time"))) if since else 0.0
    for agent, first in since.items():
        end = max(first["time"], over.get(agent, last))
        found.append(EventInterval(agent, first["time"], end, first, False))
    return found


def _alive(agent: Integers, over: Flags) -> Flags:
    """Return the mask of events up to the end of each agent's life."""
    first = starts(agent)
    gone = _since(over, np.zeros_like(over), first)
    return ~np.append(False, gone[:-1]) | first if len(gone) else gone


def _states(agent: Integers, kind: npt.NDArray[Any]) -> Integers:
    """Return each agent's state after each of its events."""
    first = starts(agent)
    over = np.isin(kind.astype(str), ("finished", "done", "crashed"))  # after a crash the step is begun again
    busy = _since(kind == "started", over, first)
    away = _depth(kind == "absent", kind == "returned", first) > 0
    down = _depth(kind == "crashed", kind == "restarted", first) + _depth(kind == "hung", kind == "woke", first) > 0
    chosen = np.select([down, away, busy], [STATES.index(name) for name in ("down", "away", "evaluating")], 1)
    return chosen.astype(np.int64)


def _since(begins: Flags, ends: Flags, first: Flags) -> Flags:
    """Return for each event whether the agent's latest event of the two kinds is one that begins."""
    place = np.maximum.accumulate(np.where(begins | ends | first, np.arange(len(first)), 0))
    return np.asarray(begins[place], dtype=bool)


def _depth(begins: Flags, ends: Flags, first: Flags) -> Integers:
    """Count for each event the agent's open intervals: two faults of a kind may overlap."""
    total = np.cumsum(begins.astype(np.int64) - ends.astype(np.int64))
    start = np.flatnonzero(first)
    before = np.append(0, total)[start]
    return np.asarray(total - np.repeat(before, np.diff(np.append(start, len(first)))), dtype=np.int64)


def _joined(agent: Integers, begin: Array, end: Array, state: Integers) -> StateIntervals:
    """Sort intervals, drop empty ones, and merge neighbours in the same state."""
    keep = end > begin
    agent, begin, end, state = agent[keep], begin[keep], end[keep], state[keep]
    order = np.lexsort((begin, agent))
    agent, begin, end, state = agent[order], begin[order], end[order], state[order]
    new = starts(agent, state)
    last = np.append(new[1:], True) if len(new) else new
    return StateIntervals(agent[new], begin[new], end[last], state[new])
