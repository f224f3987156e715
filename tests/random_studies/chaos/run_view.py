"""One run as a history: which messages were in flight, who was working, away, crashed or cut off at each event."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.random_studies.invariants import PAIRS
from tests.random_studies.run_tables import Row, RunTables


class EventSpan(NamedTuple):
    """What lasted from one event to another.

    agent: whom it concerns.
    begin: number of the first event.
    end: number of the last event; infinite where it lasted to the end of the run.
    step: of the agent; None of the coordinator.
    """

    agent: int
    begin: int
    end: float
    step: int | None

    def holds(self, event: Row) -> bool:
        """Return whether it lasts at an event."""
        return self.begin < int(event["sequence"]) < self.end

    def meets(self, other: EventSpan) -> bool:
        """Return whether both last at some moment."""
        return max(self.begin, other.begin) < min(self.end, other.end)


@dataclass(frozen=True)
class RunView:
    """The events of one run, with what lasts between them by name."""

    run: RunTables
    spans: dict[str, list[EventSpan]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for first, last in PAIRS.items():
            self.spans[first] = _paired(self.run.of(first, last), first)
        self.spans["working"] = _paired(self.run.of("started", "finished"), "started")
        self.spans["in flight"] = _flights(self.run)
        self.spans["evaluating"] = _jobs(self.run)

    def of(self, *kinds: str) -> list[Row]:
        """Return the events of some kinds, in their order."""
        return self.run.of(*kinds)

    def during(self, event: Row, what: str, own: bool = True) -> bool:
        """Return whether something lasts at an event: to the event's agent, or with `own` False to anyone."""
        return any(span.holds(event) and (not own or span.agent == event["agent"]) for span in self.spans[what])

    def any_during(self, kinds: Sequence[str], what: str, own: bool = True) -> bool:
        """Return whether something lasts at an event of one of these kinds."""
        return any(self.during(event, what, own) for event in self.of(*kinds))

    def at_once(self, what: str, count: int) -> bool:
        """Return whether something lasts for as many agents at once."""
        spans = self.spans[what]
        return any(len({other.agent for other in spans if other.meets(one) or other is one}) >= count for one in spans)

    def meet(self, first: str, second: str) -> bool:
        """Return whether two things last at once for different agents, or for an agent and the coordinator."""
        return any(one.meets(other) and one.agent != other.agent for one in self.spans[first] for other in self.spans[second])


def _paired(events: Sequence[Row], first: str) -> list[EventSpan]:
    """Return what lasts from each first event to the agent's next last one."""
    begun, found = dict[int, Row](), list[EventSpan]()
    for event in events:
        agent = event["agent"]
        if event["kind"] == first:
            begun.setdefault(agent, event)
        elif agent in begun:
            start = begun.pop(agent)
            found.append(EventSpan(agent, start["sequence"], event["sequence"], start["step"]))
    return found + [EventSpan(agent, event["sequence"], math.inf, event["step"]) for agent, event in begun.items()]


def _flights(run: RunTables) -> list[EventSpan]:
    """Return each message from its first transmission to its fate."""
    sent, fate = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    for event in run.of("sent", "arrived", "late", "rejected", "lost"):
        key = (event["agent"], event["step"])
        if event["kind"] == "sent":
            sent.setdefault(key, event["sequence"])
        elif key in sent and event["answer"] is None:
            fate.setdefault(key, event["sequence"])
    return [EventSpan(agent, begin, fate.get((agent, step), math.inf), step) for (agent, step), begin in sent.items()]


def _jobs(run: RunTables) -> list[EventSpan]:
    """Return each evaluation on a worker from its placement to its end there."""
    begun, found = dict[tuple[int, ...], int](), list[EventSpan]()
    for event in run.of("placed", "released", "preempted"):
        key = (event["agent"], event["step"], event["query"], event["copy"] is True)
        if event["kind"] == "placed":
            begun[key] = event["sequence"]
        elif key in begun:
            found.append(EventSpan(key[0], begun.pop(key), event["sequence"], key[1]))
    return found


def transmissions(run: RunTables) -> dict[tuple[int, int], int]:
    """Return how often each message was sent."""
    counts = defaultdict[tuple[int, int], int](int)
    for event in run.of("sent"):
        counts[event["agent"], event["step"]] += 1
    return counts
