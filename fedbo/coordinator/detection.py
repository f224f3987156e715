"""Detection by heartbeats: the coordinator learns late that an agent is silent, and may be wrong.

Agent k of N sends a heartbeat at (i + k / N) times the interval, i = 0, 1, ..., which takes no time. One that is crashed,
hung, away or cut off sends none, nor does one that is so slow that its interval exceeds the time-out. Once none has come for
the time-out, the coordinator takes the agent for dead: no round waits for it, and another agent gets its turn. With the next
heartbeat it is believed again. Without detection the coordinator knows of crashes and absences at once, and never of the
rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from fedbo.coordinator.kernel.events import After, BeliefChanged, Effect
from fedbo.coordinator.kernel.interruptions import Interruptions
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.kernel.step_scheduler import StepScheduler
from fedbo.coordinator.logged.agents import AgentSuspected, AgentTrusted
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import Marked


@dataclass(frozen=True, slots=True)
class Detection(Marked):
    """Heartbeats, and for how long none may come."""

    heartbeat: Annotated[float, Gt(0)] = 1.0
    """Units of time between two heartbeats of an agent."""
    timeout: Annotated[float, Gt(0)] = 3.0
    """Units of time without a heartbeat after which an agent is taken for dead."""

    def __post_init__(self) -> None:
        Marked.__post_init__(self)
        if self.timeout < self.heartbeat:
            raise SettingError("timeout", f"must be at least the heartbeat of {self.heartbeat:g}", self.timeout)


class Detector(Interruptions):
    """Interruptions that the coordinator hears of by missing heartbeats."""

    is_plain = False

    def __init__(self, rules: Rules, server: Server, scheduler: StepScheduler) -> None:
        super().__init__(rules, server, scheduler)
        self._n_agents = rules.problem.n_agents
        self._model: Detection = rules.environment.detection
        self.handlers = {BeliefChanged: self.changed}

    def interrupt(self, state: CoreState, agent: AgentRecord, now: float, *, known: bool, void: bool) -> list[Effect]:
        """Interrupt an agent, of which the coordinator is not notified."""
        effects = super().interrupt(state, agent, now, known=False, void=void)
        return effects + self._listen(state, agent, now)

    def resume(self, state: CoreState, agent: AgentRecord, now: float, restore: str) -> list[Effect]:
        """End one interruption; the coordinator believes an agent again with its next heartbeat."""
        dead = agent.known_offline
        effects = super().resume(state, agent, now, restore)
        if dead and not agent.ended:
            agent.known_offline = True
            state.rounds.missing.discard(agent.number)
        return effects + self._listen(state, agent, now)

    def slow(self, state: CoreState, agent: AgentRecord, factor: float, now: float) -> list[Effect]:
        """Slow an agent down, and its heartbeats with it."""
        return super().slow(state, agent, factor, now) + self._listen(state, agent, now)

    def cut(self, state: CoreState, agent: AgentRecord, change: int, now: float) -> list[Effect]:
        """Cut an agent off by one more partition, or by one less."""
        super().cut(state, agent, change, now)
        return self._listen(state, agent, now)

    def remove(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Let the round wait for a lost agent, until it is taken for dead."""
        if agent.known_offline:
            return super().remove(state, agent, now)
        return self._listen(state, agent, now)

    def _listen(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Schedule what the coordinator will believe, if an agent falls silent or is heard again."""
        interval, number = self._model.heartbeat, agent.number
        held = bool(agent.interruptions or agent.is_cut_off or agent.lost)
        silent = held or interval / agent.pace > self._model.timeout
        if silent == (number in state.beliefs) or (agent.ended and not agent.lost):
            return []
        phase = interval * number / self._n_agents
        last = math.floor((now - phase) / interval) * interval + phase
        if silent:
            state.beliefs[number] = state.progress.events
            due, dead = last + self._model.timeout, True
        else:
            del state.beliefs[number]
            if not agent.known_offline:
                return []
            due, dead = last + interval, False
        return [After(max(0.0, due - now), BeliefChanged(number, state.beliefs.get(number, -1), dead))]

    def changed(self, state: CoreState, event: BeliefChanged, now: float) -> list[Effect]:
        """Change what the coordinator believes of an agent."""
        agent = state.agents[event.agent]
        expected = state.beliefs.get(agent.number, -1) == event.number and agent.known_offline != event.dead
        if not expected or (agent.ended and not agent.lost):
            return []
        agent.known_offline = event.dead
        line = AgentSuspected if event.dead else AgentTrusted
        self._log.append(line(now, agent.number, agent.step))
        if not event.dead:
            waits = agent.number in state.rounds.waiting and agent.number not in state.rounds.reported
            if waits or agent.current is not None:
                self._server.expect(state, agent)
            return self._server.settle(state, now)
        state.rounds.missing.discard(agent.number)
        if agent.lost:
            self._server.remove(state, agent, now)
        return self._server.settle(state, now)
