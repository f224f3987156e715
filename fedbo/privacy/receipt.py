"""Private messages: the coordinator half reads releases of a `PrivateAggregator`, or messages that senders have hidden."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fedbo.algorithms.base import Array, Disclosure, LocallyPrivate, Payload, Private
from fedbo.algorithms.returned import wrong
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.timing import Timing, same_for_all
from fedbo.coordinator.kernel.events import Message
from fedbo.coordinator.kernel.rules import Receipt, Rules
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.logged.messages import SumAborted, SumUnmasked, TransmissionRejected
from fedbo.privacy.aggregator import PrivateAggregator, revealed, why_not_amplified
from fedbo.privacy.budget import DEFAULT_BUDGET, PrivacyBudget
from fedbo.privacy.ledger import LedgerEntry, local_entry
from fedbo.privacy.noise import Secure, Seeded
from fedbo.privacy.secure_aggregation import least_cohort, why_not_masked
from fedbo.settings.durations import transmission_time


def receipt_of(rules: Rules, budget: PrivacyBudget | None, key: bytes | None) -> Receipt:
    """Return the receipt that an algorithm declares; private noise comes from a secret `key`, or from the study's streams.

    Raises:
        ValueError: the messages of the algorithm cannot be masked, but the budget asks for masks.
    """
    algorithm, budget = rules.algorithm, budget or DEFAULT_BUDGET
    if budget.secure_aggregation is not None and (wrong := why_not_masked(algorithm, rules.problem, rules.exchange)):
        raise ValueError(f"secure aggregation does not support an algorithm that {wrong}")
    if isinstance(algorithm, Private):
        return PrivateReceipt(rules, algorithm, budget, key)
    return DisclosedReceipt(rules) if isinstance(algorithm, LocallyPrivate) else Receipt(rules)


class DisclosedReceipt(Receipt):
    """The receipt of messages that their senders may have hidden: each enters the ledger, also one that never arrives.

    Its entries are `secure` where senders draw with secrets of their own.
    """

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        # Asked once: to find out whether something keeps a protocol takes longer than to handle an event.
        self._hiding = rules.algorithm if isinstance(rules.algorithm, LocallyPrivate) else None
        self._disclosed: list[LedgerEntry] = []
        self.notes_sent, self.is_plain = self._hiding is not None, self._hiding is None

    def sent(self, state: CoreState, agent: int, payload: Payload, now: float) -> None:
        """Enter a message in the privacy ledger, if its sender has made it private."""
        if self._hiding is None or not payload:
            return
        try:
            disclosure: Any = self._hiding.disclosure(state.server, payload)
        except Exception:  # noqa: BLE001 -- its sender does not keep to the method, which then promises it nothing
            return
        if not isinstance(disclosure, Disclosure | None):
            words = f"returned a {type(disclosure).__name__}; it must return a Disclosure or None"
            error = wrong(self._hiding, "disclosure", words)
            error.fedbo_step = f"message of agent {agent}"
            raise error
        if disclosure is not None:
            entry = local_entry(agent, state.disclosures, disclosure, now)
            self._disclosed.append(entry._replace(secure=self._rules.task.has_secret_draws))
            state.disclosures += 1

    def take_entries(self) -> list[Any]:
        """Remove and return the entries of the privacy ledger."""
        entries, self._disclosed = self._disclosed, []
        return entries


class PrivateReceipt(DisclosedReceipt):
    """The receipt of private messages: an aggregator holds them until the exchange mode answers, and releases their sum."""

    aggregator: PrivateAggregator

    def __init__(self, rules: Rules, algorithm: Private, budget: PrivacyBudget, key: bytes | None) -> None:
        super().__init__(rules)
        task, exchange, masks = rules.task, rules.exchange, budget.secure_aggregation
        source = Seeded(task.streams.within(task.noise_scope).of(COORDINATOR)) if key is None else Secure(key)
        mechanism, is_real_time = algorithm.mechanism(rules.problem), rules.environment.is_real_time
        reason = why_not_amplified(mechanism, exchange, is_real_time, masks is not None)
        self.aggregator = PrivateAggregator(algorithm, rules.problem, budget, source, reason)
        (declared,) = (rules.upload or {}).values()
        length = declared.shape[0]
        assert length is not None, "what is weighed and summed is of one length"
        self._length, self._ones, self._round_trips = length, np.ones(rules.problem.n_agents), RoundTrips(rules)
        if masks is not None:
            self.aggregator.least = least_cohort(masks, algorithm, rules.problem, exchange)
            self.more_up, self.more_down = masks.added_bytes(mechanism, length, len(rules.participants))
        self.asks_all, self.hides_asked, self.sends_dummies = False, True, not reason
        # Private messages are clipped where there is a norm to clip to, however large they are.
        self.largest = math.inf if mechanism.clip < math.inf else self.largest
        # Where nothing may tell who was asked, a late message is in no other round's sample. Masks hide one round only.
        self.drops_late = not revealed(exchange, mechanism.sampling) or masks is not None
        everybody_sends = self.sends_dummies or mechanism.share == 1.0
        self.is_plain = self.is_plain and exchange.is_synchronous and everybody_sends and masks is None

    def start(self, state: CoreState) -> None:
        """Enter an aggregator without messages into the state."""
        state.privacy = self.aggregator.fresh(self._length)

    def sample(self, state: CoreState, agents: Sequence[int]) -> set[int]:
        """Sample the agents that send by secret coins."""
        return self.aggregator.sample(state.privacy, agents)

    def asks(self, state: CoreState, agent: int, step: int) -> bool:
        """Check whether the privacy budget allows another release."""
        return not state.privacy.budget_exhausted

    def accept(self, state: CoreState, message: Message, asked: bool, now: float) -> TransmissionRejected | None:
        """Hold a message for the open release, or return the log line that refuses it."""
        sender = message.claimed_sender
        reason = self.aggregator.accept(state.privacy, sender, message.base, message.payload, asked)
        return TransmissionRejected(now, sender, reason, message.step) if reason else None

    def answer(self, state: CoreState, recipients: Sequence[int], weights: Array, now: float) -> dict[int, Any]:
        """Release the sum of the held messages, and return the answers that follow from it."""
        unmasking = self._unmasked(state, now)
        state.server = self.aggregator.release(state.privacy, state.server, weights, now, unmasking)
        # How old an agent's newest message is would say when it was asked.
        payloads = super().answer(state, recipients, self._ones, now)
        return self.aggregator.announce(state.privacy, payloads)

    def _unmasked(self, state: CoreState, now: float) -> Any:
        """Ask the senders that are present to confirm who has sent, then for shares; the answers wait for both round trips."""
        state.rounds.unmasking = 0.0
        unmasking = self.aggregator.unmasking(state.privacy, lambda agent: _is_there(state.agents[agent]))
        if unmasking is not None:
            record, number = SumAborted if unmasking.has_failed else SumUnmasked, state.rounds.number
            answering, cohort = len(unmasking.answering), len(unmasking.cohort)
            self._rules.log.append(record(now, number, unmasking.bytes, answering, cohort, unmasking.needed))
            trips = [self._round_trips.longest(unmasking.answering, number, bytes_) for bytes_ in unmasking.steps]
            state.rounds.unmasking = sum(trips)
        return unmasking

    def take_entries(self) -> list[Any]:
        """Remove and return the entries of the privacy ledger: those of releases, then those of senders."""
        entries, self.aggregator.entries = self.aggregator.entries, []
        return entries + super().take_entries()


class RoundTrips:
    """The durations of questions to agents and of their answers, which no fault hits."""

    def __init__(self, rules: Rules) -> None:
        self._environment = environment = rules.environment
        self._latency = same_for_all(models.latency for models in environment.groups())

        def latency(agent: int) -> Timing:
            return environment.of(agent).latency

        streams = rules.task.streams
        self._ways = [durations(latency, f"latency {way} unmasking", streams) for way in ("down", "up")]

    def longest(self, agents: Collection[int], number: int, bytes_: int) -> float:
        """Return the time until the last of some agents has answered a question of round `number` with so many bytes."""
        longest = 0.0
        for agent in agents:
            both = (self._latency, self._latency) if self._latency is not None else [way(agent, number) for way in self._ways]
            bandwidth = self._environment.of(agent).rate("up")  # of the answer: a question is short
            longest = max(longest, transmission_time(sum(both), bytes_, bandwidth))
        return longest


def _is_there(agent: AgentRecord) -> bool:
    """Check whether an agent that has sent a message answers now."""
    return not (agent.interruptions or agent.is_cut_off or agent.lost)
