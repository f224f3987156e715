"""Agents of a bandit algorithm in lock-step: every round all decide, are told means of normal draws, send, and are answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from fedbo.algorithms.base import Algorithm, Decision, Inbound, Problem
from fedbo.algorithms.streams import COORDINATOR, Streams

Values = Callable[[np.ndarray, int], np.ndarray]


class Lockstep:
    """`values(x, agent)` are the noise-free values; `noise` is the standard deviation of a single pull."""

    def __init__(
        self, algorithm: Algorithm, values: Values, agents: int, pulls: int, noise: float = 0.0, seed: int = 0
    ) -> None:
        self.algorithm, self.values, self.noise, self.streams = algorithm, values, noise, Streams(seed)
        self.rng = np.random.default_rng([seed, 7])
        self.problem = Problem(1, agents, tuple(range(agents)), 0, pulls, pulls=pulls)
        problems = [dataclasses.replace(self.problem, agent=agent) for agent in range(agents)]
        self.states: list[Any] = [algorithm.agent_init(one, self.streams.of(one.agent)) for one in problems]
        self.server = algorithm.server_init(self.problem)
        self.inbox: list[list[Inbound]] = [[] for _ in range(agents)]
        self.spent = np.zeros(agents, int)
        self.decisions: list[list[Decision]] = []
        self.sent: list[set[int]] = []
        self.step = 0

    def draw(self, x: np.ndarray, pulls: np.ndarray, agent: int) -> np.ndarray:
        return np.asarray(self.values(x, agent) + self.noise / np.sqrt(pulls) * self.rng.standard_normal(len(x)))

    def act(self) -> None:
        """Let all agents that have pulls left decide and learn."""
        self.step += 1
        self.decisions.append([])
        for agent in range(len(self.states)):
            if self.spent[agent] >= self.problem.pulls:
                continue
            streams = self.streams.of(agent).at(self.step)
            decision, state = self.algorithm.ask(self.states[agent], tuple(self.inbox[agent]), streams)
            pulls = np.ones(len(decision.x), int) if decision.pulls is None else decision.pulls
            self.inbox[agent] = []
            self.spent[agent] += pulls.sum()
            self.states[agent] = self.algorithm.tell(state, decision.x, self.draw(decision.x, pulls, agent))
            self.decisions[-1].append(decision)

    def exchange(self, deaf: frozenset[int] = frozenset(), mute: frozenset[int] = frozenset()) -> None:
        """Let all send and be answered, but for messages of those who are `mute` and answers to the `deaf`."""
        arrived = []
        for agent in range(len(self.states)):
            payload, self.states[agent] = self.algorithm.outbox(self.states[agent], self.streams.of(agent).at(self.step))
            if payload is not None and agent not in mute:
                arrived.append(Inbound(agent, self.step, 0.0, payload))
        self.sent.append({message.sender for message in arrived})
        for message in arrived:
            self.server = self.algorithm.receive(self.server, message, 0.0)
        recipients = range(len(self.states))
        streams = self.streams.of(COORDINATOR).at(self.step)
        answers, self.server = self.algorithm.broadcast(self.server, recipients, np.ones(len(self.states)), streams)
        for agent, payload in answers.items():
            if agent not in deaf:
                self.inbox[agent].append(Inbound(COORDINATOR, self.step, 0.0, payload))

    def run(self, rounds: int | None = None) -> Lockstep:
        """Go on to the end, or for so many rounds."""
        while (self.spent < self.problem.pulls).any() and (rounds is None or self.step < rounds):
            self.act()
            self.exchange()
        return self
