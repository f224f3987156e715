"""The event queue of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

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

# (time, number of its scheduling, event). Where it is compiled, a tuple of fixed length would be taken apart and made again.
Entry = tuple[Any, ...]
_LAST = 2**60  # above the number of any scheduling: of events that come last at their time
_ARRIVED = 1000  # messages that have arrived and are still in the list, at most


@dataclass(slots=True)
class EventQueue:
    """The event queue, with (time, number of its scheduling, event) of all future events, and the progress of the run.

    Messages and answers that arrive in the order of sending need no heap: they may be `under_way`, in place of the events of
    their arrival, from place `arrived` on. All other events are in the `heap`.
    """

    heap: list[Entry] = field(default_factory=lambda: [(0.0, 0, StudyStarted())])
    scheduled: int = 0
    time: float = 0.0
    events: int = 0
    stopped: bool = False
    waiting: int = 1
    under_way: list[Entry] = field(default_factory=list)
    arrived: int = 0

    def become(self, other: EventQueue) -> None:
        """Adopt the state of another queue."""
        self.heap, self.scheduled, self.time = other.heap, other.scheduled, other.time
        self.events, self.waiting, self.stopped = other.events, other.waiting, False
        self.under_way, self.arrived = other.under_way, other.arrived

    @property
    def quiet(self) -> bool:
        """Check whether no message is on its way."""
        return not self.under_way and not any(type(event) in MESSAGES for _, _, event in self.heap)

    def ends(self) -> dict[int, float]:
        """Return the end time of each agent's step; an interrupted agent may have an earlier end there too."""
        return {event.agent: time for time, _, event in self.heap if type(event) is Finished}

    def push(self, time: float, event: Event) -> None:
        """Schedule an event; at one time they happen in the order of scheduling, and placements on workers last."""
        self.scheduled += 1
        self.waiting += type(event) not in BACKGROUND
        number = self.scheduled + _LAST if type(event) is PlacementDue else self.scheduled
        heappush(self.heap, (time, number, event))

    def send(self, time: float, sent: Message | Answer) -> None:
        """Schedule the arrival of a message or answer, at a time not before that of the ones sent earlier."""
        self.scheduled += 1
        self.waiting += 1
        self.under_way.append((time, self.scheduled, sent))

    def arrives_first(self) -> bool:
        """Check whether the next event is the arrival of a message in `under_way`."""
        return bool(self.under_way) and not (self.heap and self.heap[0] < self.under_way[self.arrived])

    def next_time(self) -> float | None:
        """Return the time of the next event, None without one."""
        if self.arrives_first():
            return float(self.under_way[self.arrived][0])
        return float(self.heap[0][0]) if self.heap else None

    def is_due(self, now: float) -> bool:
        """Check whether another event is due now."""
        heap, under_way = self.heap, self.under_way
        return bool((heap and heap[0][0] <= now) or (under_way and under_way[self.arrived][0] <= now))

    def arrive(self) -> None:
        """Remove the message that arrives next."""
        self.waiting -= 1
        self.arrived += 1
        # Deleting from the front of a list is linear in its length, so arrived entries are deleted in blocks.
        if self.arrived in (len(self.under_way), _ARRIVED):
            del self.under_way[: self.arrived]
            self.arrived = 0

    def pop(self) -> Entry:
        """Remove and return the next event of the heap."""
        first = heappop(self.heap)
        self.waiting -= type(first[2]) not in BACKGROUND
        return first

    def gather(self) -> None:
        """Move all events into the heap, as the queue is stored."""
        for time, number, sent in self.under_way[self.arrived :]:
            heappush(self.heap, (time, number, arrival(sent)))
        self.under_way.clear()
        self.arrived = 0


def arrival(sent: Message | Answer) -> MessageReceived | AnswerReceived:
    """Return the event of an arrival."""
    return MessageReceived(sent) if isinstance(sent, Message) else AnswerReceived(sent)
