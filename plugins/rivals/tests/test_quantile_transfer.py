"""Quantile transfer: scores know ranks alone, sums give the prior and its deviation, and residuals are modelled."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.components.collaborative import CollaborativeState
from fedbo.algorithms.components.surrogate import Surrogate
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.settings.records import changed
from fedbo.surrogates.features import draw_features, phi
from fedbo_rivals.feature_sums import FeatureStatistics, linear_posterior, statistics
from fedbo_rivals.quantile_transfer import NARROWEST, QuantileTransfer, residual_deviation, scores

N, M = 4, 30
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)
PLAIN = Surrogate(coordinates="plain", clip=0.0)


def bowl(x: Array, agent: int = 0) -> Array:
    """The same bowl for all, each with a scale of its own."""
    return np.asarray(10.0 ** (agent - 1) * (agent - ((x - 0.35) ** 2).sum(axis=1)))


def agent(method: QuantileTransfer, number: int, count: int = 12) -> CollaborativeState:
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    x = np.random.default_rng(number).random((count, 2))
    return method.tell(state, x, bowl(x, number))


def answer(method: QuantileTransfer, count: int = 40) -> Payload:
    server = method.server_init(PROBLEM)
    for number in range(1, N):
        payload, _ = method.outbox(agent(method, number, count), Streams(1, owner=number))
        assert payload is not None
        server = method.receive(server, Inbound(number, 0, 0.0, payload), 0.0)
    return method.broadcast(server, [0], np.ones(N), Streams(1, owner=COORDINATOR))[0][0]


def asked(method: QuantileTransfer, state: CollaborativeState, given: Payload, step: int = 1) -> Any:
    return method.ask(state, [Inbound(COORDINATOR, 0, 0.0, given)], Streams(1, owner=0).at(step))[0]


def test_scores_are_winsorised_normal_quantiles_of_ranks() -> None:
    y = np.array([3.0, -1.0, 40.0, 7.0])
    delta = 1 / (4 * 4**0.25 * np.sqrt(np.pi * np.log(4)))
    np.testing.assert_allclose(scores(y), norm.ppf([0.5, 0.25, 1 - delta, 0.75]), rtol=1e-12)
    np.testing.assert_array_equal(scores(np.exp(y / 10)), scores(y))
    assert scores(np.array([5.0])) == 0 and len(scores(np.empty(0))) == 0
    assert len(set(scores(np.ones(6)))) == 1 and np.isfinite(scores(np.ones(6))).all()


def test_the_deviation_from_sums_is_that_of_the_residuals() -> None:
    rng = np.random.default_rng(0)
    features = draw_features(rng, 2, M, 0.4, "se")
    rows, z = phi(features, rng.random((60, 2))), rng.standard_normal(60) * 0.5
    sums = statistics(rows, z)
    nu = linear_posterior(features, sums, 0.5).nu[0]
    assert residual_deviation(sums, nu) == pytest.approx(np.sqrt(((z - rows @ nu) ** 2).mean()))
    assert residual_deviation(statistics(rows, rows @ nu), nu) == NARROWEST


def test_values_on_any_scale_give_the_same_message() -> None:
    method, state = QuantileTransfer(features=M), agent(QuantileTransfer(features=M), 1)
    risen = state._replace(local=changed(state.local, y=np.exp(3 * state.local.y)))
    one, other = (method.outbox(each, Streams(1, owner=1))[0] for each in (state, risen))
    assert one is not None and other is not None
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("search", ["gp", "thompson"])
def test_an_agent_without_observations_goes_to_where_the_others_score_best(search: Any) -> None:
    method = QuantileTransfer(features=M, own=PLAIN, search=search)
    fresh = method.agent_init(dataclasses.replace(PROBLEM, agent=0), Streams(1, owner=0))
    given = answer(method)
    if search == "gp":
        assert np.abs(asked(method, fresh, given).x - 0.35).max() < 0.12
        return
    drawn = np.concatenate([asked(method, fresh, given, step).x for step in range(1, 60)])
    assert np.abs(drawn.mean(axis=0) - 0.35).max() < 0.12 and drawn.std(axis=0).min() > 0.01


def test_thompson_sampling_does_not_look_at_the_own_observations_and_the_other_search_does() -> None:
    for search, same in (("thompson", True), ("gp", False)):
        method: Any = QuantileTransfer(features=M, own=PLAIN, search=search)
        given, state = answer(method), agent(method, 0)
        other = state._replace(local=changed(state.local, y=-state.local.y))
        points = [asked(method, each, given).x for each in (state, other)]
        assert np.array_equal(*points) == same


def test_what_is_maximised_is_the_improvement_of_prior_and_residual_together_with_its_gradient() -> None:
    method = QuantileTransfer(features=M, own=PLAIN)
    given, state = answer(method), agent(method, 0)
    sums = FeatureStatistics(**given)
    prior = linear_posterior(method.shared(Streams(1, owner=0), 2), sums, method.noise)
    sigma = residual_deviation(sums, prior.nu[0])
    surface = method._improvement(state, prior, sigma, Streams(1, owner=0))
    u = np.random.default_rng(8).random((20, 2))
    for axis in range(2):
        shift = 1e-6 * np.eye(2)[axis]
        slope = (surface(u + shift)[0] - surface(u - shift)[0]) / 2e-6
        np.testing.assert_allclose(surface(u)[1][:, axis], slope, rtol=1e-3, atol=1e-3)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    assert surface(asked(method, state, given).x)[0][0] >= surface(grid)[0].max() - 1e-4
