"""Agents of a method that sends sums on shared features, and what they say and are told, for several tests."""

from __future__ import annotations

import dataclasses

import numpy as np

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.components.collaborative import CollaborativeState
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo_rivals.feature_sums import FeatureSums

N, M = 4, 30
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)


def bowl(x: Array, agent: int = 0) -> Array:
    return np.asarray(10.0 * agent - ((x - 0.3 - 0.05 * agent) ** 2).sum(axis=1))


def points(number: int, count: int = 12) -> Array:
    return np.random.default_rng(number).random((count, 2))


def agent(method: FeatureSums, number: int, count: int = 12) -> CollaborativeState:
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    x = points(number, count)
    return method.tell(state, x, bowl(x, number))


def message(method: FeatureSums, number: int) -> Payload:
    payload, _ = method.outbox(agent(method, number), Streams(1, owner=number))
    assert payload is not None
    return payload


def answers(method: FeatureSums, payloads: dict[int, Payload], staleness: Array | None = None) -> dict[int, Payload]:
    server = method.server_init(PROBLEM)
    for number, payload in payloads.items():
        server = method.receive(server, Inbound(number, 0, 0.0, payload), 0.0)
    weight = np.ones(N) if staleness is None else staleness
    return method.broadcast(server, range(N), weight, Streams(1, owner=COORDINATOR))[0]
