"""Messages from agents at the coordinator: accepted, refused, and retransmitted ones."""

from __future__ import annotations

from fedbo.algorithms.messages import DUMMY, checker, sizer
from fedbo.coordinator.kernel.agent_processes import AgentProcesses
from fedbo.coordinator.kernel.events import Effect, Message, MessageReceived
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.state import AgentRecord, CoreState, enter, has
from fedbo.coordinator.logged.kinds import make
from fedbo.coordinator.logged.messages import MessageArrived, MessageLate, TransmissionRejected
from fedbo.settings.records import changed


class Uplink:
    """The receiving end of messages, at the coordinator."""

    def __init__(self, rules: Rules, network: Network, server: Server, processes: AgentProcesses) -> None:
        self._processes = processes
        self._rules, self._network, self._server, self._n_agents = rules, network, server, rules.problem.n_agents
        receipt, exchange, self._log = rules.receipt, rules.exchange, rules.log
        self._synchronous, self._bound, self._receive = exchange.is_synchronous, exchange.staleness.bound, server.accept
        self._bytes, self._fault = sizer(rules.upload, receipt.more_up), checker(rules.upload or {}, receipt.largest)
        self._drops_late = exchange.is_synchronous and (receipt.drops_late or not exchange.accepts_late)

    @property
    def is_plain(self) -> bool:
        """Check whether agents send messages."""
        return self._rules.upload is not None

    def received(self, state: CoreState, event: MessageReceived, now: float) -> list[Effect]:
        """Process a received message; its sender has then reported, whether or not the message takes effect."""
        message, network = event.message, self._network
        if network.has_outages and (lost := network.dropped_on_arrival(state, message, self._weigh(message), now)):
            return lost
        counted, number = self._accept(state, message, now), message.sender
        if not 0 <= number < self._n_agents:
            return []
        sender = state.agents[number]
        if sender.unacknowledged.pop(message.step, None) is None:
            return []
        sender.unheard = not counted and message.payload != DUMMY
        # Where dummies hide who was asked, the end of a round must not tell them from messages, nor those that are refused.
        state.rounds.is_heard |= message.base >= state.rounds.number if self._rules.sends_dummies else counted
        return self._server.report(state, sender, counted, now)

    def _accept(self, state: CoreState, message: Message, now: float) -> bool:
        """Apply a message and return True, or log the reason against it."""
        sender, claimed, step = message.sender, message.claimed_sender, message.step
        base, payload = message.base, message.payload
        if self._rules.sends_dummies and payload == DUMMY:
            return False
        if refused := self._refusal(state, message, now):
            self._log.append(refused)
            return False
        agent = state.agents[claimed]
        # Before the checks of age: a copy of a late or stale message is a duplicate, and is not logged as late again.
        enter(agent.steps_accepted, step)
        if self._drops_late and base < state.rounds.number:
            self._log.append(MessageLate(now, sender, step, self._weigh(message), base))
            return False
        stale, bound = state.rounds.number - base, self._bound
        if bound is not None and stale > bound:
            self._log.append(TransmissionRejected(now, sender, "stale", step, staleness=stale, bound=bound))
            return False
        if rejected := self._receive(state, message, not self._synchronous or agent.asked, now):
            self._log.append(rejected)
            return False
        agent.newest_base, agent.reported = base, now
        self._log.append(make(MessageArrived, (now, claimed, step, self._bytes(payload), stale)))
        return True

    def _refusal(self, state: CoreState, message: Message, now: float) -> TransmissionRejected | None:
        """Return the log line that refuses a message, or None if nothing is wrong with it."""
        sender, claimed, step = message.sender, message.claimed_sender, message.step
        if claimed != sender:
            return TransmissionRejected(now, sender, "forged", step, claimed_agent=claimed)
        if not 0 <= claimed < self._n_agents:
            return TransmissionRejected(now, sender, "unknown_agent", step)
        if self._rules.upload is None:
            return TransmissionRejected(now, sender, "undeclared", step)
        if has(state.agents[claimed].steps_accepted, step):
            return TransmissionRejected(now, sender, "duplicate", step)
        wrong = self._fault(message.payload)
        return TransmissionRejected(now, sender, "malformed", step, message=wrong) if wrong else None

    def timed_out(self, state: CoreState, message: Message, now: float) -> list[Effect]:
        """Send a message again or give it up, once per transmission, however many of its copies were lost."""
        sender, step = state.agents[message.sender], message.step
        sent = sender.unacknowledged.get(step)  # what was lost may have been damaged on its way
        if sent is None or sent.attempt != message.attempt:
            return []
        attempts = message.attempt + 1
        if attempts < self._rules.environment.attempts:
            again = sender.unacknowledged[step] = changed(sent, attempt=attempts)
            return self._network.send_up(state, again, now)
        del sender.unacknowledged[step]
        sender.unheard = message.payload != DUMMY
        if sender.unheard:
            self._log.append(TransmissionRejected(now, sender.number, "given_up", step, attempts=attempts))
        effects = self._server.given_up(state, sender, now)
        if not self._waits_for_answer(state, sender, step):
            return effects
        del state.rounds.waiting[sender.number]
        return effects + self._processes.advance(state, sender, now)

    def _waits_for_answer(self, state: CoreState, sender: AgentRecord, step: int) -> bool:
        """Return whether an agent waits, without rounds, for the answer to its message of `step`, which never arrived.

        Then it is the newest of its messages: a later one, or its answer, would end the waiting.
        """
        rounds, accepted = state.rounds, sender.steps_accepted
        if self._rules.rests or rounds.waiting.get(sender.number, 0) is not None or sender.number in rounds.buffer:
            return False
        return not any(later > step for later in sender.unacknowledged) and not (accepted and accepted[-1] > step)

    def _weigh(self, message: Message) -> int:
        return self._bytes(message.payload) if message.payload else 0
