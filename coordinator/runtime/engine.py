"""The event loop of virtual time: takes the next event from the queue, hands it to the core, and applies the effects.

That of real time is in `wall_clock`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from fedbo.actors.hosts import Hosts
from fedbo.actors.task import StepReport, StepRequest
from fedbo.coordinator.core import Core
from fedbo.coordinator.endless import require_progress
from fedbo.coordinator.events import (
    BACKGROUND,
    MESSAGES,
    After,
    Ask,
    Commit,
    DecisionMade,
    Effect,
    Event,
    EventLine,
    Finished,
    StudyStarted,
    make,
)

Sink = Callable[[list[EventLine]], None]
_IDLE = 1000  # events without progress between two checks of a run that stands still
_COLLECT = 10_000  # objects made before Python looks for cycles: what is made for an event is in none
PROGRESS_INTERVAL = 0.4  # seconds between two reports of progress
PROGRESS_REST = 50.0  # a report takes at most one part in so many of a run's time, since it asks all agents


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
        self.heap, self.scheduled, self.time = other.heap, other.scheduled, other.time
        self.events, self.waiting, self.stopped = other.events, other.waiting, False

    @property
    def quiet(self) -> bool:
        """Say whether no message is under way."""
        return not any(type(event) in MESSAGES for _, _, event in self.heap)

    def ends(self) -> dict[int, float]:
        """Give when each agent's step ends; one that was interrupted may have an earlier end there too."""
        return {event.agent: time for time, _, event in self.heap if type(event) is Finished}

    def push(self, time: float, event: Event) -> None:
        """Put an event on the heap; those at one time happen in the order in which they were scheduled."""
        self.scheduled += 1
        self.waiting += type(event) not in BACKGROUND
        heappush(self.heap, (time, self.scheduled, event))

    def pop(self) -> tuple[int, Event]:
        """Take the next event, with its number."""
        _, number, event = heappop(self.heap)
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
    `enough` says there whether the run shall end now, and counts as ended. `die` ends this very process there, where the fault
    plan lets the coordinator die.
    """

    sink: Sink
    stop: Callable[[], bool] = lambda: False
    tick: Callable[[], None] = lambda: None
    keep: Callable[[int], None] = lambda events: None
    record: Callable[[RecordedEvent, StepReport | None], None] = lambda recorded, report: None
    enough: Callable[[], bool] = lambda: False
    die: Callable[[], None] = lambda: None


def run_virtual(core: Core, hosts: Hosts, hooks: RunHooks, queue: EventQueue, until: float = float("inf")) -> None:
    """Run in virtual time: the clock moves only when an event is taken from the heap, and never reads the real one.

    The real computation of a step runs while the heap moves on; it is waited for only when its completion is due. Events
    after `until` do not happen. A run that is stopped can go on later from its queue and the state of its core.
    """
    _resume_steps(core, hosts)
    thresholds = gc.get_threshold()
    gc.set_threshold(max(_COLLECT, thresholds[0]) if thresholds[0] else 0, *thresholds[1:])  # 0 is never
    try:
        _events(core, hosts, hooks, queue, until)
    finally:
        gc.set_threshold(*thresholds)
    report_progress(core, hooks)
    if not queue.stopped and (not queue.heap or queue.heap[0][0] <= until):
        core.close()


def _events(core: Core, hosts: Hosts, hooks: RunHooks, queue: EventQueue, until: float) -> None:
    """Let one event after the other happen."""
    heap, clock, pop = queue.heap, time.monotonic, heappop
    progress, active, due, flushed = core.state.progress, core.state.rounds.active, clock() + PROGRESS_INTERVAL, True
    while heap and (queue.waiting or core.will_recover()):
        now, _, event = heap[0]
        if now > until or (not active and core.is_over and queue.quiet):
            break
        idle = progress.events - progress.last_event
        stands_still = idle >= _IDLE and idle % _IDLE == 0  # no step ends then, after which it is looked whether to stop
        if stands_still or type(event) is Finished:
            if hooks.stop():
                queue.stopped = True
                break
            if (begun := clock()) > due:
                report_progress(core, hooks)
                due = (ended := clock()) + max(PROGRESS_INTERVAL, PROGRESS_REST * (ended - begun))
        if stands_still:
            require_progress(core, now, until)
        if type(event) is Finished:
            if not core.is_current(event):  # its agent was interrupted, and this end with it
                queue.pop()
                continue
            if event.report is None:  # an error here leaves the event where it is
                event, flushed = make(Finished, (event.agent, event.lease, hosts.result(event.agent))), False
        pop(heap)
        queue.time, queue.waiting = now, queue.waiting - (type(event) not in BACKGROUND)
        if apply_effects(core.handle(event, now), now, hosts, queue):
            flushed = False
        queue.events += 1
        if not flushed and (not heap or heap[0][0] > now):
            hosts.flush(queue.ends)
            flushed = True
        hooks.keep(queue.events)


def _resume_steps(core: Core, hosts: Hosts) -> None:
    """Give agents again what they were working on when the run was interrupted."""
    orders = core.orders()
    for order in orders:
        hosts.submit(order)
    hosts.flush()
    for order in orders:
        if (
            step := core.state.agents[order.agent].current
        ) is not None and step.report is not None:  # only its retries still take their time
            hosts.result(order.agent)


def apply_effects(effects: list[Effect], now: float, hosts: Hosts, queue: EventQueue) -> bool:
    """Apply effects; say whether hosts have been told anything."""
    told = False
    for effect in effects:
        if type(effect) is After:
            delay, event = effect
            queue.push(now + delay, event)
            continue
        told = True
        if type(effect) is StepRequest:
            hosts.submit(effect)
        elif type(effect) is Commit:
            number, times = effect
            hosts.commit(number, times)
        else:
            assert isinstance(effect, Ask), "nothing is done to a process in virtual time"
            queue.push(now, DecisionMade(effect.order.agent, effect.order.lease, hosts.decide(effect.order)))
    return told


def report_progress(core: Core, hooks: RunHooks) -> None:
    """Hand over the lines of the event log, and say that the run goes on."""
    core.flush_events(hooks.sink)
    hooks.tick()
