"""Answers of the coordinator at the agents: deliveries, retransmissions, and the agents that continue with an answer."""

from __future__ import annotations

from fedbo.algorithms.messages import sizer
from fedbo.coordinator.kernel.agent_processes import AgentProcesses
from fedbo.coordinator.kernel.events import Answer, AnswerReceived, Effect
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.state import AgentRecord, CoreState, enter, has
from fedbo.coordinator.logged.agents import AgentReturned
from fedbo.coordinator.logged.kinds import make
from fedbo.coordinator.logged.messages import AnswerDelivered, AnswerMissed, TransmissionRejected
from fedbo.settings.records import changed


class Downlink:
    """The receiving end of answers, at the agents."""

    def __init__(self, rules: Rules, network: Network, processes: AgentProcesses) -> None:
        self._network, self._processes, self._log = network, processes, rules.log
        self._rests, self._attempts = rules.rests, rules.environment.attempts
        self._bytes = sizer(rules.download, rules.receipt.more_down)
        self.is_plain = rules.download is not None

    def received(self, state: CoreState, event: AnswerReceived, now: float) -> list[Effect]:
        """Deliver an answer to an agent."""
        answer, network = event.answer, self._network
        inbound, number = answer.inbound, answer.number
        agent = state.agents[answer.agent]
        if agent.ended:
            if inbound is not None and not has(agent.received_answers, number):  # it was transmitted all the same, once
                enter(agent.received_answers, number)
                self._log.append(AnswerMissed(now, agent.number, number, "agent_ended", self._bytes(inbound.payload)))
            return []
        if network.has_outages and (lost := network.dropped_on_arrival(state, answer, self._weigh(answer), now)):
            return lost
        if has(agent.received_answers, number):
            self._log.append(TransmissionRejected(now, agent.number, "duplicate", answer=number))
            return []
        enter(agent.received_answers, number)
        if agent.faults is not None:
            agent.faults.retransmissions.pop(number, None)  # what was received is not sent again
        if inbound is not None:
            agent.inbox.append(inbound)
            self._log.append(make(AnswerDelivered, (now, agent.number, number, self._bytes(inbound.payload))))
            if not self._rests and agent.number in state.rounds.waiting:
                # Written before the agent began to wait, and what it waits for all the same.
                state.rounds.waiting[agent.number] = number
        return self._release(state, agent, number, now)

    def timed_out(self, state: CoreState, answer: Answer, now: float) -> list[Effect]:
        """Send an answer again or give it up, once per transmission, however many of its copies were lost."""
        agent, number = state.agents[answer.agent], answer.number
        retransmissions = agent.own_faults().retransmissions
        if agent.ended or has(agent.received_answers, number) or retransmissions.get(number, 0) > answer.attempt:
            return []
        again = retransmissions[number] = answer.attempt + 1
        if again < self._attempts:
            return self._network.send_down(state, changed(answer, attempt=again), self._weigh(answer), now)
        self._log.append(AnswerMissed(now, agent.number, number, "given_up", attempts=again))
        return self._release(state, agent, number, now)

    def _release(self, state: CoreState, agent: AgentRecord, number: int, now: float) -> list[Effect]:
        """Advance an agent that waits for an answer with at most this number."""
        waiting = state.rounds.waiting
        awaited = waiting.get(agent.number) if waiting else None
        if awaited is None or awaited > number:  # it does not wait, or for an answer that is still to be given
            return []
        del waiting[agent.number]
        state.progress.note(now)
        if agent.absent:
            agent.absent = False
            self._log.append(AgentReturned(now, agent.number, agent.step))
        return self._processes.advance(state, agent, now)

    def _weigh(self, answer: Answer) -> int:
        return 0 if answer.inbound is None else self._bytes(answer.inbound.payload)
