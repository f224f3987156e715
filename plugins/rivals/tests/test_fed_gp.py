"""What `fed_gp` makes of sums on shared features is what dense algebra says."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.components.collaborative import CollaborativeState
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.surrogate import Surrogate
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.surrogates.acquisition import Prediction, prediction
from fedbo.surrogates.features import phi
from fedbo_rivals.ensemble import predictions
from fedbo_rivals.feature_sums import FeatureStatistics, FeatureSums, linear_posterior
from fedbo_rivals.fed_gp import FedGP, mixed

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


def test_the_first_point_without_observations_is_where_the_others_expect_most() -> None:
    method = FedGP(features=M, own=Surrogate(coordinates="plain", clip=0.0))
    answer = answers(method, {number: message(method, number) for number in range(1, N)})[0]
    fresh = method.agent_init(dataclasses.replace(PROBLEM, agent=0), Streams(1, owner=0))
    decision, _ = method.ask(fresh, [Inbound(COORDINATOR, 0, 0.0, answer)], Streams(1, owner=0).at(1))
    features = method.shared(Streams(1, owner=0), 2)
    x, y = zip(*((points(number), bowl(points(number), number)) for number in range(1, N)), strict=True)
    rows = phi(features, np.concatenate(x))
    values = np.concatenate([(each - each.mean()) / each.std() for each in y])
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    weights = np.linalg.solve(rows.T @ rows + method.noise * np.eye(M), rows.T @ values)
    assert decision.origin == "federated"
    assert float((phi(features, decision.x) @ weights)[0]) >= (phi(features, grid) @ weights).max() - 1e-6


def test_with_the_whole_share_an_agent_decides_as_if_alone() -> None:
    method = FedGP(features=M, p=1.0)
    answer = answers(method, {number: message(method, number) for number in range(1, N)})[0]
    alone, _ = method.ask(agent(method, 0), [], Streams(1, owner=0).at(1))
    told, _ = method.ask(agent(method, 0), [Inbound(COORDINATOR, 0, 0.0, answer)], Streams(1, owner=0).at(1))
    np.testing.assert_allclose(told.x, alone.x, atol=1e-5)


def test_a_mix_of_predictions_has_the_gradients_of_its_mean_and_variance() -> None:
    method = FedGP(features=M)
    state = method._fitted(agent(method, 0), Streams(1, owner=0))
    others = linear_posterior(method.shared(Streams(1), 2), FeatureStatistics(**message(method, 1)), method.noise)

    def at(u: Array) -> Prediction:
        return mixed(prediction(method.own.posterior(state.local), u), predictions(others, u), 0.3)

    u, step = to_coordinates(points(9, 5), "arcsine"), 1e-6
    for axis in range(2):
        shift = step * np.eye(2)[axis]
        up, down = at(u + shift), at(u - shift)
        pairs: Any = (("mean", "mean_gradient"), ("variance", "variance_gradient"))
        for value, gradient in pairs:
            slope = (getattr(up, value) - getattr(down, value)) / (2 * step)
            np.testing.assert_allclose(getattr(at(u), gradient)[:, axis], slope, rtol=1e-4, atol=1e-5)
