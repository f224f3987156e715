"""The two shells round the core: a heap of events in virtual time, and processes that answer when they answer."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass

from fedbo.actors.agent import Order
from fedbo.actors.host import Hosts, RayHosts
from fedbo.coordinator.core import Core
from fedbo.coordinator.events import Ask, Began, Decided, Event, Finished, Line

Sink = Callable[[list[Line]], None]
_BEAT = 0.4  # seconds between two looks at a run


@dataclass(slots=True)
class Outcome:
    """How a run ended: its last time, the number of events, and whether it was stopped before its end."""

    time: float = 0.0
    events: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """Who looks on: `sink` takes the records, `stop` says whether to end now, `tick` is called twice a second or so."""

    sink: Sink
    stop: Callable[[], bool] = lambda: False
    tick: Callable[[], None] = lambda: None


def run_virtual(core: Core, hosts: Hosts, watch: Watch, until: float = float("inf")) -> Outcome:
    """Run in virtual time: the clock moves only when an event is taken from the heap, and never reads the real one.

    Events are ordered by time and then by the order in which they were scheduled. The real computation of a step runs
    while the heap moves on; it is waited for only when its completion is due. Events after `until` do not happen.
    """
    heap: list[tuple[float, int, Event]] = [(0.0, 0, Began())]
    outcome, scheduled, beat = Outcome(), 0, time.monotonic()
    handle, push, pop, clock = core.handle, heapq.heappush, heapq.heappop, time.monotonic
    while heap and heap[0][0] <= until:
        now, _, event = pop(heap)
        if type(event) is Finished:
            if watch.stop():
                outcome.stopped = True
                break
            event = Finished(event.agent, hosts.result(event.agent))
            if clock() - beat > _BEAT:
                beat = clock()
                _look(core, watch)
        for effect in handle(event, now):
            scheduled += 1
            if isinstance(effect, Order):
                assert effect.durations is not None
                hosts.submit(effect)
                push(heap, (now + sum(effect.durations), scheduled, Finished(effect.agent)))
            elif isinstance(effect, Ask):
                push(heap, (now, scheduled, Decided(effect.order.agent, hosts.decide(effect.order))))
            else:
                push(heap, (now + effect[0], scheduled, effect[1]))
        outcome.events += 1
        if not heap or heap[0][0] > now:
            hosts.settle()
    outcome.time = now
    _look(core, watch)
    if not heap and not outcome.stopped:
        core.close()
    return outcome


def run_wall(core: Core, hosts: RayHosts, watch: Watch, epoch: float, until: float = float("inf")) -> Outcome:
    """Run in real time on Ray actors: a step ends when its actor says so; latencies and absences are waited for.

    Times are seconds since `epoch` (as `time.time` gives it). After `until` no step begins and no event is taken.
    """
    timers: list[tuple[float, int, Event]] = [(0.0, 0, Began())]
    outcome, scheduled = Outcome(), 0

    def clock() -> float:
        return time.time() - epoch

    def happen(event: Event, now: float) -> None:
        nonlocal scheduled
        outcome.time, outcome.events = now, outcome.events + 1
        for effect in core.handle(event, now):
            if isinstance(effect, Order):
                hosts.submit(effect)
            elif isinstance(effect, Ask):
                raise AssertionError("in real time nothing depends on a decision alone")
            else:
                scheduled += 1
                heapq.heappush(timers, (now + effect[0], scheduled, effect[1]))
        hosts.settle()

    beat = time.monotonic()
    while (timers or hosts.busy()) and clock() <= until:
        if timers and timers[0][0] <= clock():
            happen(heapq.heappop(timers)[2], clock())
        else:
            due = min(timers[0][0] - clock() if timers else _BEAT, until - clock(), _BEAT)
            for report in hosts.ready(due):
                happen(Finished(report.agent, report), clock())
        if time.monotonic() - beat > _BEAT:
            beat = time.monotonic()
            _look(core, watch)
            if watch.stop():
                outcome.stopped = True
                break
    _look(core, watch)
    if clock() <= until and not outcome.stopped:
        core.close()
    return outcome


def _look(core: Core, watch: Watch) -> None:
    watch.sink(core.journal)
    core.journal = []
    watch.tick()
