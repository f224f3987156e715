"""FMTBO: hyperparameters go there and back, those of like agents are averaged, and both processes count in the acquisition."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.components.collaborative import CollaborativeState
from fedbo.algorithms.components.coordinates import design_points, to_coordinates
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import expected_improvement, prediction
from fedbo.surrogates.gp import Hyperparameters, predict
from fedbo_rivals.fmtbo import FMTBO, mixed_improvement, parameters, with_parameters

N, M = 5, 25
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)


def ripple(x: Array, agent: int = 0) -> Array:
    return np.asarray(np.sin(4.0 * x[:, 0] + 0.7 * agent) - (x[:, 1] - 0.4) ** 2)


def agent(method: FMTBO, number: int, count: int = 12) -> CollaborativeState:
    x = np.random.default_rng(number).random((count, 2))
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    return method.tell(state, x, ripple(x, number))


def broadcast(method: FMTBO, payloads: dict[int, Payload], staleness: Array | None = None) -> dict[int, Payload]:
    server = method.server_init(PROBLEM)
    for number, payload in payloads.items():
        server = method.receive(server, Inbound(number, 0, 0.0, payload), 0.0)
    weight = np.ones(N) if staleness is None else staleness
    return method.broadcast(server, range(N), weight, Streams(1, owner=COORDINATOR))[0]


def test_hyperparameters_go_there_and_back() -> None:
    for length_scale in (0.3, (0.2, 1.7)):
        hyper = Hyperparameters(length_scale, 0.7, 0.02, "matern52", 3.0, 2.0)
        back = with_parameters(hyper, parameters(hyper, 2))
        np.testing.assert_allclose(back.length_scale, length_scale, rtol=1e-12)
        assert (back.variance, back.noise_variance) == pytest.approx((0.7, 0.02))
        assert (back.family, back.offset, back.scale) == ("matern52", 3.0, 2.0)
    damaged = with_parameters(hyper, np.array([-1e300, 1e300, 0.0, np.finfo(float).max]))
    assert damaged.length_scale == (100.0, 0.01) and (damaged.variance, damaged.noise_variance) == (1e-3, 1.0)


@pytest.mark.parametrize("alike", [0.4, 0.8, 1.0])
def test_an_answer_averages_the_agents_with_the_fewest_pairs_in_another_order(alike: float) -> None:
    method, rng = FMTBO(points=M, alike=alike), np.random.default_rng(3)
    ranks = [rng.permutation(M) for _ in range(N)]
    ranks[3] = ranks[0].copy()
    ranks[3][[4, 9]] = ranks[3][[9, 4]]  # nearly the order of agent 0
    theta, size = rng.random((N, 4)), rng.integers(3, 30, N).astype(float)
    payloads = {n: {"parameters": theta[n], "ranks": ranks[n], "size": size[n : n + 1]} for n in range(N)}
    found = broadcast(method, payloads)
    for n in range(N):
        apart = [sum((a < b) != (c < d) for a, c in zip(ranks[n], ranks[o], strict=True)
                     for b, d in zip(ranks[n], ranks[o], strict=True)) for o in range(N)]  # fmt: skip
        chosen = sorted(range(N), key=lambda o: (apart[o], o))[: int(alike * N)]
        assert n in chosen
        wanted = sum(size[o] * theta[o] for o in chosen) / sum(size[o] for o in chosen)
        np.testing.assert_allclose(found[n]["parameters"], wanted, rtol=1e-12)


def test_a_message_has_hyperparameters_ranks_and_size_and_no_observation() -> None:
    method = FMTBO(points=M)
    payload, _ = method.outbox(agent(method, 1), Streams(1, owner=1))
    assert payload is not None and payload["size"] == 12 and sorted(payload["ranks"]) == list(range(M))
    fitted = method._fitted(agent(method, 1), Streams(1, owner=1)).local
    design = to_coordinates(design_points(M, 2), "arcsine")
    assert fitted.hyper is not None
    wanted = predict(method.own.posterior(fitted), design)[0]
    order = np.argsort(payload["ranks"])
    assert np.corrcoef(wanted[order], np.arange(M))[0, 1] > 0.8
    constant = agent(method, 1)
    moved, _ = method.outbox(constant._replace(local=changed(constant.local, y=5 * constant.local.y + 1)), Streams(1, owner=1))
    assert moved is not None
    np.testing.assert_allclose(moved["parameters"], payload["parameters"], rtol=1e-3)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_the_acquisition_is_the_weighted_sum_of_both_improvements_with_its_gradient(gamma: float) -> None:
    method = FMTBO()
    state = method._fitted(agent(method, 0), Streams(1, owner=0))
    assert state.local.hyper is not None
    mine = method.own.posterior(state.local)
    other = method.own.posterior(changed(state.local, hyper=replace(state.local.hyper, length_scale=(0.1, 0.9))))
    best = float(mine.y.max())
    surface, u = mixed_improvement(mine, other, gamma, best), np.random.default_rng(5).random((20, 2))
    wanted = gamma * expected_improvement(prediction(other, u), best)[0]
    wanted += (1 - gamma) * expected_improvement(prediction(mine, u), best)[0]
    seen = wanted > 1e-12
    assert seen.any()
    np.testing.assert_allclose(np.exp(surface(u)[0])[seen], wanted[seen], rtol=1e-6)
    for axis in range(2):
        shift = 1e-6 * np.eye(2)[axis]
        slope = (surface(u + shift)[0] - surface(u - shift)[0]) / 2e-6
        np.testing.assert_allclose(surface(u)[1][:, axis], slope, rtol=1e-3, atol=1e-3)


def test_an_answer_changes_what_is_asked_for_unless_the_global_process_counts_for_nothing() -> None:
    streams, asked = Streams(1, owner=0).at(1), {}
    answer: Any = {"parameters": np.array([60.0, 0.1, 2.0, 0.001])}
    for gamma in (0.0, 1.0):
        method = FMTBO(gamma=gamma)
        alone, _ = method.ask(agent(method, 0), [], streams)
        told, _ = method.ask(agent(method, 0), [Inbound(COORDINATOR, 0, 0.0, answer)], streams)
        assert (alone.origin, told.origin) == ("own", "federated")
        asked[gamma] = float(np.abs(alone.x - told.x).max())
    assert asked[0.0] < 1e-5 and asked[1.0] > 1e-3


def test_averaged_hyperparameters_are_kept_or_only_where_the_fit_starts() -> None:
    answer: Any = {"parameters": np.array([60.0, 0.1, 2.0, 0.001])}
    for word, same in (("kept", True), ("refitted", False)):
        method = FMTBO(hyperparameters=word)
        state = method._fitted(agent(method, 0, 30), Streams(1, owner=0))._replace(answer=answer)
        hyper = method._global(state, state.local, Streams(1, owner=0)).hyper
        assert hyper is not None and state.local.hyper is not None
        assert np.allclose(parameters(hyper, 2), answer["parameters"]) == same
        assert np.allclose(parameters(hyper, 2), parameters(state.local.hyper, 2), rtol=0.05) == (not same)
        assert (hyper.offset, hyper.scale) == (state.local.hyper.offset, state.local.hyper.scale)
