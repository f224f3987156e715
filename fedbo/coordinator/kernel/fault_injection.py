"""Faults of the plan that hit agents or the coordinator; those that hit messages are the network's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set

from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.environment.availability import Ascending
from fedbo.coordinator.environment.faults import (
    PROCESS_FAULTS,
    Crash,
    Hang,
    NetworkPartition,
    ProcessFault,
    Restart,
    Slow,
    fault_times,
)
from fedbo.coordinator.kernel.events import After, Effect, FaultEnded, FaultStarted, ProcessControl
from fedbo.coordinator.kernel.interruptions import Interruptions
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.logged.agents import AgentCrashed, AgentHung, AgentRecovered, AgentRestarted, AgentSlowed, AgentWoke
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.coordinator.logged.messages import CoordinatorDown, CoordinatorUp, LinkCut, LinkJoined

# How the end of a fault of an agent is logged.
_ENDS: Mapping[type[ProcessFault], Callable[[float, int, int], EventLine]] = {
    Crash: AgentRestarted,
    Hang: AgentWoke,
    Slow: AgentRecovered,
    NetworkPartition: LinkJoined,
}


class FaultInjector:
    """The fault injector: begins and ends the faults of the plan.

    The coordinator is notified of crashes, so that no round waits for a crashed agent. It is not notified of hangs, slowness
    and partitions.
    """

    def __init__(self, rules: Rules, server: Server, interruptions: Interruptions) -> None:
        self._log, self._real_time, self._streams = rules.log, rules.environment.is_real_time, rules.task.streams
        self._server, self._interruptions, self._participants = server, interruptions, rules.participants
        plan = rules.environment.plan
        self._faults = {place: fault for place, fault in enumerate(plan) if isinstance(fault, PROCESS_FAULTS)}
        self._times: dict[tuple[int, int], Ascending] = {}
        self.is_plain = not plan
        self.at_events = sorted((fault.event, place) for place, fault in self._faults.items() if fault.event is not None)

    def start(self, now: float) -> list[Effect]:
        """Schedule the first time of each fault."""
        pairs = [(place, agent) for place, fault in self._faults.items() for agent in _hit_alone(fault)]
        return [effect for place, agent in pairs for effect in self._schedule(place, agent, 0, now)]

    def switch(self, places: Set[int], now: float) -> list[Effect]:
        """Schedule the next time of the faults at these places of the plan, which are new or have changed."""
        effects = list[Effect]()
        for place in sorted(places & self._faults.keys()):
            for agent in _hit_alone(self._faults[place]):
                self._schedule(place, agent, 0, now)
                times, number = self._times[place, agent], 0
                while times.at(number) < now:
                    number += 1
                effects += self._schedule(place, agent, number, now)
        return effects

    def at_event(self, events: int) -> list[Effect]:
        """Begin the faults that are due after so many events."""
        return [After(0.0, FaultStarted(place, COORDINATOR, 0)) for number, place in self.at_events if number == events]

    def _schedule(self, place: int, agent: int, number: int, now: float) -> list[Effect]:
        event = FaultStarted(place, agent, number)
        time = self.time_of(event)
        return [] if time == math.inf else [After(time - now, event)]

    def time_of(self, event: FaultStarted) -> float:
        """Return when a fault that does not wait for a number of events begins for the event's time; infinity if never."""
        key = place, agent = event.fault, event.agent
        if key not in self._times:
            streams, fault = self._streams.of(agent).at(0), self._faults[place]
            self._times[key] = Ascending(lambda: streams.times(f"fault {place} strikes", lambda rng: fault_times(fault, rng)))
        return self._times[key].at(event.number)

    def started(self, state: CoreState, event: FaultStarted, now: float) -> list[Effect]:
        """Begin a fault, of one agent or of all of its agents, and schedule its next time."""
        fault, alone = self._faults[event.fault], event.agent >= 0
        if isinstance(fault, Restart):
            effects = self._stop_coordinator(state, event.fault, fault, now)
            return effects + self._schedule(event.fault, event.agent, event.number + 1, now)
        effects = []
        for number in [event.agent] if alone else [n for n in fault.agents if isinstance(n, int)]:
            if number in self._participants and _is_struck(fault, state.agents[number]):
                effects += self._begin(state, event.fault, state.agents[number], now)
        if isinstance(fault, Crash):
            effects += self._interruptions.settle(state, now)
        if alone and state.agents[event.agent].ended:
            return effects
        return effects + self._schedule(event.fault, event.agent, event.number + 1, now)

    def _begin(self, state: CoreState, place: int, agent: AgentRecord, now: float) -> list[Effect]:
        fault, end = self._faults[place], FaultEnded(place, agent.number)
        if isinstance(fault, Crash):
            return self._crash(state, fault, agent, end, now)
        assert not isinstance(fault, Restart)
        effects: list[Effect] = [After(fault.duration, end)]
        if isinstance(fault, Hang):
            self._log.append(AgentHung(now, agent.number, agent.step))
            if self._real_time:
                effects.append(ProcessControl(agent.number, "hold", now + fault.duration))
            return effects + self._interruptions.interrupt(state, agent, now, known=False, void=False)
        if isinstance(fault, Slow):
            self._log.append(AgentSlowed(now, agent.number, agent.step, fault.factor))
            return effects + self._interruptions.slow(agent, fault.factor, now)
        self._log.append(LinkCut(now, agent.number, agent.step))
        agent.own_faults().partitions += 1
        return effects

    def _crash(self, state: CoreState, fault: Crash, agent: AgentRecord, end: FaultEnded, now: float) -> list[Effect]:
        effects: list[Effect] = [ProcessControl(agent.number, "kill")] if self._real_time else []
        if fault.restart is None:
            self._log.append(AgentCrashed(now, agent.number, agent.step, permanent=True))
            return effects + self._interruptions.lose(state, agent, now)
        self._log.append(AgentCrashed(now, agent.number, agent.step, permanent=False, state=fault.state))
        if fault.state == "lost":
            agent.own_faults().needs_restore = True
            agent.t_n = agent.saved_t_n
        effects.append(After(fault.restart, end))
        return effects + self._interruptions.interrupt(state, agent, now, known=True, void=True)

    def _stop_coordinator(self, state: CoreState, place: int, fault: Restart, now: float) -> list[Effect]:
        self._log.append(CoordinatorDown(now, state.rounds.number))
        state.outages += 1
        effects: list[Effect] = [After(fault.duration, FaultEnded(place, COORDINATOR))]
        return [*effects, ProcessControl(COORDINATOR, "kill")] if self._real_time else effects

    def ended(self, state: CoreState, event: FaultEnded, now: float) -> list[Effect]:
        """End a fault."""
        fault = self._faults[event.fault]
        if isinstance(fault, Restart):
            self._log.append(CoordinatorUp(now, state.rounds.number))
            state.outages -= 1
            return self._server.settle(state, now)
        agent = state.agents[event.agent]
        if isinstance(fault, NetworkPartition):
            agent.own_faults().partitions -= 1
        if not _is_struck(fault, agent):
            return []
        self._log.append(_ENDS[type(fault)](now, agent.number, agent.step))
        if isinstance(fault, Slow):
            return self._interruptions.slow(agent, 1 / fault.factor, now)
        if isinstance(fault, NetworkPartition):
            return []
        # A live process that was killed knows from its checkpoint whether it had done its step.
        return self._interruptions.resume(state, agent, now, "" if self._real_time else "before")


def _is_struck(fault: ProcessFault, agent: AgentRecord) -> bool:
    """Return whether a fault concerns an agent: one that has ended only where its last messages are cut off."""
    return not agent.ended or (isinstance(fault, NetworkPartition) and bool(agent.unacknowledged))


def _hit_alone(fault: ProcessFault) -> list[int]:
    """List the agents that a fault hits at separate times, or COORDINATOR where it hits all at once."""
    if isinstance(fault, Restart | NetworkPartition) or fault.rate is None:
        return [COORDINATOR]
    return [agent for agent in fault.agents if isinstance(agent, int)]
