"""Agents that take turns without rounds: so many work at once, and when one reports, an idle one is drawn in its place.

These are FedBuff's experiments (Nguyen et al. 2022, section 4): a drawn agent is told what holds since the last full buffer,
and is idle again once its message has arrived. A message takes effect with its buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedbo.algorithms.returned import pair
from fedbo.coordinator.kernel.events import Answer, Effect, Message
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.logged.messages import AgentDrawn, TransmissionRejected
from fedbo.coordinator.selection import Knowledge

TRIES = 20  # draws of agents that may be away, before those that are there are listed


@dataclass(slots=True)
class Turns:
    """The agents that wait for their turn.

    - `idle`: their numbers, in no order.
    - `drawn`: the number of turns so far; `sent`: the bytes of the answers since the last update.
    - `held`: messages that take effect with their buffer.
    """

    idle: list[int]
    drawn: int = 0
    sent: int = 0
    held: list[Message] = field(default_factory=list)


class TurnServer(Server):
    """A server under which at most `concurrency` agents work at once, in a mode without rounds."""

    is_plain = False

    def __init__(self, rules: Rules, network: Network) -> None:
        super().__init__(rules, network)
        self._most = min(rules.turns, len(rules.participants))
        self._detects = rules.environment.detection is not None
        self._selection = rules.exchange.selection
        self._holds = getattr(rules.exchange, "k", None) is not None

    def enlist(self, state: CoreState, now: float, number: int = 0) -> tuple[list[int], list[Effect]]:
        """Draw the agents that work first."""
        state.rounds.turns = Turns(sorted(self._rules.participants))
        return sorted(one for _ in range(self._most) if (one := self._draw(state)) is not None), []

    def accept(self, state: CoreState, message: Message, asked: bool, now: float) -> TransmissionRejected | None:
        """Hold a message until its buffer is full; where there is none, let it take effect at once."""
        if not self._holds:
            return super().accept(state, message, asked, now)
        state.rounds.turns.held.append(message)
        return None

    def report(self, state: CoreState, agent: AgentRecord, counted: bool, now: float) -> list[Effect]:
        """End an agent's turn, since it has sent its message, or has none to send."""
        rounds = state.rounds
        state.progress.note(now)
        if counted:
            rounds.buffer.append(agent.number)
            rounds.messages += 1
        if agent.ended and not agent.unacknowledged:
            return self.leave(state, agent, now)
        if not agent.ended:
            rounds.reported.add(agent.number)
        return self.settle(state, now)

    def given_up(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """End the turn of an agent whose message never arrived."""
        return self.report(state, agent, False, now)

    def settle(self, state: CoreState, now: float) -> list[Effect]:
        """Update with a full buffer, and give free turns to idle agents."""
        rounds, effects = state.rounds, list[Effect]()
        if state.outages or rounds.turns is None:  # nobody was drawn yet
            return effects
        rested = sorted(rounds.reported)
        self._rest(rounds, rested)
        rounds.turns.idle += rested
        rounds.reported = set()
        if self._should_close(rounds):
            self._update(state, now)
        while self._working(state) < self._most and (agent := self._draw(state)) is not None:
            effects += self._begin(state, state.agents[agent], now)
        return effects

    def _update(self, state: CoreState, now: float) -> None:
        """Let the messages of a full buffer take effect."""
        turns = state.rounds.turns
        for message in turns.held:
            if refused := super().accept(state, message, True, now):
                self._log.append(refused)
        self.close(state, turns.sent, now)
        turns.held, turns.sent = [], 0

    def _working(self, state: CoreState) -> int:
        """Count the agents that have a turn, without those that are taken for dead by missing heartbeats."""
        active = state.rounds.active
        return sum(not state.agents[number].known_offline for number in active) if self._detects else len(active)

    def _draw(self, state: CoreState) -> int | None:
        """Draw an idle agent that is not known to be away, or any one where all are; None if no agent is idle."""
        turns, agents = state.rounds.turns, state.agents
        streams = self._rules.streams.at(turns.drawn)
        turns.drawn += 1
        for attempt in range(0 if self._selection.is_informed else TRIES):
            if not turns.idle:
                return None
            place = int(streams.uniform(f"turn {attempt}") * len(turns.idle))
            one = agents[turns.idle[place]]
            if not (one.ended or one.known_offline):
                return self.take(state, place)
        turns.idle = [number for number in turns.idle if not agents[number].ended]
        there = [place for place, number in enumerate(turns.idle) if not agents[number].known_offline]
        if self._detects and state.rounds.active and not there:
            return None  # until one of them is believed again
        places = {turns.idle[place]: place for place in there or range(len(turns.idle))}
        if not places:
            return None
        drawn = self._selection.of_number(sorted(places), 1, Knowledge(state, self._method), streams)
        return self.take(state, places[drawn.pop()])

    def take(self, state: CoreState, place: int) -> int:
        """Give the turn to the idle agent at a place."""
        idle = state.rounds.turns.idle
        idle[place], idle[-1] = idle[-1], idle[place]
        state.rounds.active.add(idle[-1])
        return int(idle.pop())

    def _begin(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Tell a drawn agent what holds now; its initial points depend on nothing that it could be told."""
        number = agent.step + 1 if agent.lease else 0  # of the step, since it may be drawn again before the next update
        payload: Any = None
        if agent.lease:
            streams = self._rules.streams.at(state.rounds.turns.drawn)
            payloads, state.server = pair(self._method, "broadcast", state.server, [agent.number], self.weights(state), streams)
            payload = payloads.get(agent.number)
        inbound = self._checked(agent.number, number, payload, now)
        state.rounds.waiting[agent.number] = number
        bytes_ = 0 if inbound is None else self._bytes(inbound.payload)
        state.rounds.turns.sent += bytes_
        self._log.append(AgentDrawn(now, agent.number, number, bytes_))
        return self._network.send_down(state, Answer(agent.number, inbound, number), bytes_, now)
