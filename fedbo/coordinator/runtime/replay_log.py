"""Resume and replay of runs in real time, from the record of their events."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable

from fedbo.actors.hosts import Hosts, LiveHosts
from fedbo.actors.task import StepReport, StepRequest
from fedbo.coordinator.errors import ReplayError
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import DIED, FINISHED, LEFT, RETURNED, RecordedEvent, RunHooks, report_progress
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import (
    BACKGROUND,
    After,
    Commit,
    ConnectionChanged,
    Event,
    Finished,
    ProcessControl,
    ProcessDied,
)
from fedbo.coordinator.runtime.wall_clock import control_process

Happened = tuple[RecordedEvent, StepReport | None]


def resume_from_log(core: Core, hosts: LiveHosts, queue: EventQueue, since: Iterable[Happened], hooks: RunHooks) -> None:
    """Handle all events again, at once, that happened in real time since the snapshot of a resumed run.

    Requests to agents are not carried out: `core.orders` then lists those that are still open.
    """
    by_number = {number: event for _, number, event in queue.heap}
    gone: set[int] = set()
    for place, (recorded, report) in enumerate(since):
        event = _event(recorded, report, by_number, place)
        gone.add(recorded.number)
        if report is not None:
            hosts.heard(report)
        hooks.record(recorded, report)
        queue.time = recorded.time
        queue.events += 1
        for effect in core.handle(event, recorded.time):
            if isinstance(effect, Commit):
                hosts.commit(effect.agent, effect.times)
            elif isinstance(effect, ProcessControl):
                if effect.what in ("hold", "slow"):
                    control_process(effect, hosts)
            elif isinstance(effect, After):
                queue.push(recorded.time + effect.delay, effect.event)
                by_number[queue.scheduled] = effect.event
    _remove(gone, queue)


def _event(recorded: RecordedEvent, report: StepReport | None, scheduled: dict[int, Event], place: int) -> Event:
    if recorded.number == FINISHED:
        return Finished(recorded.agent, recorded.lease, report)
    if recorded.number == DIED:
        return ProcessDied(recorded.agent)
    if recorded.number in (LEFT, RETURNED):
        return ConnectionChanged(recorded.agent, recorded.number == LEFT)
    if recorded.number not in scheduled:
        raise ReplayError(f"event {place} at {recorded.time:.6f}: no event with number {recorded.number} is scheduled")
    return scheduled.pop(recorded.number)


def replay_events(core: Core, hosts: Hosts, hooks: RunHooks, queue: EventQueue, record: Iterable[RecordedEvent]) -> None:
    """Replay a run in real time: the same events at the same times, without waiting; future events stay queued.

    Raises:
        ReplayError: a recorded event could not happen.
    """
    scheduled = {number: event for _, number, event in queue.heap}
    steps: dict[tuple[int, int], int] = {}
    gone: set[int] = set()
    for place, recorded in enumerate(record):
        now, number, agent, lease = recorded.time, recorded.number, recorded.agent, recorded.lease
        report: StepReport | None = None
        if number == FINISHED and core.is_current(agent, lease):
            report = hosts.result(agent)
        elif number == FINISHED:  # it came too late, and counted for nothing
            report = StepReport(agent, steps.get((agent, lease), -1), queries=0, payload=None, lease=lease)
        event = _event(recorded, report, scheduled, place)
        gone.add(number)
        queue.time = now
        queue.events += 1
        for effect in core.handle(event, now):
            if isinstance(effect, After):
                queue.push(now + effect.delay, effect.event)
                scheduled[queue.scheduled] = effect.event
            elif isinstance(effect, StepRequest):
                steps[effect.agent, effect.lease] = effect.step
                hosts.submit(effect)
            elif isinstance(effect, Commit):
                hosts.commit(effect.agent, effect.times)
    _remove(gone, queue)
    report_progress(core, hooks)


def _remove(gone: Collection[int], queue: EventQueue) -> None:
    """Remove the events with these numbers from a queue, where they have other times than in the record."""
    left = [entry for entry in queue.heap if entry[1] not in gone]
    heapq.heapify(left)
    queue.heap, queue.waiting = left, sum(type(event) not in BACKGROUND for _, _, event in left)
