"""The event queue of a run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from heapq import heappop, heappush
from typing import Any, Protocol

from fedbo.coordinator.events import (
    BACKGROUND,
    MESSAGES,
    Answer,
    AnswerReceived,
    Event,
    Finished,
    Message,
    MessageReceived,
    PlacementDue,
    StudyStarted,
)

Entry = tuple[float, int, Any]  # time, number of its scheduling, event
_LAST = 2**60  # above the number of any scheduling: of events that come last at their time


class Scheduled(Protocol):
    """Columns that hold some of the scheduled events."""

    @property
    def first_end(self) -> tuple[float, int] | None:
        """Return the time and number of the first end of a step in the columns, None without one."""

    def ends(self) -> dict[int, float]:
        """Return the end time of each agent's step in the columns."""

    def schedule(self, time: float, number: int, event: Event) -> bool:
        """Schedule an event in the columns; return False if it does not belong there."""

    def leave_all(self) -> None:
        """Move all events to the queue."""


@dataclass(slots=True)
class EventQueue:
    """The event queue, with (time, number of its scheduling, event) of all future events, and the progress of the run.

    A run with `windows` has ends of steps there. Its messages and answers arrive in the order of sending, and are `under_way`,
    in place of the events of their arrival, from place `arrived` on. All other events are in the `heap`.
    """

    heap: list[Entry] = field(default_factory=lambda: [(0.0, 0, StudyStarted())])
    scheduled: int = 0
    time: float = 0.0
    events: int = 0
    stopped: bool = False
    waiting: int = 1
    under_way: list[Entry] = field(default_factory=list)
    arrived: int = 0
    windows: Scheduled | None = None

    def become(self, other: EventQueue) -> None:
        """Adopt the state of another queue."""
        self.heap, self.scheduled, self.time = other.heap, other.scheduled, other.time
        self.events, self.waiting, self.stopped = other.events, other.waiting, False
        self.under_way, self.arrived = other.under_way, other.arrived

    @property
    def quiet(self) -> bool:
        """Check whether no message is on its way."""
        return self.arrived == len(self.under_way) and not any(type(event) in MESSAGES for _, _, event in self.heap)

    def ends(self) -> dict[int, float]:
        """Return the end time of each agent's step; an interrupted agent may have an earlier end there too."""
        others = {event.agent: time for time, _, event in self.heap if type(event) is Finished}
        return others if self.windows is None else others | self.windows.ends()

    def push(self, time: float, event: Event) -> None:
        """Schedule an event; at one time they happen in the order of scheduling, and placements on workers last."""
        self.scheduled += 1
        self.waiting += type(event) not in BACKGROUND
        if self.windows is None or not self.windows.schedule(time, self.scheduled, event):
            number = self.scheduled + _LAST if type(event) is PlacementDue else self.scheduled
            heappush(self.heap, (time, number, event))

    @property
    def first_arrival(self) -> Entry | None:
        """Return the entry of the message or answer that arrives next, None without one."""
        return self.under_way[self.arrived] if self.arrived < len(self.under_way) else None

    def arrives_first(self) -> bool:
        """Check whether the next event is the arrival of a message in `under_way`, where no end of a step is before it."""
        first = self.first_arrival
        return first is not None and not (self.heap and self.heap[0] < first)

    def next_time(self) -> float | None:
        """Return the time of the next event, None without one."""
        end = None if self.windows is None else self.windows.first_end
        times = [entry[0] for entry in (self.heap[0] if self.heap else None, self.first_arrival, end) if entry is not None]
        return float(min(times)) if times else None

    def is_due(self, now: float) -> bool:
        """Check whether another event is due now."""
        time = self.next_time()
        return time is not None and time <= now

    def arrive(self) -> None:
        """Remove the message that arrives next."""
        self.waiting -= 1
        self.arrived += 1

    def pop(self) -> Entry:
        """Remove and return the next event of the heap."""
        first = heappop(self.heap)
        self.waiting -= type(first[2]) not in BACKGROUND
        return first

    def gather(self) -> None:
        """Move all events into the heap."""
        if self.windows is not None:
            self.windows.leave_all()
        for time, number, sent in self.under_way[self.arrived :]:
            heappush(self.heap, (time, number, arrival(sent)))
        self.under_way.clear()
        self.arrived = 0

    def stored(self) -> EventQueue:
        """Move all events into the heap, and return the queue as it is stored."""
        self.gather()
        return replace(self, windows=None)

    @classmethod
    def earlier_fields(cls) -> tuple[str, ...]:
        """List its fields in snapshots of earlier versions."""
        return tuple(one.name for one in fields(cls) if one.name != "windows")

    @classmethod
    def of_earlier(cls, values: dict[str, Any]) -> EventQueue:
        """Make a queue of the fields of earlier versions."""
        return cls(**values)


def arrival(sent: Message | Answer) -> MessageReceived | AnswerReceived:
    """Return the event of an arrival."""
    return MessageReceived(sent) if isinstance(sent, Message) else AnswerReceived(sent)
