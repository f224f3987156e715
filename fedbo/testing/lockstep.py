"""One algorithm in lock-step, without a simulation: in every round all agents decide, learn and send, and all get answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedbo.algorithms.base import Algorithm, Array, Decision, Inbound, Mechanism, Payload, Private, Problem, Starting
from fedbo.algorithms.streams import COORDINATOR, Streams

# The values (q,) that are told of a decision; the streams are those of the agent (`owner`) at its step.
Evaluate = Callable[[Decision, Streams], Array]
Transmit = Callable[[list[Inbound]], list[Inbound]]


def noisy(values: Callable[[Array, int], Array], noise: float = 0.0) -> Evaluate:
    """Evaluate `values(x, agent)` with Gaussian noise of this standard deviation for each pull."""

    def evaluate(decision: Decision, streams: Streams) -> Array:
        drawn = streams.rng("noise").standard_normal(len(decision.x))
        return np.asarray(values(decision.x, streams.owner) + noise / np.sqrt(pulls(decision)) * drawn)

    return evaluate


def pulls(decision: Decision) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of evaluations `(q,)` of each point of a decision."""
    return np.ones(len(decision.x), np.int64) if decision.pulls is None else decision.pulls


class Lockstep:
    """All agents of an algorithm and its server.

    `histories` has the points and values of each agent's earlier task. `decisions` and `sent` record the run, one dictionary by
    agent for each round, as do `answers`, and `observed`, points and values by agent. If the problem has a budget of pulls, an
    agent without remaining pulls stops. `transmit` may duplicate, reorder, change or drop the messages to the server.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        evaluate: Evaluate,
        seed: int = 0,
        histories: Sequence[tuple[Array, Array]] = (),
    ) -> None:
        self.algorithm, self.problem, self.evaluate, self.streams = algorithm, problem, evaluate, Streams(seed)
        self.transmit: Transmit = list
        self.states: list[Any] = []
        for agent in range(problem.n_agents):
            x, y = histories[agent] if histories else (None, None)
            own = replace(problem, agent=agent, history_x=x, history_y=y)
            self.states.append(algorithm.agent_init(own, self.streams.of(agent)))
        self.server = algorithm.server_init(problem)
        self.inbox: list[list[Inbound]] = [[] for _ in range(problem.n_agents)]
        self.spent = np.zeros(problem.n_agents, np.int64)
        self.initial: list[Array] = []
        self.observed: list[list[tuple[Array, Array]]] = [[] for _ in range(problem.n_agents)]
        self.decisions: list[dict[int, Decision]] = []
        self.sent: list[dict[int, Payload]] = []
        self.answers: list[dict[int, Payload]] = []
        self.step = self.releases = 0

    def active(self) -> list[int]:
        """Return the agents that may still evaluate."""
        return [agent for agent in range(len(self.states)) if not self.problem.pulls or self.spent[agent] < self.problem.pulls]

    def begin(self) -> None:
        """Evaluate and report every agent's initial points, which is step 0."""
        for agent in range(len(self.states)):
            streams = self.streams.of(agent)
            x = streams.rng("initial points").random((self.problem.initial, self.problem.dim))
            if isinstance(self.algorithm, Starting):
                x = self.algorithm.initial_points(replace(self.problem, agent=agent), x)
            self.initial.append(x)
            if len(x):
                self.tell(agent, Decision(x, "initial"))

    def act(self) -> None:
        """Make every active agent decide and learn."""
        self.step += 1
        self.decisions.append({})
        for agent in self.active():
            self.decisions[-1][agent] = decision = self.ask(agent)
            self.tell(agent, decision)

    def ask(self, agent: int) -> Decision:
        """Return an agent's decision, after the messages since its last one."""
        streams = self.streams.of(agent).at(self.step)
        decision, self.states[agent] = self.algorithm.ask(self.states[agent], tuple(self.inbox[agent]), streams)
        self.inbox[agent] = []
        return decision

    def tell(self, agent: int, decision: Decision) -> None:
        """Evaluate a decision and report the values to the agent."""
        self.spent[agent] += pulls(decision).sum()
        y = self.evaluate(decision, self.streams.of(agent).at(self.step))
        self.observed[agent].append((decision.x, y))
        self.states[agent] = self.algorithm.tell(self.states[agent], decision.x, y)

    def exchange(self, deaf: Sequence[int] = (), mute: Sequence[int] = ()) -> None:
        """Exchange messages and answers of the round's agents; messages of `mute` and answers to `deaf` agents get lost."""
        self.sent.append({})
        self.answers.append({})
        if not self.algorithm.sends(self.step):
            return
        for agent in self.decisions[-1] if self.decisions else range(len(self.states)):
            payload, self.states[agent] = self.algorithm.outbox(self.states[agent], self.streams.of(agent).at(self.step))
            if payload is not None:
                self.sent[-1][agent] = payload
        messages = [Inbound(agent, self.step, 0.0, payload) for agent, payload in self.sent[-1].items() if agent not in mute]
        self.receive(self.transmit(messages))
        everybody, streams = range(len(self.states)), self.streams.of(COORDINATOR).at(self.step)
        self.answers[-1], self.server = self.algorithm.broadcast(self.server, everybody, np.ones(len(everybody)), streams)
        for agent, payload in self.answers[-1].items():
            if agent not in deaf:
                self.inbox[agent].append(Inbound(COORDINATOR, self.step, 1.0, payload))

    def receive(self, arrived: Sequence[Inbound]) -> None:
        """Pass messages to the server, or their release by the mechanism of a private algorithm."""
        if not isinstance(self.algorithm, Private):
            for message in arrived:
                self.server = self.algorithm.receive(self.server, message, 1.0)
        elif arrived:
            held = {message.sender: np.concatenate([*message.payload.values()]) for message in arrived}
            weights = self.algorithm.weights(self.problem, self.releases)
            rng = self.streams.of(COORDINATOR).at(self.step).rng("mechanism")
            vectors = release(self.algorithm.mechanism(self.problem), weights, held, rng)
            self.server = self.algorithm.released(self.server, vectors, self.releases)
            self.releases += 1

    def run(self, rounds: int | None = None) -> Lockstep:
        """Run until all pulls are spent, or to the end of this round."""
        while self.active() and (rounds is None or self.step < rounds):
            self.act()
            self.exchange()
        return self


def release(mechanism: Mechanism, weights: Array, held: dict[int, Array], rng: np.random.Generator) -> Array:
    """Compute one release `(P, M)` of messages `(M,)` by a `Mechanism`; with a share below 1 the last agent is left out."""
    kept = [agent for agent in sorted(held) if mechanism.share == 1 or agent < weights.shape[1] - 1]
    longest = mechanism.clip / np.sqrt(mechanism.blocks)
    total = np.zeros((mechanism.blocks, len(next(iter(held.values())))))
    for agent in kept:
        message = held[agent] / max(1.0, float(np.linalg.norm(held[agent])) / longest)
        total += weights[:, agent, None] * message / mechanism.share
    if not mechanism.noise:
        return total
    deviation = mechanism.noise * weights.max() * mechanism.clip / mechanism.share
    return np.asarray(total + deviation * rng.standard_normal(total.shape))
