"""The record of a run in real time: how a run goes on from it after its coordinator has died, and how it is replayed."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from fedbo.actors.hosts import Hosts
from fedbo.actors.task import StepReport, StepRequest
from fedbo.coordinator.core import Core
from fedbo.coordinator.events import BACKGROUND, Ask, Commit, Event, Finished, ProcessControl, ProcessDied, StudyStarted
from fedbo.coordinator.runtime.engine import DIED, FINISHED, EventQueue, RecordedEvent, ReplayError, RunHooks, look
from fedbo.coordinator.runtime.wall_clock import LiveHosts, act

Happened = tuple[RecordedEvent, StepReport | None]


def catch_up(core: Core, hosts: LiveHosts, agenda: EventQueue, since: Iterable[Happened], watch: RunHooks) -> None:
    """Let all happen again, at once, that has happened in real time since the snapshot from which a run goes on.

    What agents were told to do is not carried out: `core.orders` lists what they are still to do when this is over.
    """
    by_number = {number: event for _, number, event in agenda.heap}
    gone: set[int] = set()
    for place, (moment, report) in enumerate(since):
        event = _event(moment, report, by_number, place)
        gone.add(moment.number)
        if report is not None:
            hosts.heard(report)
        watch.record(moment, report)
        agenda.time = moment.time
        agenda.events += 1
        for effect in core.handle(event, moment.time):
            if isinstance(effect, Commit):
                hosts.commit(effect.agent, effect.times)
            elif isinstance(effect, ProcessControl):
                if effect.what in ("hold", "slow"):
                    act(effect, hosts)
            elif not isinstance(effect, StepRequest | Ask):
                agenda.push(moment.time + effect[0], effect[1])
                by_number[agenda.scheduled] = effect[1]
    left = [entry for entry in agenda.heap if entry[1] not in gone]
    heapq.heapify(left)
    agenda.heap, agenda.waiting = left, sum(type(event) not in BACKGROUND for _, _, event in left)


def _event(moment: RecordedEvent, report: StepReport | None, scheduled: dict[int, Event], place: int) -> Event:
    if moment.number == FINISHED:
        return Finished(moment.agent, moment.lease, report)
    if moment.number == DIED:
        return ProcessDied(moment.agent)
    if moment.number not in scheduled:
        raise ReplayError(f"event {place} at {moment.time:.6f}: nothing with the number {moment.number} was to happen")
    return scheduled.pop(moment.number)


def run_recorded(core: Core, hosts: Hosts, watch: RunHooks, record: Iterable[RecordedEvent]) -> float:
    """Replay a run in real time: the same events at the same times, without waiting; give the last time.

    ReplayError when an event that was recorded could not happen.
    """
    scheduled: dict[int, Event] = {0: StudyStarted()}
    steps: dict[tuple[int, int], int] = {}
    count, now = 0, 0.0
    for place, moment in enumerate(record):
        now, number, agent, lease = moment
        report = None
        if number == FINISHED and core.current(Finished(agent, lease)):
            report = hosts.result(agent)
        elif number == FINISHED:  # it came too late, and counted for nothing
            report = StepReport(agent, steps.get((agent, lease), -1), 0, None, lease)
        for effect in core.handle(_event(moment, report, scheduled, place), now):
            if type(effect) is tuple:
                count += 1
                scheduled[count] = effect[1]  # type: ignore[misc, assignment]
            elif isinstance(effect, StepRequest):
                steps[effect.agent, effect.lease] = effect.step
                hosts.submit(effect)
            elif isinstance(effect, Commit):
                hosts.commit(effect.agent, effect.times)
    look(core, watch)
    return now
