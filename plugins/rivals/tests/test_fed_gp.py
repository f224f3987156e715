"""What `fed_gp` makes of sums on shared features is what dense algebra says."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sums import PROBLEM, M, N, agent, answers, bowl, message, points

from fedbo.algorithms.base import Array, Inbound
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.surrogate import Surrogate
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.surrogates.acquisition import Prediction, prediction
from fedbo.surrogates.features import phi
from fedbo_rivals.ensemble import predictions
from fedbo_rivals.feature_sums import FeatureStatistics, linear_posterior
from fedbo_rivals.fed_gp import FedGP, mixed


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
