"""A method that only says things in private, what it says, and small runs of it: for tests of the privacy aggregator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from small_runs import Ran, Setting

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Mechanism, Payload, Problem
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.environment import AgentModels, Environment
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.exchange import Barrier, Exchange
from fedbo.privacy.aggregator import PrivateAggregator
from fedbo.privacy.budget import DEFAULT_BUDGET, AggregatorState, PrivacyBudget
from fedbo.privacy.ledger import LedgerEntry
from fedbo.privacy.noise import NoiseSource, Seeded

NUMBERS = 5  # M


def said(agent: int, step: int, norm: float = 3.0) -> Array:
    """Give what an agent says after a step: a vector of this norm, whose direction is known to the tests."""
    vector = np.random.default_rng([7, agent, step]).standard_normal(NUMBERS)
    return np.asarray(vector / np.linalg.norm(vector) * norm)


class Whispering(NamedTuple):
    """What an agent knows: who it is."""

    agent: int
    dim: int


class Whispered(NamedTuple):
    """What the coordinator half knows: all releases `(P, M)` with their numbers, and how often it was told of the end."""

    vectors: tuple[Array, ...] = ()
    numbers: tuple[int, ...] = ()
    closed: int = 0


@dataclass(frozen=True)
class Whisper:
    """Uniform points; after every step `said(agent, step, norms[agent])` in private. An answer is (release number, its sum).

    `phi` gives the weights `(P, N)` of a release; without it all agents count 1/N. `answers` has the recipients and the worth
    that `broadcast` was given, and `heard` what agents were told: (agent, step, release number or -1 after the end).
    """

    law: Mechanism
    phi: Callable[[int], Array] | None = None
    norms: Mapping[int, float] = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list, compare=False)
    heard: list[tuple[int, int, int]] = field(default_factory=list, compare=False)
    queries: int = 1

    def sends(self, step: int) -> bool:
        return True

    def upload(self, problem: Problem) -> Declaration | None:
        return {"vector": Field((NUMBERS,))}

    def download(self, problem: Problem) -> Declaration | None:
        return {"release": Field((2,))}

    def agent_init(self, problem: Problem, streams: Streams) -> Whispering:
        return Whispering(problem.agent, problem.dim)

    def ask(self, state: Whispering, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Whispering]:
        self.heard.extend((state.agent, streams.step, int(message.payload["release"][0])) for message in inbox)
        return Decision(streams.rng("points").random((1, state.dim)), "own"), state

    def tell(self, state: Whispering, x: Array, y: Array) -> Whispering:
        return state

    def outbox(self, state: Whispering, streams: Streams) -> tuple[Payload | None, Whispering]:
        return {"vector": said(state.agent, streams.step, self.norms.get(state.agent, 3.0))}, state

    def server_init(self, problem: Problem) -> Whispered:
        return Whispered()

    def receive(self, state: Whispered, message: Inbound, now: float) -> Whispered:
        raise AssertionError("the coordinator half was given a message")

    def broadcast(
        self, state: Whispered, recipients: Sequence[int], worth: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Whispered]:
        self.answers.append((tuple(recipients), tuple(float(one) for one in worth), streams.step))
        number = -1.0 if state.closed else float(state.numbers[-1])
        total = 0.0 if state.closed else float(state.vectors[-1].sum())
        return {agent: {"release": np.array([number, total])} for agent in recipients}, state

    def mechanism(self, problem: Problem) -> Mechanism:
        return self.law

    def weights(self, problem: Problem, release: int) -> Array:
        if self.phi is None:
            return np.full((self.law.blocks, problem.n_agents), 1 / problem.n_agents)
        return self.phi(release)

    def released(self, state: Whispered, vectors: Array, release: int) -> Whispered:
        return state._replace(vectors=(*state.vectors, vectors), numbers=(*state.numbers, release))

    def closed(self, state: Whispered) -> Whispered:
        return state._replace(closed=state.closed + 1)


def uneven(blocks: int, agents: int, seed: int = 3) -> Callable[[int], Array]:
    """Give weights that differ by block, agent and release; each row adds up to 1."""

    def weights(release: int) -> Array:
        rows = np.random.default_rng([seed, release]).random((blocks, agents)) + 0.05
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))

    return weights


@dataclass(frozen=True)
class Discreet(Setting):
    """A run of a private algorithm under terms, with a key for secure noise or without; all agents are always there."""

    exchange: Exchange = Barrier()
    availability: Any = Always()
    terms: PrivacyBudget = DEFAULT_BUDGET
    key: bytes | None = None

    def core(self) -> Core:
        common = AgentModels(evaluation=self.evaluation, latency=self.latency, availability=self.availability, **self.models)
        return assembled(self.task(), self.exchange, Environment(common, **self.world), self.terms, self.key)


def releases(ran: Ran) -> list[LedgerEntry]:
    """Give the entries of the ledger that are releases."""
    found = ran.core.rules.receipt.aggregator
    assert found is not None
    return [entry for entry in found.entries if not entry.refused]


class SameNoise(Seeded):
    """The same noise whatever it hides, so that two worlds differ in their sums alone."""

    def normal(self, purpose: str, number: int, hidden: Array) -> Array:
        return Seeded.normal(self, purpose, number, 0.0 * hidden)


class Stand:
    """A aggregator that stands alone: messages go in by hand, and what comes out is kept."""

    def __init__(
        self,
        law: Mechanism,
        agents: int,
        phi: Callable[[int], Array] | None = None,
        source: NoiseSource | None = None,
        whole: str = "",
        terms: PrivacyBudget = DEFAULT_BUDGET,
        numbers: int = NUMBERS,
    ) -> None:
        self.algorithm = Whisper(law, phi)
        self.problem = Problem(2, agents, tuple(range(agents)), 2, 6)
        self.source = Seeded(Streams(11)) if source is None else source
        self.aggregator = PrivateAggregator(self.algorithm, self.problem, terms, self.source, whole)
        self.state: AggregatorState = self.aggregator.fresh(numbers)
        self.server = Whispered()
        self.agents = range(agents)

    def release(
        self, messages: Mapping[int, Array], worth: Array | None = None, sample: bool = True, keep: bool = False
    ) -> Array:
        """Ask, let in what was asked for, and release; without `sample` all messages go in, as where there are no rounds.

        The ledger's entries are kept only on demand.
        """
        asked = self.aggregator.sample(self.state, self.agents) if sample else set(self.agents)
        for agent, vector in messages.items():
            if agent in asked:
                assert self.aggregator.accept(self.state, agent, self.state.release, {"v": vector}, asked=True) is None
        self.server = Whispered()
        ones = np.ones(len(self.agents)) if worth is None else worth
        self.server = self.aggregator.release(self.state, self.server, ones, 0.0)
        if not keep:
            self.aggregator.entries.clear()
        return self.server.vectors[-1]


def with_law(setting: Discreet, **changes: Any) -> Discreet:
    """Give the same run with another mechanism."""
    algorithm: Any = setting.algorithm
    return replace(setting, algorithm=replace(algorithm, law=replace(algorithm.law, **changes)))
