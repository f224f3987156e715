"""The network between agents and coordinator: latency, bandwidth, and the faults that messages meet."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedbo.algorithms.messages import declared_size, size, varies
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.faults import (
    TRANSMISSION_FAULTS,
    Corruption,
    Delay,
    Duplication,
    Loss,
    NetworkPartition,
    Reordering,
    Restart,
    TransmissionFault,
)
from fedbo.coordinator.environment.lies import corrupted
from fedbo.coordinator.environment.timing import Timing, same_for_all
from fedbo.coordinator.kernel.events import (
    AckTimeout,
    After,
    Answer,
    AnswerReceived,
    Effect,
    Message,
    MessageAtLink,
    MessageReceived,
)
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.state import CoreState
from fedbo.coordinator.logged.kinds import make
from fedbo.coordinator.logged.messages import LossReason, MessageSent, TransmissionLost
from fedbo.settings.durations import transmission_time
from fedbo.settings.records import changed


class Transmission(NamedTuple):
    """One transmission: its agent, its number there, its attempt and its direction."""

    agent: int
    number: int
    attempt: int
    way: str


class Network:
    """The network: determines when a transmission arrives, how often, and whether it is intact."""

    def __init__(self, rules: Rules) -> None:
        environment, streams, self._n_agents = rules.environment, rules.task.streams, rules.problem.n_agents
        self._environment, self._streams, self._declared, self._log = environment, streams, rules.upload, rules.log
        self._more_up = rules.receipt.more_up
        self._message_bytes, self._varies = declared_size(rules.upload) + self._more_up, varies(rules.upload)

        def latency(agent: int) -> Timing:
            return environment.of(agent).latency

        self._first = {way: durations(latency, f"latency {way}", streams) for way in ("up", "down")}
        self._again = {way: durations(latency, f"latency {way} again", streams) for way in ("up", "down")}
        self.latency = same_for_all(models.latency for models in environment.groups())
        plan = environment.plan
        self._faults = [
            (place, fault, frozenset(fault.agents))
            for place, fault in enumerate(plan)
            if isinstance(fault, TRANSMISSION_FAULTS)
        ]
        self._link, self._retry = environment.link, environment.retry
        self._has_bandwidth = any(models.bandwidth for models in environment.groups())
        self.has_outages = any(isinstance(fault, NetworkPartition | Restart) for fault in plan)
        # One constant latency and nothing else: what is sent arrives, after that time.
        self.is_plain = self.latency is not None and not (self._faults or self.has_outages or self._link or self._has_bandwidth)
        self._replays = any(isinstance(fault, Corruption) and fault.how == "replay" for _, fault, _ in self._faults)

    def send_up(self, state: CoreState, message: Message, now: float) -> list[Effect]:
        """Send a message to the coordinator; a dummy takes as long as any other message, and is not in the log."""
        sender, step, attempt = message.sender, message.step, message.attempt
        agent, bytes_ = state.agents[sender], size(message.payload)
        if bytes_:
            bytes_ += self._more_up
            self._log.append(make(MessageSent, (now, sender, step, bytes_, attempt > 0)))
        if self.is_plain:
            assert self.latency is not None
            return [After(self.latency, MessageReceived(message))]
        if agent.is_cut_off:
            return self._lost(message, bytes_, now, "partition")
        key = Transmission(sender, step, attempt, way="up")
        delay = self._delay(key, bytes_ or self._message_bytes)
        if not self._faults:
            return [After(delay, self._arrival(message))]
        copies, carried, effects = [0.0], message, list[Effect]()
        for place, fault in self._faults_of(key, now):
            if isinstance(fault, Loss):
                return self._lost(message, bytes_, now, "fault", place)
            if isinstance(fault, Corruption) and fault.how == "replay":
                if (previous := agent.own_faults().previous_message) is not None:  # in place of this message
                    carried = previous  # which is not acknowledged then
                    effects = [After(self._retry, AckTimeout(message))]
            elif isinstance(fault, Corruption) and self._declared is not None:
                rng = self._streams.of(sender).at(step).rng(f"fault {place} damage up {attempt}")
                carried = changed(carried, payload=corrupted(carried.payload, self._declared, fault.how, rng))
            else:
                delay, copies = self._disturbed(place, fault, key, delay, copies)
        if self._replays:
            agent.own_faults().previous_message = message
        return [After(delay + later, self._arrival(carried)) for later in copies] + effects

    def send_down(self, state: CoreState, answer: Answer, bytes_: int, now: float) -> list[Effect]:
        """Send an answer to an agent; a retransmission that is due while the coordinator is down is lost again."""
        if self.is_plain:
            assert self.latency is not None
            return [After(self.latency, AnswerReceived(answer))]
        if state.outages or state.agents[answer.agent].is_cut_off:
            return self._lost(answer, bytes_, now, "coordinator_down" if state.outages else "partition")
        key = Transmission(answer.agent, answer.number, answer.attempt, way="down")
        delay = self._delay(key, bytes_)
        if not self._faults:
            return [After(delay, AnswerReceived(answer))]
        copies = [0.0]
        for place, fault in self._faults_of(key, now):
            if isinstance(fault, Loss):
                return self._lost(answer, bytes_, now, "fault", place)
            delay, copies = self._disturbed(place, fault, key, delay, copies)
        return [After(delay + later, AnswerReceived(answer)) for later in copies]

    def queue_at_link(self, state: CoreState, event: MessageAtLink, now: float) -> list[Effect]:
        """Queue a message at the coordinator's own link."""
        assert self._link is not None
        # One that was cut short on its way takes as long as any other, and so does a dummy.
        bytes_ = size(event.message.payload) if self._varies else self._message_bytes
        state.link_free_at = max(now, state.link_free_at) + bytes_ / self._link
        return [After(state.link_free_at - now, MessageReceived(event.message))]

    def dropped_on_arrival(self, state: CoreState, sent: Message | Answer, bytes_: int, now: float) -> list[Effect]:
        """Lose a transmission that arrives while its way is cut off; return no effects otherwise."""
        agent = sent.sender if isinstance(sent, Message) else sent.agent
        is_down = bool(state.outages) and isinstance(sent, Message)  # agents hear what left before the coordinator went down
        if not 0 <= agent < self._n_agents or not (is_down or state.agents[agent].is_cut_off):
            return []
        return self._lost(sent, bytes_, now, "coordinator_down" if is_down else "partition")

    def _delay(self, key: Transmission, bytes_: int) -> float:
        agent, number, way = key.agent, key.number, key.way
        if self.latency is not None:
            delay = self.latency
        elif key.attempt:
            delay = self._again[way](agent, number * self._environment.attempts + key.attempt)
        else:
            delay = self._first[way](agent, number)
        if not self._has_bandwidth:
            return delay
        return transmission_time(delay, bytes_, self._environment.of(agent).rate(way))

    def _arrival(self, message: Message) -> MessageReceived | MessageAtLink:
        return MessageAtLink(message) if self._link else MessageReceived(message)

    def _lost(
        self, sent: Message | Answer, bytes_: int, now: float, reason: LossReason, fault: int | None = None
    ) -> list[Effect]:
        """Lose a transmission; `fault` is the place of its cause in the plan."""
        if isinstance(sent, Answer):
            self._log.append(TransmissionLost(now, sent.agent, "down", reason, bytes_, answer=sent.number, fault=fault))
        elif bytes_:
            self._log.append(TransmissionLost(now, sent.sender, "up", reason, bytes_, step=sent.step, fault=fault))
        return [After(self._retry, AckTimeout(sent))]

    def _faults_of(self, key: Transmission, now: float) -> list[tuple[int, TransmissionFault]]:
        """List the faults that a transmission meets."""
        return [
            (place, fault)
            for place, fault, agents in self._faults
            if fault.direction in (key.way, "both")
            and key.agent in agents
            and fault.start <= now < (math.inf if fault.end is None else fault.end)
            and self._uniform(place, key, "befalls") < fault.probability
        ]

    def _disturbed(
        self, place: int, fault: TransmissionFault, key: Transmission, delay: float, copies: list[float]
    ) -> tuple[float, list[float]]:
        """Return the delay of a transmission after a fault, and the extra delay of each of its copies."""
        if isinstance(fault, Delay):
            return delay + fault.by, copies
        if isinstance(fault, Reordering):
            return delay + fault.by * self._uniform(place, key, "detour"), copies
        assert isinstance(fault, Duplication)
        return delay, [*copies, copies[-1] + fault.by]

    def _uniform(self, place: int, key: Transmission, purpose: str) -> float:
        purpose = f"fault {place} {purpose} {key.way} {key.attempt}"
        return self._streams.of(key.agent).at(key.number).uniform(purpose)
