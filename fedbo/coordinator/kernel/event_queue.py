"""The event queue of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, Protocol

from fedbo.coordinator.kernel.events import (
    BACKGROUND,
    MESSAGES,
    AvailabilityChanged,
    Event,
    FaultEnded,
    FaultStarted,
    Finished,
    PlacementDue,
    StudyStarted,
)

Order = tuple[float, int]
Entry = tuple[float, Any, Any]  # time, number of its scheduling or `Order`, event
_LAST = 2**60  # above the number of any scheduling: of events that come last at their time


def order_of(event: Event, since: float) -> Order:
    """Return the place of an event among others of its time: by the time `since` which it is known, and then by its kind.

    What happens to an agent by itself has the same place whether or not other agents' are events too.
    """
    if type(event) is FaultEnded:
        return since, (event.fault << 32) + event.agent - _LAST
    assert isinstance(event, AvailabilityChanged | FaultStarted), event
    fault = event.fault + 1 if isinstance(event, FaultStarted) else 0
    return since, _LAST + (fault << 32) + event.agent


class Scheduled(Protocol):
    """Columns that hold some of the scheduled events."""

    def __len__(self) -> int: ...

    @property
    def first(self) -> tuple[float, int, int, bool] | None:
        """Return time, number and agent of the first event, and whether it is the end of a step; None without one."""

    @property
    def is_quiet(self) -> bool:
        """Check whether no message is on its way."""

    def ends_of(self, agents: Sequence[int]) -> list[float]:
        """Return the end times of agents' steps."""

    def schedule(self, time: float, number: int, event: Event) -> bool:
        """Schedule an event in the columns; return False if it does not belong there."""

    def leave_all(self) -> None:
        """Move all events to the queue."""


@dataclass(slots=True)
class EventQueue:
    """The event queue, with (time, number of its scheduling, event) of all future events, and the progress of the run.

    A run with windows has ends of steps, messages and answers in `columns`; all other events are in the `heap`. `waiting` is
    the number of those of the heap that do not happen by themselves. `orders`: events of one time have an `Order`.
    """

    heap: list[Entry] = field(default_factory=lambda: [(0.0, 0, StudyStarted())])
    scheduled: int = 0
    time: float = 0.0
    events: int = 0
    stopped: bool = False
    waiting: int = 1
    columns: Scheduled | None = None
    orders: bool = False

    def become(self, other: EventQueue) -> None:
        """Adopt the state of another queue."""
        self.heap, self.scheduled, self.time, self.orders = other.heap, other.scheduled, other.time, other.orders
        self.events, self.waiting, self.stopped = other.events, other.waiting, False

    @property
    def waits(self) -> bool:
        """Check whether an event is scheduled that does not happen by itself."""
        return self.waiting > 0 or (self.columns is not None and len(self.columns) > 0)

    @property
    def quiet(self) -> bool:
        """Check whether no message is on its way."""
        quiet = self.columns is None or self.columns.is_quiet
        return quiet and not any(type(event) in MESSAGES for _, _, event in self.heap)

    def ends(self, agents: Sequence[int]) -> list[float]:
        """Return the end times of agents' steps, as far as they are known; an interrupted agent may have an earlier end."""
        if self.columns is not None:
            return self.columns.ends_of(agents)
        known = {event.agent: time for time, _, event in self.heap if type(event) is Finished}
        return [known.get(agent, 0.0) for agent in agents]

    def push(self, time: float, event: Event, order: Order | None = None) -> None:
        """Schedule an event; at one time they happen in the order of scheduling, and placements on workers last."""
        self.scheduled += 1
        if self.columns is None or not self.columns.schedule(time, self.scheduled, event):
            is_last = type(event) is PlacementDue
            place: int | Order = self.scheduled + _LAST if is_last else self.scheduled
            if self.orders:
                since = math.inf if is_last else self.time
                place = order or (order_of(event, since) if type(event) is FaultEnded else (since, self.scheduled))
            self.waiting += type(event) not in BACKGROUND
            heappush(self.heap, (time, place, event))

    def next_time(self) -> float | None:
        """Return the time of the next event, None without one."""
        first = None if self.columns is None else self.columns.first
        times = [entry[0] for entry in (self.heap[0] if self.heap else None, first) if entry is not None]
        return float(min(times)) if times else None

    def is_due(self, now: float) -> bool:
        """Check whether another event is due now."""
        time = self.next_time()
        return time is not None and time <= now

    def pop(self) -> Entry:
        """Remove and return the next event of the heap."""
        first = heappop(self.heap)
        self.waiting -= type(first[2]) not in BACKGROUND
        return first

    def gather(self) -> None:
        """Move all events into the heap."""
        if self.columns is not None:
            self.columns.leave_all()

    def stored(self) -> EventQueue:
        """Move all events into the heap, and return the queue as it is stored."""
        self.gather()
        return replace(self, columns=None)
