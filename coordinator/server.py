"""The server of a run: messages that arrive, rounds that close, and the answers that go out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbo.algorithms.base import Array, Inbound, Payload
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.events import AckTimeout, AnswerReceived, Effect, MessageAtLink, MessageReceived, RoundDeadline
from fedbo.coordinator.exchange import revealed
from fedbo.coordinator.messages import MOST, fault, size, varies, weight
from fedbo.coordinator.state import ProtocolError

if TYPE_CHECKING:
    from fedbo.coordinator.core import Core


class Server:
    """The server: takes messages in, notes who has reported, and answers when the exchange mode says so."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # None where each message has a size of its own.
        self._up_bytes, self._down_bytes = (
            None if varies(declared) else weight(declared) for declared in (core.upload, core.download)
        )
        self._ones = np.ones(core.problem.n_agents)
        # Where nothing may tell who was asked, a message that misses its round is not added to another round's sample.
        hides = core.door is not None and not revealed(core.exchange, core.door.mechanism.sampling)
        self._drops = core.exchange.waits and (not core.exchange.carries or hides)

    def reached(self, event: MessageAtLink, now: float) -> list[Effect]:
        """Let a message wait for its turn on the coordinator's link."""
        return self._core.network.reached(event.message, self._core.state, now)

    def arrived(self, event: MessageReceived, now: float) -> list[Effect]:
        """Take in a message at the coordinator's door."""
        source, state = event.source, self._core.state
        if self._core.network.breaks and (
            lost := self._core.network.lost_at_the_door(event, self._weigh_up(event), state, now)
        ):
            return lost
        counted = self._take(event, now)
        if (source, event.step) not in state.awaited:
            return []
        del state.awaited[source, event.step]
        return self.report(source, counted, now)

    def _take(self, message: MessageReceived, now: float) -> bool:
        """Let a message take effect, or say why it does not."""
        source, sender, step, base, sent, payload, _ = message
        state = self._core.state
        if self.covers and payload == {}:
            return False
        wrong = self._refusal(message)
        if wrong:
            self._core.journal.append((now, "rejected", source, step, 0, wrong))
            return False
        if self._drops and base < state.rounds.age:
            state.seen[sender].add(step)
            self._core.journal.append((now, "late", source, step, self._weigh_up(message), f"round {base} had closed"))
            return False
        stale = self._staleness(base)
        bound = self._core.exchange.staleness.bound
        state.seen[sender].add(step)
        if bound is not None and stale > bound:
            self._core.journal.append((now, "rejected", source, step, 0, f"stale: {stale} rounds old, the bound is {bound}"))
            return False
        if self._core.door is None:
            state.server = self._core.algorithm.receive(state.server, Inbound(sender, step, sent, payload), now)
        elif wrong := self._core.door.take(state.door, message, self._was_asked(sender)):
            self._core.journal.append((now, "rejected", source, step, 0, wrong))
            return False
        state.newest[sender] = base
        self._core.journal.append((now, "arrived", sender, step, self._weigh_up(message), str(stale)))
        return True

    def _was_asked(self, agent: int) -> bool:
        return not self._core.exchange.waits or agent in self._core.state.asked

    def _refusal(self, message: MessageReceived) -> str | None:
        if message.sender != message.source:
            return f"sent by agent {message.source} in the name of agent {message.sender}"
        if not 0 <= message.sender < self._core.problem.n_agents:
            return f"there is no agent {message.sender}"
        if self._core.upload is None:
            return "this algorithm declares no messages"
        if message.step in self._core.state.seen[message.sender]:
            return "duplicate: this message has already taken effect"
        # The door of private messages clips those that are too large.
        return fault(message.payload, self._core.upload, MOST if self._core.door is None else math.inf)

    def _staleness(self, base: int) -> int:
        """Count the rounds since round `base`; without rounds, as many answers as there are targets count as one."""
        passed = self._core.state.rounds.age - base
        return passed if self._core.exchange.waits else passed // len(self._core.targets)

    def unheard(self, event: AckTimeout, now: float) -> list[Effect]:
        """Send again, or give up; once, however many copies of a transmission were lost."""
        message = event.message
        if isinstance(message, MessageReceived):
            return self._unheard_message(message, now)
        state, key = self._core.state, (message.agent, message.number)
        heard = message.number in state.heard[message.agent] or state.repeated.get(key, 0) > message.attempt
        if heard or message.agent in state.ended:
            return []
        again = state.repeated[key] = message.attempt + 1
        if again < self._core.world.attempts:
            return self._core.network.down(message._replace(attempt=again), self._weigh(message), state, now)
        return self._released(*key, now)

    def _unheard_message(self, message: MessageReceived, now: float) -> list[Effect]:
        state, key = self._core.state, (message.source, message.step)
        sent = state.awaited.get(key)  # what was lost may have been damaged on its way
        if sent is None or sent.attempt != message.attempt:
            return []
        again = message.attempt + 1
        if again < self._core.world.attempts:
            state.awaited[key] = sent._replace(attempt=again)
            return self._core.network.up(state.awaited[key], state, now)
        del state.awaited[key]
        if message.payload != {}:
            self._core.journal.append((now, "rejected", *key, 0, f"given up after {again} transmissions"))
        return self.report(message.source, False, now)

    def _weigh(self, answer: AnswerReceived) -> int:
        return 0 if answer.inbound is None else self._weigh_down(answer.inbound.payload)

    def _weigh_down(self, payload: Payload) -> int:
        return size(payload) if self._down_bytes is None else self._down_bytes

    def _weigh_up(self, message: MessageReceived) -> int:
        if not message.payload:  # a dummy message, which the log does not know
            return 0
        return size(message.payload) if self._up_bytes is None else self._up_bytes

    def delivered(self, event: AnswerReceived, now: float) -> list[Effect]:
        """Give an agent an answer."""
        agent, inbound, number, _ = event
        state = self._core.state
        if agent in state.ended:
            return []
        if self._core.network.breaks and (lost := self._core.network.lost_at_the_door(event, self._weigh(event), state, now)):
            return lost
        if number in state.heard[agent]:
            self._core.journal.append((now, "rejected", agent, number, 0, "duplicate: the agent has had this answer"))
            return []
        state.heard[agent].add(number)
        state.repeated.pop((agent, number), None)  # what has been heard is not sent again
        if inbound is not None:
            state.inbox[agent].append(inbound)
            self._core.journal.append((now, "delivered", agent, number, self._weigh(event), ""))
            if not self._core.exchange.waits and agent in state.waiting:
                state.waiting[agent] = number  # written before it began to wait, and what it waits for all the same
        return self._released(agent, number, now)

    def _released(self, agent: int, number: int, now: float) -> list[Effect]:
        """Let an agent go on that waited for this answer."""
        state = self._core.state
        if state.waiting.get(agent, math.inf) > number:
            return []
        del state.waiting[agent]
        state.advance(now)
        if agent in state.away:
            state.away.discard(agent)
            self._core.journal.append((now, "returned", agent, state.step[agent], 0, ""))
        return self._core.steps.next(agent, now)

    @property
    def covers(self) -> bool:
        """Say whether who is not asked sends an empty message, which takes as long as any.

        Then nothing that happens, but for what is in the releases, depends on who was asked: neither when rounds close, nor who
        is late. `PrivateAggregator` claims the gain from sampling on that ground.
        """
        return self._core.door is not None and not self._core.door.whole

    def report(self, agent: int, counted: bool, now: float) -> list[Effect]:
        """Note that an agent has sent what it had to send, or has nothing to send."""
        state = self._core.state
        state.advance(now)
        if agent in state.leaving or agent in state.ended:
            state.rounds.messages += counted and self._core.exchange.waits
            return self.leave(agent, now)
        if not self._core.exchange.waits:
            state.rounds.buffer.append(agent)
            state.rounds.messages += counted
        elif agent in state.waiting:
            state.rounds.reported.add(agent)
            state.rounds.missing.discard(agent)
            state.rounds.messages += counted
        return self.settle(now)

    def leave(self, agent: int, now: float) -> list[Effect]:
        """Take an agent out of the exchange."""
        rounds = self._core.state.rounds
        self._core.state.advance(now)
        for members in (rounds.active, rounds.missing, rounds.reported, self._core.state.leaving):
            members.discard(agent)
        return self.settle(now)

    def expect(self, agent: int) -> None:
        """Let the open round wait for an agent that was asked to send."""
        asked = agent in self._core.state.asked or self._core.door is not None
        if self._core.exchange.waits and asked and agent in self._core.state.rounds.active:
            self._core.state.rounds.missing.add(agent)

    def settle(self, now: float) -> list[Effect]:
        """Close the open round, or answer the buffer, if that is due."""
        rounds = self._core.state.rounds
        if self._core.state.down:
            return []
        due = self._core.exchange.due(rounds) or (self._core.state.overdue and bool(rounds.reported))
        due = due and not self._keeps_waiting()
        # A buffer that can no longer be filled, because everybody waits, is answered as it is.
        stuck = bool(rounds.buffer) and not due and rounds.active <= self._core.state.waiting.keys()
        return self._answer(now) if due or stuck else []

    def _keeps_waiting(self) -> bool:
        """Say whether a message that is on its way would be too old after the open round."""
        oldest, state = self._core.exchange.oldest, self._core.state
        if oldest is None:
            return False
        begun = [a for a in state.rounds.missing if a in state.steps or (a, state.step[a]) in state.awaited]
        return any(state.rounds.age - state.base[agent] >= oldest for agent in begun)

    def due(self, event: RoundDeadline, now: float) -> list[Effect]:
        """Take in that the open round's time is up."""
        if event.number != self._core.state.rounds.number:
            return []
        self._core.state.overdue = True  # if nobody has reported yet, the round closes with the first who does
        return self.settle(now)

    def _answer(self, now: float) -> list[Effect]:
        state, rounds, waits = self._core.state, self._core.state.rounds, self._core.exchange.waits
        recipients = sorted((rounds.reported if waits else set(rounds.buffer)) & rounds.active)
        number, door = rounds.number, self._core.door
        worth = self._worth()
        if door is not None:
            state.server = door.release(state.door, state.server, worth, now)
            worth = self._ones  # how old an agent's newest message is would say when it was asked
        payloads, state.server = self._core.algorithm.broadcast(state.server, recipients, worth, self._core.streams.at(number))
        if door is not None:
            payloads = door.tell(state.door, payloads)
        if not waits:  # others may have waited for what these have sent
            recipients = sorted({*recipients, *(payloads.keys() & rounds.active)})
        if waits:
            bytes_ = sum(map(self._weigh_down, payloads.values()))
            self._core.journal.append((now, "round", COORDINATOR, number, bytes_, ""))
        rounds.reported, rounds.buffer, rounds.messages = set(), [], 0
        rounds.number, rounds.opened = number + 1, now
        rounds.age += 1 if waits else len(recipients)
        effects: list[Effect] = []
        for agent in recipients:
            answer = AnswerReceived(agent, self._checked(agent, number, payloads.get(agent), now), number)
            if answer.inbound is None and not waits:
                continue
            if agent in state.waiting:
                state.waiting[agent] = number
            effects += self._core.network.down(answer, self._weigh(answer), state, now)
        return effects + (self.open(recipients, now) if waits else [])

    def _worth(self) -> Array:
        """Give what each agent's newest message counts for now `(N,)`."""
        staleness = self._core.exchange.staleness
        if staleness.even:
            return self._ones
        return np.array([0.0 if base < 0 else staleness.of(self._staleness(base)) for base in self._core.state.newest])

    def _checked(self, agent: int, number: int, payload: Any, now: float) -> Inbound | None:
        if payload is None:
            return None
        wrong = "no answers are declared" if self._core.download is None else fault(payload, self._core.download)
        if wrong:
            raise ProtocolError(f"the answer to agent {agent} is not as declared: {wrong}")
        return Inbound(COORDINATOR, number, now, payload)

    def open(self, agents: Sequence[int], now: float) -> list[Effect]:
        """Open a round with those who begin it."""
        state, exchange = self._core.state, self._core.exchange
        if not exchange.waits or self._core.upload is None:
            return []
        number = state.rounds.number
        if self._core.door is not None:
            chosen = self._core.door.ask(state.door, agents)
        else:
            chosen = exchange.selection.of_round(agents, state.lasted, self._core.streams.at(number))
        state.asked.difference_update(agents)
        state.asked.update(chosen)
        # With nobody to wait for, the first who is done would close the round: it waits for all then. It also does so where
        # messages are private, since its length would give away who was asked.
        everybody = not chosen or self._core.door is not None
        state.rounds.missing.update((set(agents) if everybody else chosen) - state.off)
        state.overdue = False
        return [] if exchange.limit is None else [(exchange.limit, RoundDeadline(number))]
