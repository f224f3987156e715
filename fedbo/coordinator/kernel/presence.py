"""Absences in continuous time: agents that leave and return as their availability model says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from fedbo.coordinator.environment.availability import Changes, leaves
from fedbo.coordinator.kernel.events import After, AvailabilityChanged, Effect
from fedbo.coordinator.kernel.interruptions import Interruptions
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.logged.agents import AgentAbsent, AgentReturned


class Presence:
    """The presence of agents; the coordinator is notified of absences, so that no round waits for an absent agent."""

    def __init__(self, rules: Rules, interruptions: Interruptions) -> None:
        self._environment, self._log, self._interruptions = rules.environment, rules.log, interruptions
        self._changes = Changes(lambda agent: rules.environment.of(agent).availability, rules.task.streams)

    @property
    def is_plain(self) -> bool:
        """Check whether no agent ever leaves."""
        return not any(leaves(models.availability) for models in self._environment.groups())

    def time_of(self, event: AvailabilityChanged) -> float:
        """Return when an agent leaves or returns for the event's time; infinity if never."""
        return self._changes(event.agent, event.number)

    def start(self, state: CoreState, agents: Iterable[int], now: float) -> list[Effect]:
        """Interrupt the agents that are away from the start, and schedule the first absences of the others."""
        if self.is_plain:
            return []
        leaving = (number for number in agents if leaves(self._environment.of(number).availability))
        return [effect for number in leaving for effect in self._start(state, state.agents[number], now)]

    def _start(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        if self._changes(agent.number, 0) == now:
            return self.changed(state, AvailabilityChanged(agent.number, 0), now)
        return self._next_change(agent, 0, now)

    def switch(self, state: CoreState, away: Mapping[int, bool], now: float) -> list[Effect]:
        """Switch agents, present or away, to models that have held from the start; ended agents stay unchanged."""
        effects = list[Effect]()
        for number, is_away in sorted(away.items()):
            agent, place = state.agents[number], 0
            while self._changes(number, place) <= now:
                place += 1
            if agent.ended:
                continue
            if is_away == bool(place % 2):
                effects += self._next_change(agent, place, now)
            else:
                effects.append(After(0.0, AvailabilityChanged(number, place - 1)))
        return effects

    def changed(self, state: CoreState, event: AvailabilityChanged, now: float) -> list[Effect]:
        """Make an agent leave or return; one that would never return is lost for good."""
        agent, number = state.agents[event.agent], event.number
        if agent.ended:
            return []
        if number % 2:
            self._log.append(AgentReturned(now, agent.number, agent.step))
            effects = self._interruptions.resume(state, agent, now, restore="before")
            return effects + self._next_change(agent, number + 1, now)
        self._log.append(AgentAbsent(now, agent.number, agent.step))
        void = self._environment.of(agent.number).leaving == "lost"
        effects = self._interruptions.interrupt(state, agent, now, known=True, void=void)
        if self._changes(agent.number, number + 1) == math.inf:
            effects += self._interruptions.lose(state, agent, now)
        effects += self._interruptions.settle(state, now)
        return effects + self._next_change(agent, number + 1, now)

    def _next_change(self, agent: AgentRecord, number: int, now: float) -> list[Effect]:
        time = self._changes(agent.number, number)
        return [] if time == math.inf else [After(time - now, AvailabilityChanged(agent.number, number))]
