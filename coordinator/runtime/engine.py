"""The shell round the core in virtual time: a heap of events. That of real time is in `live`."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fedbo.actors.hosts import Hosts
from fedbo.actors.task import StepReport, StepRequest
from fedbo.coordinator.core import Core
from fedbo.coordinator.endless import require_progress
from fedbo.coordinator.events import (
    BACKGROUND,
    MESSAGES,
    Ask,
    Commit,
    DecisionMade,
    Effect,
    Event,
    EventLine,
    Finished,
    ProcessControl,
    StudyStarted,
)

Sink = Callable[[list[EventLine]], None]
_OFTEN = 1000  # events without progress between two looks at a run that stands still
BEAT = 0.4  # seconds between two looks at a run


@dataclass(slots=True)
class EventQueue:
    """The event queue: a heap of (time, number of its scheduling, event), and how far the run is."""

    heap: list[tuple[float, int, Event]] = field(default_factory=lambda: [(0.0, 0, StudyStarted())])
    scheduled: int = 0
    time: float = 0.0
    events: int = 0
    stopped: bool = False
    waiting: int = 1

    def become(self, other: EventQueue) -> None:
        """Go on from where another one stood."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))
        self.stopped = False

    @property
    def quiet(self) -> bool:
        """Say whether no message is under way."""
        return not any(type(event) in MESSAGES for _, _, event in self.heap)

    def push(self, time: float, event: Event) -> None:
        """Put an event on the heap; those at one time happen in the order in which they were scheduled."""
        self.scheduled += 1
        self.waiting += type(event) not in BACKGROUND
        heapq.heappush(self.heap, (time, self.scheduled, event))

    def pop(self) -> tuple[int, Event]:
        """Take the next event, with its number."""
        _, number, event = heapq.heappop(self.heap)
        self.waiting -= type(event) not in BACKGROUND
        return number, event


class RecordedEvent(NamedTuple):
    """One event of a run in real time: when it happened, and which one it was.

    `number` is that of its scheduling, or FINISHED or DIED for what an agent's process did; those have `agent` and `lease`.
    """

    time: float
    number: int
    agent: int = -1
    lease: int = -1


FINISHED, DIED = -1, -2


@dataclass(frozen=True, slots=True)
class RunHooks:
    """The hooks of a run: `sink` takes the records, `stop` says whether to end now, `tick` is called twice a second or so.

    `keep` is called after every event, with their number, and may keep a snapshot of the run as it stands then. `record` is
    told in real time what is about to happen and when, so that the run can go on from there and be replayed.
    `enough` says there whether the run shall end now, and counts as ended.
    """

    sink: Sink
    stop: Callable[[], bool] = lambda: False
    tick: Callable[[], None] = lambda: None
    keep: Callable[[int], None] = lambda events: None
    record: Callable[[RecordedEvent, StepReport | None], None] = lambda moment, report: None
    enough: Callable[[], bool] = lambda: False


def run_virtual(core: Core, hosts: Hosts, watch: RunHooks, agenda: EventQueue, until: float = float("inf")) -> None:
    """Run in virtual time: the clock moves only when an event is taken from the heap, and never reads the real one.

    The real computation of a step runs while the heap moves on; it is waited for only when its completion is due. Events
    after `until` do not happen. A run that is stopped can go on later from its agenda and the state of its core.
    """
    _go_on(core, hosts)
    heap, beat, clock, current, handle = agenda.heap, time.monotonic(), time.monotonic, core.current, core.handle
    while heap and heap[0][0] <= until and (agenda.waiting or core.stalled()) and not (core.over and agenda.quiet):
        now, _, event = heap[0]
        if core.state.idle >= _OFTEN and core.state.idle % _OFTEN == 0:  # no step ends, where else one would look
            if watch.stop():
                agenda.stopped = True
                break
            if clock() - beat > BEAT:
                beat = clock()
                look(core, watch)
            require_progress(core, now, until)
        if type(event) is Finished:
            if watch.stop():
                agenda.stopped = True
                break
            if not current(event):  # its agent was interrupted, and this end with it
                agenda.pop()
                continue
            if event.report is None:  # an error here leaves the event where it is
                event = Finished(event.agent, event.lease, hosts.result(event.agent))
            if clock() - beat > BEAT:
                beat = clock()
                look(core, watch)
        agenda.pop()
        agenda.time = now
        for effect in handle(event, now):
            if type(effect) is tuple:  # a named one is something else
                agenda.push(now + effect[0], effect[1])  # type: ignore[misc, operator, arg-type]
            else:
                carry_out(effect, now, hosts, agenda)
        agenda.events += 1
        if not heap or heap[0][0] > now:
            hosts.flush()
        watch.keep(agenda.events)
    look(core, watch)
    if not agenda.stopped and (not heap or heap[0][0] <= until):
        core.close()


def _go_on(core: Core, hosts: Hosts) -> None:
    """Let agents have done what they had done, and do what they were at."""
    orders = core.orders()
    for order in orders:
        hosts.submit(order)
    hosts.flush()
    for order in orders:
        if core.state.steps[order.agent].report is not None:  # only its retries still take their time
            hosts.result(order.agent)


def carry_out(effect: Effect, now: float, hosts: Hosts, agenda: EventQueue) -> None:
    """Carry one effect out."""
    if isinstance(effect, StepRequest):
        hosts.submit(effect)
    elif isinstance(effect, Commit):
        hosts.commit(effect.agent, effect.times)
    elif isinstance(effect, Ask):
        choice = hosts.decide(effect.order)
        agenda.push(now, DecisionMade(effect.order.agent, effect.order.lease, choice))
    else:
        assert not isinstance(effect, ProcessControl), "nothing is done to a process in virtual time"
        agenda.push(now + effect[0], effect[1])


class ReplayError(RuntimeError):
    """A run in real time could not be replayed."""


def look(core: Core, watch: RunHooks) -> None:
    """Hand the log over, and let whoever looks on know."""
    watch.sink(core.journal)
    core.journal = []
    watch.tick()
