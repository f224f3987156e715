"""The switch of a run to other rules in the middle: scheduled events, the open round and awaited answers carry over.

Steps in progress and messages on their way stay unchanged; later steps and messages follow the new rules.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from fedbo.actors.hosts import Hosts
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.errors import ForkError
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import apply_effects
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import (
    BACKGROUND,
    AckTimeout,
    After,
    AvailabilityChanged,
    Effect,
    Event,
    FaultEnded,
    FaultStarted,
    Message,
    MessageAtLink,
    MessageReceived,
    RoundDeadline,
)
from fedbo.settings.records import changed


def switch(before: Core, after: Core, hosts: Hosts, queue: EventQueue, now: float) -> None:
    """Continue a run under other rules: those of `after`, which has its state; ForkError if that is impossible.

    Equal rules change nothing.
    """
    queue.gather()
    effects = _faults(before.environment, after, queue, now)
    effects += _availability(before.environment, after, queue, now)
    if before.exchange != after.exchange:
        effects += _exchange(before, after, queue, now)
    apply_effects(effects, now, hosts, queue)


def _faults(before: Environment, after: Core, queue: EventQueue, now: float) -> list[Effect]:
    """Reschedule the faults that differ; ForkError if one of them has begun and not ended."""
    old, new = before.plan, after.environment.plan
    places = {place for place, fault in enumerate(new) if place >= len(old) or old[place] != fault}
    if any(isinstance(event, FaultEnded) and event.fault in places for _, _, event in queue.heap):
        raise ForkError("fault: a changed fault is active at the fork; fork before or after it")
    _drop(queue, lambda event: isinstance(event, FaultStarted) and event.fault in places)
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
    rounds, deadline = after.state.rounds, after.exchange.deadline
    _drop(queue, lambda event: isinstance(event, RoundDeadline))
    switches = before.rules.is_synchronous != after.rules.is_synchronous
    if switches:
        _change_waiting(after, queue, now)
    rounds.deadline_passed = False
    effects = list[Effect]()
    if deadline is not None and after.rules.upload is not None:
        effects.append(After(max(0.0, rounds.opened + deadline - now), RoundDeadline(rounds.number)))
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
    _count_age(after, queue)
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


def _count_age(after: Core, queue: EventQueue) -> None:
    """Count ages in rounds instead of in answers, or the reverse, so that messages on their way keep their staleness."""
    state, count, age = after.state, len(after.rules.targets), after.state.rounds.age

    def base(old: int) -> int:
        if old < 0:
            return old
        return (age // count) - (age - old) // count if after.rules.is_synchronous else old * count

    def sent(message: Any) -> Any:
        return changed(message, base=base(message.base)) if isinstance(message, Message) else message

    state.rounds.age = age // count if after.rules.is_synchronous else age * count
    for agent in state.agents.every():
        agent.base, agent.newest_base = base(agent.base), base(agent.newest_base)
        agent.unacknowledged = {step: sent(message) for step, message in agent.unacknowledged.items()}
        if agent.faults is not None:
            agent.faults.previous_message = sent(agent.faults.previous_message)
    queue.heap = [(time, number, _with(event, sent)) for time, number, event in queue.heap]


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
