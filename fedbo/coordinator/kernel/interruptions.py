"""Agents that are interrupted, slowed or lost, of any cause, and their absences in continuous time as the models say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from fedbo.coordinator.environment.availability import Changes, leaves
from fedbo.coordinator.kernel.event_queue import order_of
from fedbo.coordinator.kernel.events import (
    After,
    AvailabilityChanged,
    ConnectionChanged,
    Effect,
    ProcessControl,
    ProcessDied,
)
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.kernel.step_scheduler import Handler, StepScheduler
from fedbo.coordinator.logged.agents import AgentAbsent, AgentCrashed, AgentRestarted, AgentReturned, StepStarted


class Interruptions:
    """Interruptions of agents: an agent is paused as long as at least one lasts."""

    is_plain = True  # what interrupts agents in virtual time says for itself that it is not
    handlers: Mapping[type, Handler] = {}  # of a subclass's own events

    def __init__(self, rules: Rules, server: Server, scheduler: StepScheduler) -> None:
        self._log, self._real_time = rules.log, rules.environment.is_real_time
        self._server, self._scheduler, self._evaluations = server, scheduler, scheduler.evaluations

    def interrupt(self, state: CoreState, agent: AgentRecord, now: float, *, known: bool, void: bool) -> list[Effect]:
        """Interrupt an agent. `known`: the coordinator is notified. `void`: its present step must begin again.

        If the coordinator is notified, the caller settles the exchange once all agents that stop together have stopped.
        """
        agent.interruptions += 1
        step, effects = agent.current, self._evaluations.interrupt(state, agent, now, void)
        if step is not None:
            step.void |= void
            if agent.interruptions == 1 and not self._real_time:
                agent.lease += 1  # the end that was scheduled is void
                step.set_pace(now, agent.pace, 0.0)
            elif void:
                agent.lease += 1
        if known:
            agent.known_offline = True
            state.rounds.missing.discard(agent.number)
        return effects

    def resume(self, state: CoreState, agent: AgentRecord, now: float, restore: str) -> list[Effect]:
        """End one interruption; after the last one, resume or restart the step. `restore` names the state to restore first."""
        agent.interruptions -= 1
        if agent.interruptions:
            return []
        agent.known_offline = False
        return self._evaluations.resume(state, agent, now) + self._resume_step(state, agent, now, restore)

    def _resume_step(self, state: CoreState, agent: AgentRecord, now: float, restore: str) -> list[Effect]:
        """Resume an agent's step, or begin one."""
        if agent.ready:
            agent.ready = False
            return self._scheduler.begin(state, agent, now)
        step, rounds = agent.current, state.rounds
        if step is None:
            if agent.number in rounds.waiting and agent.number not in rounds.reported:  # its message or its answer is under way
                self._server.expect(state, agent)
            return []
        self._server.expect(state, agent)
        if step.void or (step.segments == () and not self._real_time):
            step.void, step.segments, step.report = False, (), None
            restarts = state.progress.restarts
            restarts[agent.number] = restarts.get(agent.number, 0) + 1
            self._log.append(StepStarted(now, agent.number, agent.step, again=True))
            return self._scheduler.dispatch(state, agent, now, restore)
        if self._real_time or self._evaluations.one_by_one:
            return []
        step.set_pace(now, 0.0, agent.pace)
        return [self._scheduler.completion(agent)]

    def cut(self, state: CoreState, agent: AgentRecord, change: int, now: float) -> list[Effect]:
        """Cut an agent off by one more partition, or by one less."""
        agent.own_faults().partitions += change
        return []

    def slow(self, state: CoreState, agent: AgentRecord, factor: float, now: float) -> list[Effect]:
        """Slow an agent down by a factor."""
        before = agent.pace
        agent.own_faults().pace = before / factor
        if self._real_time:
            return [ProcessControl(agent.number, "slow", 1 / agent.pace)]
        if self._evaluations.one_by_one:
            return self._evaluations.set_pace(agent, before, now)
        step = agent.current
        if step is None or agent.interruptions or not step.segments:
            return []
        agent.lease += 1
        step.set_pace(now, before, agent.pace)
        return [self._scheduler.completion(agent)]

    def lose(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Lose an agent for good; the caller settles the exchange, as for `interrupt`."""
        agent.lease += 1
        agent.current = None
        effects = self._evaluations.give_up(state, agent, now)
        agent.absent = agent.ready = False
        agent.ended = agent.lost = True
        state.rounds.waiting.pop(agent.number, None)
        return effects + self.remove(state, agent, now)

    def remove(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Remove a lost agent from the exchange."""
        agent.known_offline = False
        self._server.remove(state, agent, now)
        return []

    def settle(self, state: CoreState, now: float) -> list[Effect]:
        """Close a round that waits for no agent any more, now that all agents that stop together have stopped."""
        return self._server.settle(state, now)

    def connection_changed(self, state: CoreState, event: ConnectionChanged, now: float) -> list[Effect]:
        """Make an agent whose site is away absent, and let it go on with its step once the site is back."""
        agent = state.agents[event.agent]
        if agent.ended or agent.is_disconnected == event.away:
            return []
        agent.own_faults().disconnected = event.away
        if not event.away:
            self._log.append(AgentReturned(now, agent.number, agent.step))
            return self.resume(state, agent, now, restore="")
        self._log.append(AgentAbsent(now, agent.number, agent.step))
        return self.interrupt(state, agent, now, known=True, void=False) + self.settle(state, now)

    def process_died(self, state: CoreState, event: ProcessDied, now: float) -> list[Effect]:
        """Process the death of a process without a planned fault: its agent begins again in a new one."""
        agent = state.agents[event.agent]
        if agent.ended or agent.interruptions:
            return []
        self._log.append(AgentCrashed(now, agent.number, agent.step, permanent=False))
        self._log.append(AgentRestarted(now, agent.number, agent.step))
        if agent.current is None:
            return []
        self._log.append(StepStarted(now, agent.number, agent.step, again=True))
        return self._scheduler.dispatch(state, agent, now)


class Presence:
    """The presence of agents; the coordinator is notified of absences, so that no round waits for an absent agent."""

    def __init__(self, rules: Rules, interruptions: Interruptions) -> None:
        self._environment, self._log, self._interruptions = rules.environment, rules.log, interruptions
        self.changes = Changes(lambda agent: rules.environment.of(agent).availability, rules.task.streams)
        self._is_lazy = rules.is_lazy

    @property
    def is_plain(self) -> bool:
        """Check whether no agent ever leaves."""
        return not any(leaves(models.availability) for models in self._environment.groups())

    def time_of(self, event: AvailabilityChanged) -> float:
        """Return when an agent leaves or returns for the event's time; infinity if never."""
        return self.changes(event.agent, event.number)

    def start(self, state: CoreState, agents: Iterable[int], now: float) -> list[Effect]:
        """Interrupt the agents that are away from the start, and schedule the first absences of the others."""
        if self.is_plain:
            return []
        effects = list[Effect]()
        for number in [one for one in agents if leaves(self._environment.of(one).availability)]:
            if self.changes(number, 0) == now:
                effects += self.changed(state, AvailabilityChanged(number, 0), now)
            else:
                effects += self.next_change(number, 0, -math.inf)
        return effects

    def switch(self, state: CoreState, away: Mapping[int, bool], now: float) -> list[Effect]:
        """Switch agents, present or away, to models that have held from the start; ended agents stay unchanged."""
        effects = list[Effect]()
        for number, is_away in sorted(away.items()):
            agent, place = state.agents[number], 0
            while self.changes(number, place) <= now:
                place += 1
            if agent.ended:
                continue
            if is_away == bool(place % 2):
                effects += self.next_change(number, place, now)
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
            return effects + self.next_change(agent.number, number + 1, now)
        is_idle = self._is_lazy and agent.number not in state.rounds.active
        self._log.append(AgentAbsent(now, agent.number, agent.step))
        void = self._environment.of(agent.number).leaving == "lost"
        effects = self._interruptions.interrupt(state, agent, now, known=True, void=void)
        if self.changes(agent.number, number + 1) == math.inf:
            effects += self._interruptions.lose(state, agent, now)
        effects += [] if is_idle else self._interruptions.settle(state, now)
        return effects + self.next_change(agent.number, number + 1, now)

    def next_change(self, agent: int, number: int, since: float) -> list[Effect]:
        """Schedule an agent's change of this number, which is known since that time."""
        time, event = self.changes(agent, number), AvailabilityChanged(agent, number)
        return [] if time == math.inf else [After(time - max(since, 0.0), event, time, order_of(event, since))]
