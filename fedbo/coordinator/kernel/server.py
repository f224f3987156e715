"""The server of a run: the participants, the end of a round or a buffer, and the answers that follow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array, Inbound, Waiting
from fedbo.algorithms.messages import checker, sizer
from fedbo.algorithms.returned import updated, wrong_message
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.kernel.events import After, Answer, Effect, Message, RoundDeadline
from fedbo.coordinator.kernel.exchange import Answers, InRounds, Rounds
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.logged.messages import RoundClosed, TransmissionRejected
from fedbo.coordinator.selection import Knowledge


class IdleAgents:
    """The idle agents of a run in which all that happens to them is an event; a subclass looks at them when they are asked."""

    handlers: Mapping[type, Any] = {}  # of events, in place of the core's

    def away(self, state: CoreState, idle: npt.NDArray[np.bool_], now: float) -> npt.NDArray[np.bool_]:
        """Return which of the `idle (N,)` agents are known to be away; those that are lost are idle no more."""
        away = np.zeros_like(idle)
        away[[agent.number for agent in state.agents.every() if agent.known_offline]] = True
        return away

    def wake(self, state: CoreState, agents: Sequence[int], now: float) -> list[Effect]:
        """Let all happen to agents that has been due, since they are asked now; schedule what will."""
        return []


class Server:
    """The server: records the agents that have reported, and answers when the exchange mode requires it."""

    idle = IdleAgents()  # the core may have another one

    def __init__(self, rules: Rules, network: Network) -> None:
        self._rules, self._network = rules, network
        self._exchange, self._receipt, self._log = rules.exchange, rules.receipt, rules.log
        self._bytes, self._ones = sizer(rules.download, rules.receipt.more_down), np.ones(rules.problem.n_agents)
        self._fault = None if rules.download is None else checker(rules.download)
        self._synchronous, self._is_constant = rules.is_synchronous, rules.exchange.staleness.is_constant
        self._oldest, self._idles, self._minimum = rules.exchange.oldest, rules.idles, getattr(rules.exchange, "minimum", 1)
        self._participants = np.array(sorted(rules.participants) if self._idles else (), dtype=np.int64)
        self._waiting, self._adapts = isinstance(rules.algorithm, Waiting), getattr(rules.exchange, "adapts", False)
        self._method, self._should_close = rules.algorithm, rules.exchange.should_close
        self.tells = rules.is_synchronous or getattr(rules.exchange, "k", None) is not None  # of rounds and buffers

    @property
    def is_plain(self) -> bool:
        """Check whether all agents are asked, a count closes rounds, messages do not age, and no one waits for another."""
        exchange: Any = self._exchange
        ages = not exchange.staleness.is_constant or exchange.oldest is not None
        counts = type(exchange).should_close in (Answers.should_close, InRounds.should_close)
        return counts and exchange.selection.who == "all" and not (ages or self._waiting or self._adapts)

    def accept(self, state: CoreState, message: Message, asked: bool, now: float) -> TransmissionRejected | None:
        """Let a message take effect, or return the log line that refuses it."""
        return self._receipt.accept(state, message, asked, now)

    def report(self, state: CoreState, agent: AgentRecord, counted: bool, now: float) -> list[Effect]:
        """Record that an agent has sent its message, or has none to send."""
        rounds, synchronous, timed = state.rounds, self._synchronous, list[Effect]()
        state.progress.note(now)
        if self._adapts and counted:
            rounds.arrivals.append(now - rounds.opened)
            timed = self.time_round(state, now)
        if agent.ended:
            rounds.messages += counted and synchronous
            return timed + (self.settle(state, now) if agent.unacknowledged else self.leave(state, agent, now))
        if not synchronous:
            rounds.buffer.append(agent.number)
            rounds.messages += counted
        elif agent.number in rounds.waiting:
            rounds.reported.add(agent.number)
            rounds.missing.discard(agent.number)
            rounds.messages += counted
        return timed + self.settle(state, now)

    def given_up(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Record that an agent's message never arrived: a round stops waiting for it; without rounds nothing is answered."""
        if self._synchronous or agent.ended:
            return self.report(state, agent, False, now)
        state.progress.note(now)
        return self.settle(state, now)

    def leave(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Remove an agent from the exchange."""
        self.remove(state, agent, now)
        return self.settle(state, now)

    def remove(self, state: CoreState, agent: AgentRecord, now: float) -> None:
        """Remove an agent from the exchange, without checking yet whether a round closes."""
        state.progress.note(now)
        # A message that arrives later finds its agent gone; where agents idle, they leave from outside a round.
        if self._waiting and (self._idles or agent.number in state.rounds.active):
            state.server = updated(self._method, "left", state.server, agent.number)
            state.rounds.left = True
        state.rounds.remove((agent.number,))

    def expect(self, state: CoreState, agent: AgentRecord) -> None:
        """Make the open round wait for an agent that was asked to send."""
        asked = self._synchronous and not agent.known_offline and (agent.asked or self._receipt.hides_asked)
        if asked and agent.number in state.rounds.active:
            state.rounds.missing.add(agent.number)

    def settle(self, state: CoreState, now: float) -> list[Effect]:
        """Close the open round, or answer the buffer, if that is due."""
        rounds = state.rounds
        if state.outages:
            return []
        if self._idles and rounds.number > self._rules.problem.iterations:  # after the last round nobody opens another one
            self._rest(rounds, rounds.reported)
            rounds.reported = set()
            return []
        closes = self._should_close(rounds) or (rounds.deadline_passed and rounds.may_be_overdue)
        closes = closes and (self._oldest is None or not self._stays_open(state, self._oldest))
        # A buffer that can no longer be filled, because everybody waits, is answered as it is.
        stuck = bool(rounds.buffer) and not closes and rounds.active <= rounds.waiting.keys()
        return self._answer(state, now) if closes or stuck or (rounds.left and self._waits_in_vain(state)) else []

    def _waits_in_vain(self, state: CoreState) -> bool:
        """Check whether all remaining agents wait for agents that have left, with no message on its way."""
        active = [state.agents[agent] for agent in state.rounds.active]
        waiting = all(state.rounds.waiting.get(one.number, 0) is None and not one.unacknowledged for one in active)
        return bool(active) and waiting and not self._synchronous

    def _stays_open(self, state: CoreState, oldest: int) -> bool:
        """Check whether a message on its way would be too old after the open round."""
        missing = (state.agents[agent] for agent in state.rounds.missing)
        begun = [one for one in missing if one.current is not None or one.step in one.unacknowledged]
        return any(state.rounds.number - one.base >= oldest for one in begun)

    def deadline(self, state: CoreState, event: RoundDeadline, now: float) -> list[Effect]:
        """Process the deadline of the open round."""
        if event.number != state.rounds.number or event.arrivals != len(state.rounds.arrivals):
            return []
        state.rounds.deadline_passed = True  # without a message so far, the round closes with the first that takes effect
        return self.settle(state, now)

    def _answer(self, state: CoreState, now: float) -> list[Effect]:
        """Close the open round, or empty the buffer: aggregate, and send the answers."""
        recipients = recipients_of(state.rounds, self._synchronous)
        effects = list[Effect]()
        if self._idles:
            recipients, effects = self._next_cohort(state, recipients, now)
        # Who has not begun only hears that it shall: no message would change its initial points.
        begun = [agent for agent in recipients if state.agents[agent].lease] if self._idles else recipients
        payloads = self.aggregate(state, begun, now)
        effects += self.reply(state, recipients, payloads, now)
        return effects + self.open(state, recipients, now) if self._synchronous else effects

    def reply(self, state: CoreState, recipients: Sequence[int], payloads: dict[int, Any], now: float) -> list[Effect]:
        """Close the open round, or the answering occasion, and send the payloads."""
        rounds, synchronous, number = state.rounds, self._synchronous, state.rounds.number
        if not synchronous and list(payloads) != recipients:  # others may have waited for what these have sent
            recipients = sorted({*recipients, *(payloads.keys() & rounds.active)})
        self.close(state, self.weigh(payloads.values()), now)
        effects: list[Effect] = []
        for agent in recipients:
            inbound = self._checked(agent, number, payloads.get(agent), now)
            if inbound is None and not synchronous:
                continue
            if agent in rounds.waiting:
                rounds.waiting[agent] = number
            bytes_ = 0 if inbound is None else self._bytes(inbound.payload)
            effects += self._network.send_down(state, Answer(agent, inbound, number), bytes_, now)
        if rounds.unmasking:
            effects = [After(one.delay + rounds.unmasking, one.event) if isinstance(one, After) else one for one in effects]
        return effects

    def weigh(self, payloads: Iterable[Any]) -> int:
        """Return the bytes of answers."""
        return sum(map(self._bytes, payloads))

    def close(self, state: CoreState, bytes_: int, now: float) -> None:
        """Close the open round, or the answering occasion, with so many bytes of answers."""
        if self.tells:
            self._log.append(RoundClosed(now, state.rounds.number, bytes_))
        state.rounds.close(now)

    @staticmethod
    def _rest(rounds: Rounds, reported: Collection[int]) -> None:
        """Make agents that have reported idle again."""
        rounds.active.difference_update(reported)
        for agent in reported:
            del rounds.waiting[agent]

    def _next_cohort(self, state: CoreState, reported: Sequence[int], now: float) -> tuple[list[int], list[Effect]]:
        """Make agents that have reported idle again, and enlist others for the next round; none after the last one."""
        rounds = state.rounds
        self._rest(rounds, reported)
        if rounds.number >= self._rules.problem.iterations:
            return [], []
        cohort, effects = self.enlist(state, now, rounds.number + 1)
        rounds.waiting.update(dict.fromkeys(cohort))
        return cohort, effects

    def enlist(self, state: CoreState, now: float, number: int = 0) -> tuple[list[int], list[Effect]]:
        """Draw the agents that work in round `number`, among the idle agents that are present, or all idle ones if none is."""
        known, selection = list(state.agents.every()), self._exchange.selection
        idle = np.zeros(self._rules.problem.n_agents, dtype=bool)
        idle[self._participants] = True
        idle[[agent.number for agent in known if agent.ended] + list(state.rounds.active)] = False
        away = self.idle.away(state, idle, now)
        there = idle & ~away
        agents = np.flatnonzero(there if there.any() else idle)
        chosen = sorted(selection.of_round(agents, Knowledge(state, self._method), self._rules.streams.at(number)))
        effects = self.idle.wake(state, chosen, now)
        state.rounds.active.update(chosen)
        return chosen, effects

    def aggregate(self, state: CoreState, recipients: Sequence[int], now: float) -> dict[int, Any]:
        """Compute the answers of the algorithm's coordinator half."""
        return self._receipt.answer(state, recipients, self.weights(state), now)

    def weights(self, state: CoreState) -> Array:
        """Return the present weight of each agent's newest message `(N,)`."""
        if self._is_constant:
            return self._ones
        staleness = self._exchange.staleness
        weights = np.zeros(self._rules.problem.n_agents)
        for agent in state.agents.every():
            if (base := agent.newest_base) >= 0:
                weights[agent.number] = staleness.of(state.rounds.number - base)
        return weights

    def _checked(self, agent: int, number: int, payload: Any, now: float) -> Inbound | None:
        """Make an answer of a payload; ReturnError when it is not as declared."""
        if payload is None:
            return None
        if words := "no answers are declared" if self._fault is None else self._fault(payload):
            raise wrong_message(self._method, "broadcast", words, self._rules.download, f"to agent {agent}, answer {number}")
        return Inbound(COORDINATOR, step=number, sent=now, payload=payload)

    def open(self, state: CoreState, agents: Sequence[int], now: float) -> list[Effect]:
        """Open a round with the agents that begin it."""
        rounds = state.rounds
        if not self._synchronous or self._rules.upload is None:
            return []
        chosen = set(agents) if self._idles else self._receipt.sample(state, agents)
        records = state.agents.ask(agents, chosen)  # all others are there
        # With nobody to wait for, the first who is done would close the round: it waits for all then. It also does so where
        # its length would give away who was asked.
        expected = agents if not chosen or self._receipt.hides_asked else chosen
        rounds.missing.update(expected)
        rounds.missing.difference_update([record.number for record in records if record.known_offline])
        # A round that asks nobody waits for no message beyond its deadline, unless dummies hide who was asked.
        rounds.deadline_passed, rounds.is_heard = False, not chosen and not self._rules.sends_dummies
        rounds.least = self._minimum if chosen and self._minimum > 1 else 0
        rounds.expected = len(rounds.missing)
        return self.time_round(state, now)

    def time_round(self, state: CoreState, now: float) -> list[Effect]:
        """Schedule the deadline of the open round, if it has one."""
        rounds = state.rounds
        if (limit := self._exchange.deadline_of(rounds)) is None:
            return []
        limit += rounds.unmasking
        left = limit if now == rounds.opened else max(0.0, rounds.opened + limit - now)
        return [After(left, RoundDeadline(rounds.number, len(rounds.arrivals)))]


def recipients_of(rounds: Rounds, synchronous: bool) -> list[int]:
    """List the agents to answer."""
    buffer, active = rounds.buffer, rounds.active
    if synchronous:
        return sorted(rounds.reported & active)
    if len(buffer) == 1:
        return buffer[:] if buffer[0] in active else []
    return sorted(active.intersection(buffer))
