"""Sharing the best: what is sent, that the portfolio covers the agents, and that the box is searched and not left."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.collaborative.share_best import ShareBest, greedy_cover
from fedbo.algorithms.components.collaborative import CollaborativeState, improvement
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.surrogates.acquisition import criterion_values

N = 5
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)


def bowl(x: Array, agent: int = 0) -> Array:
    return np.asarray(agent - ((x - 0.3 - 0.1 * agent) ** 2).sum(axis=1))


def agent(method: ShareBest, number: int, count: int = 8) -> CollaborativeState:
    x = np.random.default_rng(number).random((count, 2))
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    return method.tell(state, x, bowl(x, number))


def answers(method: ShareBest, numbers: Any) -> dict[int, Payload]:
    server = method.server_init(PROBLEM)
    for number in numbers:
        payload, _ = method.outbox(agent(method, number), Streams(1, owner=number))
        assert payload is not None
        server = method.receive(server, Inbound(number, 0, 0.0, payload), 0.0)
    return method.broadcast(server, range(N), np.ones(N), Streams(1, owner=COORDINATOR))[0]


def covered(x: Array, weight: Array, chosen: Any) -> float:
    """What a portfolio covers, by loops."""
    total = 0.0
    for one, counts in zip(x, weight, strict=True):
        total += counts * max(np.exp(-0.5 * ((one - x[m]) ** 2).sum() / 0.2**2) for m in chosen)
    return float(total)


@pytest.mark.parametrize("seed", range(5))
def test_every_member_of_a_portfolio_adds_most_and_all_come_near_the_best_portfolio(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weight = rng.random((9, 2)), rng.random(9)
    chosen = greedy_cover(x, weight, 3, 0.2).tolist()
    for size in range(3):
        tried = [covered(x, weight, [*chosen[:size], m]) for m in range(9)]
        assert covered(x, weight, chosen[: size + 1]) == pytest.approx(max(tried))
    best = max(covered(x, weight, some) for some in itertools.combinations(range(9), 3))
    assert covered(x, weight, chosen) >= (1 - np.exp(-1)) * best
    assert sorted(greedy_cover(x, weight, 20, 0.2).tolist()) == list(range(9))


def test_a_message_is_the_best_observation_and_its_value_only_where_that_is_asked_for() -> None:
    for values in (False, True):
        method = ShareBest(values=values)
        payload, _ = method.outbox(agent(method, 2), Streams(1, owner=2))
        x = np.random.default_rng(2).random((8, 2))
        assert payload is not None and set(payload) == ({"x", "value"} if values else {"x"})
        np.testing.assert_allclose(payload["x"], x[bowl(x, 2).argmax()], rtol=1e-12)
        assert not values or payload["value"] == bowl(x, 2).max()


def test_values_put_the_best_agent_first_and_no_portfolio_holds_the_receivers_own_point() -> None:
    found = answers(ShareBest(values=True, size=N, reach=0.01), range(N))
    own = {number: answers(ShareBest(form="box", margin=0.0), [number])[0]["low"] for number in range(N)}
    np.testing.assert_allclose(found[0]["x"][0], own[4], atol=1e-3)  # the heights of the bowls grow with the number
    for number in range(N):
        assert len(found[number]["x"]) == N - 1
        assert (np.abs(found[number]["x"] - own[number]).max(axis=1) > 1e-3).all()


def test_the_first_decisions_are_for_the_portfolio_and_the_others_are_the_agents_own() -> None:
    method = ShareBest(size=3)
    portfolio = answers(method, range(1, N))[0]["x"]
    state, inbox, asked = agent(method, 0), [Inbound(COORDINATOR, 0, 0.0, {"x": portfolio})], []
    state = method.tell(state, portfolio[1:2], bowl(portfolio[1:2]))  # one member has been evaluated
    for step in range(1, 6):
        decision, state = method.ask(state, inbox, Streams(1, owner=0).at(step))
        state, inbox = method.tell(state, decision.x, bowl(decision.x)), []
        asked.append(decision)
    assert [decision.origin for decision in asked] == ["federated", "federated", "own", "own", "own"]
    np.testing.assert_allclose(np.concatenate([asked[0].x, asked[1].x]), portfolio[[0, 2]], rtol=1e-12)


def test_the_box_holds_all_incumbents_and_the_best_point_in_it_is_asked_for() -> None:
    method = ShareBest(form="box", margin=0.05)
    box = answers(method, range(N))[0]
    exact = answers(dataclasses.replace(method, margin=0.0), range(N))[0]
    np.testing.assert_allclose(box["low"], np.maximum(exact["low"] - 0.05, 0.0))
    np.testing.assert_allclose(box["high"], np.minimum(exact["high"] + 0.05, 1.0))
    low, high = np.array([0.6, 0.1]), np.array([0.9, 0.3])
    plain = dataclasses.replace(method, own=dataclasses.replace(method.own, coordinates="plain"))
    state, streams = agent(plain, 0), Streams(1, owner=0).at(1)
    decision, state = plain.ask(state, [Inbound(COORDINATOR, 0, 0.0, {"low": low, "high": high})], streams)
    assert decision.origin == "federated" and (decision.x >= low).all() and (decision.x <= high).all()
    grid = low + (high - low) * np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    posterior = plain.own.posterior(state.local)
    values = partial(criterion_values, posterior, improvement(posterior))
    assert values(decision.x)[0] >= values(grid).max() - 1e-6


def test_one_incumbent_gives_a_narrow_box_also_at_a_corner() -> None:
    method = ShareBest(form="box", margin=0.0)
    server = method.receive(method.server_init(PROBLEM), Inbound(1, 0, 0.0, {"x": np.array([1.0, 0.0])}), 0.0)
    found = method.broadcast(server, [0], np.ones(N), Streams(1, owner=COORDINATOR))[0][0]
    assert (found["high"] > found["low"]).all() and found["high"][0] == 1.0 and found["low"][1] == 0.0
