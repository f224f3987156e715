"""The fork of a run in virtual time: its trunk up to a point, and the snapshot from which a branch continues.

A switch to other rules in the middle keeps scheduled events, the open round and awaited answers. Steps in progress and messages
on their way stay unchanged; later steps and messages follow the new rules.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from fedbo.actors.host_storage import HostConfig
from fedbo.actors.hosts import Hosts, InlineHosts
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.errors import ForkError
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import RunHooks, apply_effects, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import (
    BACKGROUND,
    AckTimeout,
    AvailabilityChanged,
    Effect,
    Event,
    FaultEnded,
    FaultStarted,
    MessageAtLink,
    MessageReceived,
    RoundDeadline,
)
from fedbo.coordinator.runtime.actor import Run
from fedbo.coordinator.runtime.event_log import EventLog
from fedbo.coordinator.runtime.snapshots import RunParts, Snapshotter
from fedbo.settings.records import changed


def switch(before: Core, after: Core, hosts: Hosts, queue: EventQueue, now: float) -> None:
    """Continue a run under other rules: those of `after`, which has its state; ForkError if that is impossible.

    Equal rules change nothing.
    """
    queue.gather()
    _wake(before, after, hosts, queue, now)
    effects = _faults(before.environment, after, queue, now)
    effects += _availability(before.environment, after, queue, now)
    if before.exchange != after.exchange:
        effects += _exchange(before, after, queue, now)
    apply_effects(effects, now, hosts, queue)


def _wake(before: Core, after: Core, hosts: Hosts, queue: EventQueue, now: float) -> None:
    """Schedule what happens to idle agents, if that changes, and order events by the new rules."""
    old, new, rules = before.environment, after.environment, before.rules
    is_same = old.plan == new.plan and old.common == new.common and old.exceptions == new.exceptions
    if not rules.idles or (is_same and rules.is_lazy == after.rules.is_lazy):
        return
    agents = [number for number in sorted(rules.participants) if not after.state.agents[number].ended]
    lines = len(rules.log)
    apply_effects(before.server.idle.wake(after.state, agents, now), now, hosts, queue)
    after.rules.log += rules.log[lines:]
    for number in agents:
        after.state.agents[number].asleep = []
    if rules.orders != after.rules.orders:
        heap = enumerate(sorted(queue.heap, key=lambda entry: entry[:2]), -len(queue.heap))
        queue.heap = [(time, (-math.inf, n) if after.rules.orders else n, event) for n, (time, _, event) in heap]
    queue.orders = after.rules.orders


def _faults(before: Environment, after: Core, queue: EventQueue, now: float) -> list[Effect]:
    """Reschedule the faults that differ; ForkError if one of them has begun and not ended."""
    old, new = before.plan, after.environment.plan
    places = {place for place, fault in enumerate(new) if place >= len(old) or old[place] != fault}
    if any(isinstance(event, FaultEnded) and event.fault in places for _, _, event in queue.heap):
        raise ForkError("fault: a changed fault is active at the fork; fork before or after it")
    _drop(queue, lambda event: isinstance(event, FaultStarted) and event.fault in places)
    after.state.changed |= dict.fromkeys(places, now)
    return after.faults.switch(places, now)


def _availability(before: Environment, after: Core, queue: EventQueue, now: float) -> list[Effect]:
    """Switch agents whose availability differs to the new model, as if it had held from the start."""
    new = after.environment
    if before.common.availability == new.common.availability and before.exceptions == new.exceptions:
        return []
    agents = [n for n in sorted(after.rules.participants) if before.of(n).availability != new.of(n).availability]
    away = dict.fromkeys(agents, False)
    for _, _, event in queue.heap:
        if isinstance(event, AvailabilityChanged) and event.agent in away:
            away[event.agent] = bool(event.number % 2)
    _drop(queue, lambda event: isinstance(event, AvailabilityChanged) and event.agent in away)
    return after.presence.switch(after.state, away, now)


def _exchange(before: Core, after: Core, queue: EventQueue, now: float) -> list[Effect]:
    """Convert the open round, or the buffer, to another exchange mode."""
    if before.rules.idles != after.rules.idles:
        raise ForkError("exchange.selection.others: cannot change after the first round; remove this change")
    if bool(before.rules.turns) != bool(after.rules.turns):
        raise ForkError("exchange.selection.concurrency: cannot be set or removed after the start; remove this change")
    rounds = after.state.rounds
    _drop(queue, lambda event: isinstance(event, RoundDeadline))
    switches = before.rules.is_synchronous != after.rules.is_synchronous
    if switches:
        _change_waiting(after, queue, now)
    least = getattr(after.exchange, "minimum", 1)
    rounds.deadline_passed, rounds.least = False, least if least > 1 else 0
    effects = list[Effect]()
    if after.rules.upload is not None:
        effects += after.server.time_round(after.state, now)
    effects += after.server.settle(after.state, now)
    return effects + _set_going(after, now) if switches and not after.rules.is_synchronous else effects


def _set_going(after: Core, now: float) -> list[Effect]:
    """Advance agents that have waited for a round to close, except those with an answer on its way."""
    waiting = after.state.rounds.waiting
    going = sorted(number for number, answer in waiting.items() if answer is None)
    for number in going:
        del waiting[number]
    return [effect for number in going for effect in after.processes.advance(after.state, after.state.agents[number], now)]


def _change_waiting(after: Core, queue: EventQueue, now: float) -> None:
    """Convert the waiting: without rounds, reported agents fill the buffer; with rounds, a new one waits for working agents."""
    state, rules = after.state, after.rules
    rounds, agents = state.rounds, state.agents
    if rules.receipt.aggregator is not None:
        raise ForkError(
            "exchange.mode: private rounds sample their agents when they open; keep a mode with rounds, or one without"
        )
    if absent := [agent.number for agent in agents.every() if agent.absent]:
        raise ForkError(f"exchange.mode: agent {absent[0]} is absent before its step at the fork; fork slightly later")
    if rules.idles:
        raise ForkError("exchange.mode: idle agents wait for a round to select them; use another mode with rounds")
    if not rules.is_synchronous:
        rounds.buffer = sorted(rounds.reported)
        rounds.reported, rounds.missing = set(), set()
        return
    rounds.opened, rounds.buffer = now, []
    for agent in (agents[number] for number in sorted(rounds.active)):
        agent.asked = True
        waits = agent.number in rounds.waiting
        if waits and rounds.waiting[agent.number] is None and not agent.unacknowledged:
            rounds.reported.add(agent.number)
        elif agent.current is not None and not agent.known_offline:
            rounds.missing.add(agent.number)


def _with(event: Event, sent: Callable[[Any], Any]) -> Event:
    """Return an event with its message replaced."""
    if isinstance(event, MessageAtLink | MessageReceived):
        return type(event)(sent(event.message))
    if isinstance(event, AckTimeout):
        return event._replace(transmission=sent(event.transmission))
    return event


def _drop(queue: EventQueue, unwanted: Callable[[Event], bool]) -> None:
    """Remove events from the queue."""
    left = [entry for entry in queue.heap if not unwanted(entry[2])]
    if len(left) < len(queue.heap):
        heapq.heapify(left)
        queue.heap, queue.waiting = left, sum(type(event) not in BACKGROUND for _, _, event in left)


class ForkPoint(NamedTuple):
    """The point of a fork: a time, before the events at that time, or after a number of events of each run."""

    time: float | None = None
    event: int | None = None

    def __str__(self) -> str:
        return f"event:{self.event}" if self.time is None else f"{self.time:g}"


class _Reached(Exception):
    """The trunk has reached its point."""


def grow_trunk(run: Run, point: ForkPoint) -> float | None:
    """Run from the present state up to a point, and write a snapshot; return the time, None if the run ended before."""

    def look(events: int) -> None:
        if events == point.event:
            raise _Reached

    snapshots, parts = open_run(run)
    # The trunk stops just before the events at the time of the fork, which belong to the branches.
    until = run.until if point.time is None else min(run.until, math.nextafter(point.time, -math.inf))
    reached = False
    if parts.queue.events == point.event:
        reached = True
    else:
        try:
            hooks = RunHooks(parts.event_log.extend, keep=look, every=point.event or 0, in_columns=True)
            run_virtual(parts.core, parts.hosts, hooks, parts.queue, until)
        except _Reached:
            reached = True
    ended = parts.core.state.progress.is_enough or (parts.core.is_over and parts.queue.quiet) or not _goes_on(parts, run.until)
    snapshots.finish(parts, ended=False)
    if ended or not (reached or point.time is not None):
        return None
    return parts.queue.time if point.time is None else point.time


def _goes_on(parts: RunParts, until: float) -> bool:
    due = parts.queue.next_time()
    return due is not None and due <= until and (bool(parts.queue.waiting) or parts.core.will_recover())


def begin_branch(trunk: Run, branch: Run, now: float) -> None:
    """Convert a copy of the trunk in the branch's folder to the rules of the branch; ForkError.

    Steps that agents work on were decided under the old rules, and stay.
    """
    snapshots, left = open_run(replace(trunk, folder=branch.folder))
    before, hosts = left.core, left.hosts
    assert isinstance(hosts, InlineHosts)
    for order in before.orders():
        hosts.host.agents[order.agent].settle(order)
        step = before.state.agents[order.agent].current
        assert step is not None
        step.order = changed(order, restore="")
    snapshots.finish(left, ended=False)
    snapshots, parts = open_run(branch)
    switch(before, parts.core, parts.hosts, parts.queue, now)
    snapshots.finish(parts, ended=False)


def open_run(run: Run) -> tuple[Snapshotter, RunParts]:
    """Open a run in its present state, in this process; rows that a crash could still remove stay with their agents."""
    snapshots = Snapshotter(RunFolder.of(run.folder, run.key), math.inf, None)
    core, event_log, queue = (
        assembled(run.task, run.exchange, run.environment, run.budget),
        EventLog(snapshots.home),
        EventQueue(),
    )
    snapshot = snapshots.load_latest()
    if snapshot is not None:
        core.state, event_log.count, event_log.moments = snapshot.state, snapshot.lines, snapshot.moments
        queue.become(snapshot.queue)
    config = HostConfig(snapshots.home, lossy=True, latest=snapshots.latest)
    return snapshots, RunParts(core, queue, event_log, InlineHosts(run.task, range(run.task.problem.n_agents), config))
