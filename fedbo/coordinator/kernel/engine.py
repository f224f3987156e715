"""The event loop of virtual time: takes the next event from the queue, hands it to the core, and applies the effects.

That of real time is in `runtime/wall_clock`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fedbo.actors.hosts import Hosts, InlineHosts
from fedbo.actors.task import StepReport, StepRequest
from fedbo.coordinator.endless import require_end, require_progress
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import After, Ask, Commit, DecisionMade, Effect, Event, Finished
from fedbo.settings.rooms import optional

Sink = Callable[[list[Any]], None]
_IDLE = 1000  # events without progress between two checks of a run that stands still
# Objects made before Python looks for cycles: what is made for an event is in none, but what an evaluation makes may be, where
# agents are in this process. It rarely looks through all objects, of which agents are most.
_COLLECT, _COLLECT_APART, _WHOLE = 10_000, 1_000_000, 100
PROGRESS_INTERVAL = 0.4  # seconds between two reports of progress
PROGRESS_REST = 50.0  # a report takes at most one part in so many of a run's time, since it asks all agents


class RecordedEvent(NamedTuple):
    """One event of a run in real time: when it happened, and which one it was.

    `number` is that of its scheduling, or FINISHED or DIED for events of an agent's process, LEFT or RETURNED for those of its
    site; those have `agent` and `lease`. EXTENDED marks the place where the run had ended and was extended.
    """

    time: float
    number: int
    agent: int = -1
    lease: int = -1


FINISHED, DIED, EXTENDED, LEFT, RETURNED = -1, -2, -3, -4, -5


@dataclass(frozen=True, slots=True)
class RunHooks:
    """The hooks of a run.

    - `sink` receives the records.
    - `stop` returns whether to end now.
    - `tick` is called about twice a second.
    - `keep`, if any, is called with the number of events, and may save a snapshot of the run at that point. It is called after
      every multiple of `every` events, and now and then otherwise; 0 for the latter alone.
    - `in_columns` says that `sink` also receives lines as columns.
    - `record` receives each event in real time before it happens, so that the run can be resumed and replayed.
    - `enough` returns, in real time, whether to end the run now as a complete one.
    - `die` ends this very process in real time, where the fault plan kills the coordinator.
    """

    sink: Sink
    stop: Callable[[], bool] = lambda: False
    tick: Callable[[], None] = lambda: None
    keep: Callable[[int], None] | None = None
    every: int = 1
    in_columns: bool = False
    record: Callable[[RecordedEvent, StepReport | None], None] = lambda recorded, report: None
    enough: Callable[[], bool] = lambda: False
    die: Callable[[], None] = lambda: None


class EventWindows(Protocol):
    """What processes many independent events together, if a room has it, of at most `most` events each."""

    most: int

    def take(self, until: float, most: int) -> int:
        """Process some of the next events and return their number; 0 where the next one is for the core."""

    def result(self, agent: int) -> StepReport:
        """Wait for the report of an agent's last request, for the core."""

    def readmit(self, event: Event) -> None:
        """Note that the core has processed an event."""


def run_virtual(core: Core, hosts: Hosts, hooks: RunHooks, queue: EventQueue, until: float = float("inf")) -> None:
    """Run in virtual time: the clock advances only when an event is taken from the heap, and never reads the real one.

    The real computation of a step runs while the heap advances; the loop waits for it only when its completion is due. Events
    after `until` do not happen. A stopped run can be resumed later from its queue and the state of its core.
    """
    _resume_steps(core, hosts)
    thresholds = gc.get_threshold()
    if thresholds[0]:  # 0 is never
        least = _COLLECT if isinstance(hosts, InlineHosts) else _COLLECT_APART
        gc.set_threshold(max(least, thresholds[0]), thresholds[1], max(_WHOLE, thresholds[2]))
    try:
        _events(core, hosts, hooks, queue, until)
    finally:
        gc.set_threshold(*thresholds)
        queue.gather()
    report_progress(core, hooks)
    due = queue.next_time()
    if not queue.stopped and not core.state.progress.is_enough and (due is None or due <= until):
        require_end(core)


def _events(core: Core, hosts: Hosts, hooks: RunHooks, queue: EventQueue, until: float) -> None:
    """Process windows of events, or one event after the other."""
    queue.orders = core.rules.orders
    heap, pop, ends, keep = queue.heap, queue.pop, queue.ends, hooks.keep
    progress, active = core.state.progress, core.state.rounds.active
    windows_of = optional("windows")
    windows: EventWindows | None = None if windows_of is None else windows_of(core, hosts, queue)
    result = hosts.result if windows is None else windows.result
    watch, flushed = _Watch(core, hooks, until), True
    while queue.waits or (heap and core.will_recover()):
        if windows is not None:
            if watch.stops(queue.time, True):
                queue.stopped = True
                break
            most = hooks.every - queue.events % hooks.every if keep is not None and hooks.every else windows.most
            if windows.take(until, most):
                hosts.flush(ends)
                flushed = True
                if keep is not None:
                    keep(queue.events)
                continue
        now, core.order, event = heap[0]
        if now > until or (not active and core.is_over and queue.quiet):
            break
        ended = event if type(event) is Finished else None
        if (ended or progress.events - progress.last_event >= _IDLE) and watch.stops(now, ended is not None):
            queue.stopped = True
            break
        if ended is not None:
            if not core.is_current(ended.agent, ended.lease):  # its agent was interrupted, and this end with it
                pop()
                continue
            if ended.report is None:  # an error here leaves the event where it is
                event, flushed = Finished(ended.agent, ended.lease, result(ended.agent)), False
        pop()
        queue.time = now
        flushed = not apply_effects(core.handle(event, now), now, hosts, queue) and flushed
        if windows is not None:
            windows.readmit(event)
        queue.events += 1
        if progress.is_enough:
            break
        if not flushed and not queue.is_due(now):
            hosts.flush(ends)
            flushed = True
        if keep is not None:
            keep(queue.events)


class _Watch:
    """The check when a step ends, and now and then otherwise: whether to stop, and whether the run progresses."""

    def __init__(self, core: Core, hooks: RunHooks, until: float) -> None:
        self._core, self._hooks, self._until, self._clock = core, hooks, until, time.monotonic
        self._due = self._clock() + PROGRESS_INTERVAL

    def stops(self, now: float, ends_step: bool) -> bool:
        """Check whether the run ends here, and report its progress if due; EndlessError if it does not progress."""
        idle = self._core.state.progress.idle
        stands_still = idle >= _IDLE and idle % _IDLE == 0
        if not ends_step and not stands_still:
            return False
        if self._hooks.stop():
            return True
        begun = self._clock()
        if begun > self._due:
            report_progress(self._core, self._hooks)
            ended = self._clock()
            self._due = ended + max(PROGRESS_INTERVAL, PROGRESS_REST * (ended - begun))
        if stands_still:
            require_progress(self._core, now, self._until)
        return False


def _resume_steps(core: Core, hosts: Hosts) -> None:
    """Resubmit the steps that agents worked on when the run was interrupted."""
    orders = core.orders()
    for order in orders:
        hosts.submit(order)
    hosts.flush()
    for order in orders:
        step = core.state.agents[order.agent].current
        if step is not None and step.report is not None:  # only its retries still take their time
            hosts.result(order.agent)


def apply_effects(effects: list[Effect], now: float, hosts: Hosts, queue: EventQueue) -> bool:
    """Apply effects; return whether any of them concerned the hosts."""
    told = False
    for effect in effects:
        if type(effect) is After:
            queue.push(now + effect.delay if effect.time is None else effect.time, effect.event, effect.order)
            continue
        told = True
        if type(effect) is StepRequest:
            hosts.submit(effect)
        elif type(effect) is Commit:
            hosts.commit(effect.agent, effect.times)
        else:
            assert isinstance(effect, Ask), "nothing is done to a process in virtual time"
            queue.push(now, DecisionMade(effect.order.agent, effect.order.lease, hosts.decide(effect.order)))
    return told


def report_progress(core: Core, hooks: RunHooks) -> None:
    """Pass on the lines of the event log, and report that the run is alive."""
    core.flush_events(hooks.sink, hooks.in_columns)
    hooks.tick()
