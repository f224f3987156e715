"""Sums on shared features: they are those of pooled data, and what two methods make of them is what dense algebra says."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.components.collaborative import CollaborativeState
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.feature_sums import FeatureStatistics, FeatureSums, linear_posterior, statistics
from fedbo.algorithms.components.surrogate import Surrogate
from fedbo.algorithms.rivals.fed_gp import FedGP, mixed
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import Prediction, prediction
from fedbo.surrogates.ensemble import predictions
from fedbo.surrogates.features import draw_features, phi

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


def test_sums_over_agents_are_the_statistics_of_their_pooled_data() -> None:
    rng = np.random.default_rng(0)
    rows, y = rng.standard_normal((20, M)), rng.standard_normal(20)
    parts = [statistics(rows[at : at + 5], y[at : at + 5]) for at in range(0, 20, 5)]
    for total, whole in zip((sum(part) for part in zip(*parts, strict=True)), statistics(rows, y), strict=True):
        np.testing.assert_allclose(total, whole, rtol=1e-12)


@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_the_posterior_from_sums_is_that_of_the_gaussian_process_on_pooled_data(noise: float) -> None:
    """In the dual form, with the kernel phi(x)'phi(z): K (K + noise I)^-1 y, and K - K (K + noise I)^-1 K."""
    rng = np.random.default_rng(1)
    features = draw_features(rng, 2, M, 0.3, "matern52")
    x, at, y = rng.random((50, 2)), rng.random((7, 2)), rng.standard_normal(50)
    rows, wanted = phi(features, x), phi(features, at)
    found = predictions(linear_posterior(features, statistics(rows, y), noise), at)
    inverse = np.linalg.inv(rows @ rows.T + noise * np.eye(50))
    np.testing.assert_allclose(found.mean[:, 0], wanted @ rows.T @ inverse @ y, rtol=1e-6, atol=1e-8)
    cross = wanted @ rows.T
    variance = (wanted**2).sum(axis=1) - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    np.testing.assert_allclose(found.variance[:, 0], variance, rtol=1e-5, atol=1e-8)


def test_an_answer_is_the_sum_over_all_others_and_stale_messages_count_for_less() -> None:
    method = FedGP(features=M)
    payloads = {number: message(method, number) for number in range(3)}
    worth = np.array([1.0, 0.5, 0.25, 1.0])
    found = answers(method, payloads, worth)
    for number in range(N):
        for name in FeatureStatistics._fields:
            wanted = sum(worth[other] * payloads[other][name] for other in payloads if other != number)
            np.testing.assert_allclose(found[number][name], wanted, rtol=1e-12, atol=1e-12)
    assert set(answers(method, {2: payloads[2]})) == {0, 1, 3} and not answers(method, {})


def test_a_message_does_not_change_with_offset_and_scale_of_the_values() -> None:
    method = FedGP(features=M)
    state = agent(method, 1)
    moved = state._replace(local=changed(state.local, y=7.0 + 3.0 * state.local.y))
    for one, other in zip(*(method.outbox(each, Streams(1, owner=1))[0].values() for each in (state, moved)), strict=True):  # type: ignore[union-attr]
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


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
