"""Idle agents: what happens to them is no event, but is made up for when they are asked, or when it decides who is.

The times of absences and faults are drawn whether or not anybody looks. So when a round begins, the times of all agents go on
until then (`Passing`), which says who is known to be away; and to those that are asked, all that has been due happens, in its
order and by the rules of the core, before they are asked. What is under way then is a line of the log, as if it began now.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.environment.availability import Availability, leaves
from fedbo.coordinator.environment.faults import Crash, Hang, NetworkPartition, Restart, Slow
from fedbo.coordinator.idle.passing import Passing, gaps_of_changes, gaps_of_strikes
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.event_queue import Entry, Order, order_of
from fedbo.coordinator.kernel.events import (
    AckTimeout,
    After,
    AnswerReceived,
    AvailabilityChanged,
    Effect,
    Event,
    FaultEnded,
    FaultStarted,
    Message,
    MessageReceived,
)
from fedbo.coordinator.kernel.fault_injection import hits_alone
from fedbo.coordinator.kernel.server import IdleAgents
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.kernel.step_scheduler import Handler
from fedbo.coordinator.logged.agents import AgentAbsent

Flags = npt.NDArray[np.bool_]
_ABSENCE = -1  # in place of the place of a fault in the plan
_AT_START = (-math.inf, order_of(FaultStarted(0, COORDINATOR, 0), 0.0)[1] - 1)  # who is away then is not asked; faults follow


class SleepingAgents(IdleAgents):
    """The idle agents of a run where nothing of them is scheduled.

    What the event queue holds of an agent that becomes idle happens in its time, if it ends something; all else waits in the
    agent's record, `asleep`, until it is asked.
    """

    def __init__(self, core: Core) -> None:
        rules = core.rules
        self._core, self._environment, self._streams = core, rules.environment, rules.task.streams
        self._count, self._presence, self._faults = rules.problem.n_agents, core.presence, core.faults
        self._happens: dict[type, Handler] = {
            kind: core.handlers[kind] for kind in (AvailabilityChanged, FaultStarted, FaultEnded)
        }
        kinds: tuple[type, ...] = MessageReceived, AnswerReceived, AckTimeout
        self.handlers = dict.fromkeys(self._happens, self._happened) | {
            kind: self._reached(core.handlers[kind]) for kind in kinds
        }
        self._participants = np.array(sorted(rules.participants))
        self._passing = dict[int, list[Passing]]()  # by the place of the fault, or _ABSENCE
        faults = ((place, fault) for place, fault in core.faults.faults.items() if not isinstance(fault, Restart))
        self._hit = {place: self._mask({*rules.participants}.intersection(fault.agents)) for place, fault in faults}
        self._leave_traces = {place for place in self._hit if _leaves_trace(core.faults.faults[place])}

    def _mask(self, agents: Collection[int]) -> Flags:
        """Return which of all agents `(N,)` these are."""
        found = np.zeros(self._count, bool)
        found[list(agents)] = True
        return found

    # Events

    def _happened(self, state: CoreState, event: Any, now: float) -> list[Effect]:
        """Process an event of the queue: what begins for an idle agent waits, and what ends makes up for what was before."""
        handle = self._happens[type(event)]
        if event.agent == COORDINATOR:
            if event.fault in self._hit and type(event) is FaultStarted:
                self._miss(state, event, now)
            return handle(state, event, now)
        agent = state.agents[event.agent]
        if agent.number in state.rounds.active or agent.ended:
            return handle(state, event, now)
        assert agent.asleep is not None
        if not _ends(event):
            agent.asleep.append((now, self._core.order, event))
            self._presence.changes.forget(agent.number)
            return []
        self._make_up(state, agent, now)
        for effect in handle(state, event, now):
            heappush(agent.asleep, self._entry(effect, now))
        return []

    def _miss(self, state: CoreState, event: FaultStarted, now: float) -> None:
        """Keep a fault of many agents for those that are idle, and have been asked before."""
        hit = self._hit[event.fault]
        for number in [agent.number for agent in state.agents.every() if agent.asleep is not None and not agent.ended]:
            if number in state.rounds.active or not hit[number]:
                continue
            asleep = state.agents[number].asleep
            assert asleep is not None
            if not any(type(entry[2]) is FaultStarted and entry[2].fault == event.fault for entry in asleep):
                asleep.append((now, self._core.order, event._replace(agent=number)))

    def _reached(self, handle: Handler) -> Handler:
        """Return a handler that looks first at the agent whom its event reaches."""

        def look(state: CoreState, event: Any, now: float) -> list[Effect]:
            sent = getattr(event, "message", None) or getattr(event, "answer", None) or event.transmission
            self._look(state, sent.sender if isinstance(sent, Message) else sent.agent, now)
            return handle(state, event, now)

        return look

    def _look(self, state: CoreState, number: int, now: float) -> None:
        """Make up for what happened to an agent, if it is idle."""
        if 0 <= number < self._count and number not in state.rounds.active and not state.agents[number].ended:
            self._make_up(state, state.agents[number], now)

    def _entry(self, effect: Effect, now: float) -> Entry:
        """Return what an effect schedules, as an entry of the queue."""
        assert isinstance(effect, After)
        if effect.time is None or effect.order is None:
            return now + effect.delay, order_of(effect.event, now), effect.event
        return effect.time, self._order(effect.event, effect.order), effect.event

    def _order(self, event: Event, order: Order) -> Order:
        """Return the order of an event of one agent, which may be that of all agents of a fault."""
        if isinstance(event, FaultStarted) and not hits_alone(self._faults.faults[event.fault]):
            return order_of(event._replace(agent=COORDINATOR), order[0])
        return order

    def _make_up(self, state: CoreState, agent: AgentRecord, now: float) -> None:
        """Let all happen to an idle agent that has been due; nobody sees it, so it leaves no line.

        What is over is passed over where it leaves no trace. Only who hangs is known to be away for what is over.
        """
        passes = not (agent.interruptions or state.changed or self._hangs(agent.number, now))
        if agent.asleep is None:
            agent.asleep = list(self._first(agent.number, now if passes else -math.inf))
        elif passes:
            agent.asleep = [self._after_past(event, now) or (time, order, event) for time, order, event in agent.asleep]
        log, until, asleep = self._core.rules.log, (now, self._until()), agent.asleep
        lines = len(log)
        heapify(asleep)
        while asleep and asleep[0][:2] <= until:
            time, _, event = heappop(asleep)
            for effect in self._happens[type(event)](state, event, time):
                heappush(asleep, self._entry(effect, time))
        del log[lines:]

    def _until(self) -> Order:
        """Return the order of the event in hand."""
        order = self._core.order
        return order if isinstance(order, tuple) else _AT_START

    def _first(self, number: int, now: float) -> Iterator[Entry]:
        """Yield the first entries after the past of an agent that was never looked at; all of them where `now` is -infinity."""
        if leaves(self._environment.of(number).availability):
            known = self._after_past(AvailabilityChanged(number, 0), now)
            yield from [known] if known else self._entries(self._presence.next_change(number, 0, -math.inf))
        for place, hit in self._hit.items():
            if hit[number]:
                known = self._after_past(FaultStarted(place, number, 0), now)
                yield from [known] if known else self._entries(self._faults.schedule(place, number, 0, -math.inf))

    def _entries(self, effects: Sequence[Effect]) -> Iterator[Entry]:
        for effect in effects:
            yield self._entry(effect, 0.0)

    def _hangs(self, agent: int, now: float) -> bool:
        """Return whether an agent may hang."""
        for place, hit in self._hit.items():
            fault = self._faults.faults[place]
            if isinstance(fault, Hang) and hit[agent]:
                one, at = self._one(place, agent)
                if one is None or one.next.item(at) <= now or one.ends.item(at) >= now:
                    return True
        return False

    def _one(self, place: int, agent: int) -> tuple[Passing | None, int]:
        """Return the times of absences, or of the fault at a place, and where an agent is in them; None if not known."""
        one = next((one for one in self._passing.get(place, ()) if one.has(agent)), None)
        return one, 0 if one is None else one.places.item(agent)

    def _after_past(self, event: Any, now: float) -> Entry | None:
        """Return what follows the past of an agent, from an event on; None where that is unknown, or leaves a trace."""
        if not isinstance(event, AvailabilityChanged | FaultStarted) or _ends(event):
            return None
        place, agent = event.fault if isinstance(event, FaultStarted) else _ABSENCE, event.agent
        one, at = self._one(place, agent)
        if one is None:
            return None
        number, last, after = one.number.item(at), one.last.item(at), one.next.item(at)
        if number < event.number or not last < now < after < math.inf:
            return None
        if place == _ABSENCE:
            self._presence.changes.enter(agent, number, after)
            event = AvailabilityChanged(agent, number - number % 2)
            return (last if number % 2 else after), order_of(event, last), event
        if number > event.number and (place in self._leave_traces or one.ends.item(at) >= now):
            return None
        self._faults.times.enter(place, agent, number, after)
        event = event._replace(number=number)
        return after, order_of(event, last), event

    # Rounds

    def wake(self, state: CoreState, agents: Sequence[int], now: float) -> list[Effect]:
        """Let all happen to agents that has been due, since they are asked now; schedule what will."""
        effects = list[Effect]()
        for number in agents:
            agent = state.agents[number]
            self._make_up(state, agent, now)
            assert agent.asleep is not None
            for entry in sorted(agent.asleep, key=lambda entry: entry[:2]):
                time, order, event = entry
                if isinstance(event, FaultStarted) and not hits_alone(self._faults.faults[event.fault]):
                    continue  # all of its agents have one event
                if _ends(event):
                    self._tell(agent, event, now)
                effects.append(After(time - now, event, time, order))
            agent.asleep = []
        return effects

    def _tell(self, agent: AgentRecord, event: Any, now: float) -> None:
        """Write into the log that something is under way which this event will end."""
        line = AgentAbsent(now, agent.number, agent.step)
        self._core.rules.log.append(line if type(event) is AvailabilityChanged else self._faults.line(event.fault, agent, now))

    def away(self, state: CoreState, idle: Flags, now: float) -> Flags:
        """Return which of the `idle (N,)` agents are known to be away; those that are lost are idle no more."""
        away, lost, unsure = (np.zeros_like(idle) for _ in range(3))
        back = np.full(len(idle), -np.inf)  # the last time that an agent was known to be there again
        for one in self._passed(_ABSENCE, now):
            there, gone = one.number % 2 == 0, np.isinf(one.next)
            away[one.agents], lost[one.agents] = ~there, ~there & gone
            unsure[one.agents] = (one.last == now) & (now > 0)
            back[one.agents] = np.where(there, one.last, -np.inf)
        hangs = list[tuple[npt.NDArray[np.int64], Any, Any]]()
        for place, hit in self._hit.items():
            fault = self._faults.faults[place]
            if not isinstance(fault, Crash | Hang):
                self._passed(place, now)
                continue
            for agents, last, since, end, tied in self._strikes(place, hit, now):
                on = (last > -np.inf) & (last >= state.changed.get(place, -np.inf)) & (end > now)
                unsure[agents] |= tied | (end == now)
                if isinstance(fault, Hang):
                    hangs.append((agents, on, since))
                    continue
                away[agents] |= on
                lost[agents] |= on & (fault.restart is None)
                back[agents] = np.maximum(back[agents], np.where(on, -np.inf, end))
        for agents, on, since in hangs:  # who hangs is known to be away as long as it is never there since it was
            unsure[agents] |= on & (back[agents] >= (since if len(hangs) == 1 else 0.0))
        for number in np.flatnonzero(unsure & idle).tolist():
            self._look(state, number, now)
            agent = state.agents[number]
            away[number], lost[number] = agent.known_offline, agent.ended
        idle &= ~lost
        return away

    def _strikes(self, place: int, hit: Flags, now: float) -> Iterator[tuple[Any, ...]]:
        """Yield agents of a fault, their last strike, the first of its chain, its end, and whether the order decides."""
        if hits_alone(self._faults.faults[place]):
            for one in self._passed(place, now):
                yield one.agents, one.last, one.last, one.ends, one.last == now
            return
        last, event, agents = -math.inf, FaultStarted(place, COORDINATOR, 0), np.flatnonzero(hit)
        since = end = np.full(len(agents), -np.inf)
        while ((time := self._faults.time_of(event)), order_of(event, last)) <= (now, self._until()):
            since = np.where(time < end, since, time)
            last, end = time, np.maximum(end, time + self._lasting(place, agents, event.number))
            event = event._replace(number=event.number + 1)
        yield agents, last, since, end, False

    def _lasting(self, place: int, agents: npt.NDArray[np.int64], number: int) -> Any:
        """Return how long a strike lasts, for all agents or for each `(k,)`."""
        times = self._faults.times
        same = times.same[place]
        return np.array([times.lasting(place, agent, number) for agent in agents.tolist()]) if same is None else same

    def _passed(self, place: int, now: float) -> list[Passing]:
        """Return the times of absences, or of the fault at a place, and where an agent is in them; None if not known."""
        if place not in self._passing and (place == _ABSENCE or hits_alone(self._faults.faults[place])):
            self._passing[place] = list(self._absences() if place == _ABSENCE else self._alone(place))
        found = self._passing.get(place, [])
        for one in found:
            one.go_on(now)
        return found

    def _absences(self) -> Iterator[Passing]:
        """Yield the agents of each model whose agents leave."""
        models = dict[Availability, list[int]]()
        for number in self._participants.tolist():
            models.setdefault(self._environment.of(number).availability, []).append(number)
        for model, agents in models.items():
            if leaves(model):
                times = self._presence.changes, lambda agent, number: 0.0
                yield Passing(np.array(agents), times, self._streams, gaps_of_changes(model))

    def _alone(self, place: int) -> Iterator[Passing]:
        """Yield the agents of a fault that hits each alone."""

        def time_of(agent: int, number: int) -> float:
            return self._faults.time_of(FaultStarted(place, agent, number))

        times = time_of, partial(self._faults.times.lasting, place)
        gaps = gaps_of_strikes(place, self._faults.faults[place])
        yield Passing(np.flatnonzero(self._hit[place]), times, self._streams, gaps)


def _ends(event: Event) -> bool:
    """Return whether an event of an agent ends what has begun."""
    return isinstance(event, FaultEnded) or (isinstance(event, AvailabilityChanged) and event.number % 2 == 1)


def _leaves_trace(fault: Any) -> bool:
    """Return whether a fault that is over leaves a trace: what was forgotten, or the rounding of a pace."""
    if isinstance(fault, Slow):
        return math.frexp(fault.factor)[0] != 0.5
    return isinstance(fault, NetworkPartition) or (isinstance(fault, Crash) and fault.state == "lost")
