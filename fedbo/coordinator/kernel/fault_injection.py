"""Faults of the plan that hit agents or the coordinator; those that hit messages are the network's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set

from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.environment.fault_times import FaultTimes
from fedbo.coordinator.environment.faults import (
    PROCESS_FAULTS,
    Crash,
    Hang,
    NetworkPartition,
    ProcessFault,
    Restart,
    Slow,
    is_shared,
)
from fedbo.coordinator.kernel.event_queue import order_of
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
        self._log, self._real_time, streams = rules.log, rules.environment.is_real_time, rules.task.streams
        self._is_lazy = rules.is_lazy
        self._server, self._interruptions, self._participants = server, interruptions, rules.participants
        plan = rules.environment.plan
        self.faults = {place: fault for place, fault in enumerate(plan) if isinstance(fault, PROCESS_FAULTS)}
        self.times = FaultTimes(self.faults, "fault", lambda owner: streams.of(owner).at(0), streams)
        self.is_plain = not plan
        self.at_events = sorted((fault.event, place) for place, fault in self.faults.items() if fault.event is not None)

    def start(self, now: float) -> list[Effect]:
        """Schedule the first time of each fault; lazily those alone that hit all of their agents at once."""
        pairs = [(place, agent) for place, fault in self.faults.items() for agent in hit_alone(fault)]
        pairs = [(place, agent) for place, agent in pairs if agent == COORDINATOR or not self._is_lazy]
        return [effect for place, agent in pairs for effect in self.schedule(place, agent, 0, -math.inf)]

    def switch(self, places: Set[int], now: float) -> list[Effect]:
        """Schedule the next time of the faults at these places of the plan, which are new or have changed."""
        effects = list[Effect]()
        for place in sorted(places & self.faults.keys()):
            for agent in hit_alone(self.faults[place]):
                number = 0
                while self.times.at(place, agent, number) < now:
                    number += 1
                effects += self.schedule(place, agent, number, now)
        return effects

    def at_event(self, events: int) -> list[Effect]:
        """Begin the faults that are due after so many events."""
        return [After(0.0, FaultStarted(place, COORDINATOR, 0)) for number, place in self.at_events if number == events]

    def schedule(self, place: int, agent: int, number: int, since: float) -> list[Effect]:
        """Schedule a fault's time of this number, which is known since that time."""
        event = FaultStarted(place, agent, number)
        time = self.time_of(event)
        return [] if time == math.inf else [After(time - max(since, 0.0), event, time, order_of(event, since))]

    def time_of(self, event: FaultStarted) -> float:
        """Return when a fault that does not wait for a number of events begins for the event's time; infinity if never."""
        owner = event.agent if hits_alone(self.faults[event.fault]) else COORDINATOR
        return self.times.at(event.fault, owner, event.number)

    def started(self, state: CoreState, event: FaultStarted, now: float) -> list[Effect]:
        """Begin a fault, of one agent or of all of its agents, and schedule its next time."""
        fault, alone = self.faults[event.fault], event.agent >= 0
        if isinstance(fault, Restart):
            effects = self._stop_coordinator(state, event, now)
            return effects + self.schedule(event.fault, event.agent, event.number + 1, now)
        effects, active = list[Effect](), state.rounds.active
        is_idle = self._is_lazy and alone and event.agent not in active
        for number in [event.agent] if alone else self._hit(fault, active):
            if number in self._participants and _is_struck(fault, state.agents[number]):
                effects += self._begin(state, event, state.agents[number], now)
        if isinstance(fault, Crash) and not is_idle:
            effects += self._interruptions.settle(state, now)
        if alone and state.agents[event.agent].ended:
            return effects
        return effects + self.schedule(event.fault, event.agent, event.number + 1, now)

    def _hit(self, fault: Crash | Hang | Slow | NetworkPartition, active: Set[int]) -> list[int]:
        """List the agents that a fault hits at once, and to whom it does not only happen when somebody looks."""
        return [agent for agent in fault.agents if isinstance(agent, int) and (agent in active or not self._is_lazy)]

    def _begin(self, state: CoreState, event: FaultStarted, agent: AgentRecord, now: float) -> list[Effect]:
        fault, lasting = self.faults[event.fault], self.times.lasting(event.fault, agent.number, event.number)
        self._log.append(self.line(event.fault, agent, now))
        effects: list[Effect] = [] if lasting == math.inf else [After(lasting, FaultEnded(event.fault, agent.number))]
        if isinstance(fault, Crash):
            return effects + self._crash(state, fault, agent, now)
        if isinstance(fault, Hang):
            if self._real_time:
                effects.append(ProcessControl(agent.number, "hold", now + lasting))
            return effects + self._interruptions.interrupt(state, agent, now, known=False, void=False)
        if isinstance(fault, Slow):
            return effects + self._interruptions.slow(state, agent, fault.factor, now)
        return effects + self._interruptions.cut(state, agent, 1, now)

    def line(self, place: int, agent: AgentRecord, now: float) -> EventLine:
        """Return the line that says that a fault of an agent has begun."""
        fault, number, step = self.faults[place], agent.number, agent.step
        if isinstance(fault, Crash):
            state = None if fault.restart is None else fault.state
            return AgentCrashed(now, number, step, permanent=fault.restart is None, state=state)
        if isinstance(fault, Slow):
            return AgentSlowed(now, number, step, fault.factor)
        return AgentHung(now, number, step) if isinstance(fault, Hang) else LinkCut(now, number, step)

    def _crash(self, state: CoreState, fault: Crash, agent: AgentRecord, now: float) -> list[Effect]:
        effects: list[Effect] = [ProcessControl(agent.number, "kill")] if self._real_time else []
        if fault.restart is None:
            return effects + self._interruptions.lose(state, agent, now)
        if fault.state == "lost":
            agent.own_faults().needs_restore = True
            agent.t_n = agent.saved_t_n
        return effects + self._interruptions.interrupt(state, agent, now, known=True, void=True)

    def _stop_coordinator(self, state: CoreState, event: FaultStarted, now: float) -> list[Effect]:
        self._log.append(CoordinatorDown(now, state.rounds.number))
        state.outages += 1
        lasting = self.times.lasting(event.fault, COORDINATOR, event.number)
        effects: list[Effect] = [After(lasting, FaultEnded(event.fault, COORDINATOR))]
        return [*effects, ProcessControl(COORDINATOR, "kill")] if self._real_time else effects

    def ended(self, state: CoreState, event: FaultEnded, now: float) -> list[Effect]:
        """End a fault."""
        fault = self.faults[event.fault]
        if isinstance(fault, Restart):
            self._log.append(CoordinatorUp(now, state.rounds.number))
            state.outages -= 1
            return self._server.settle(state, now)
        agent, effects = state.agents[event.agent], list[Effect]()
        if isinstance(fault, NetworkPartition):
            effects = self._interruptions.cut(state, agent, -1, now)
        if not _is_struck(fault, agent):
            return effects
        self._log.append(_ENDS[type(fault)](now, agent.number, agent.step))
        if isinstance(fault, Slow):
            return self._interruptions.slow(state, agent, 1 / fault.factor, now)
        if isinstance(fault, NetworkPartition):
            return effects
        # A live process that was killed knows from its checkpoint whether it had done its step.
        return self._interruptions.resume(state, agent, now, "" if self._real_time else "before")


def _is_struck(fault: ProcessFault, agent: AgentRecord) -> bool:
    """Return whether a fault concerns an agent: one that has ended only where its last messages are cut off."""
    return not agent.ended or (isinstance(fault, NetworkPartition) and bool(agent.unacknowledged))


def hits_alone(fault: ProcessFault) -> bool:
    """Check whether a fault hits its agents at separate times, and not all at once."""
    return not is_shared(fault) and fault.rate is not None


def hit_alone(fault: ProcessFault) -> list[int]:
    """List the agents that a fault hits at separate times, or COORDINATOR where it hits all at once."""
    if isinstance(fault, Restart) or not hits_alone(fault):
        return [COORDINATOR]
    return [agent for agent in fault.agents if isinstance(agent, int)]
