"""ConsensusBO: the matrices are those of the authors, answers are their products, and agents evaluate what they agree on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.components.collaborative import CollaborativeState, improvement
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import criterion_values
from fedbo_rivals.consensus import ConsensusBO, mixing_row

N, T = 4, 10
PROBLEM = Problem(2, N, tuple(range(N)), 3, T)


def bowl(x: Array, agent: int = 0) -> Array:
    return np.asarray(-((x - 0.2 - 0.15 * agent) ** 2).sum(axis=1))


def agent(method: ConsensusBO, number: int) -> CollaborativeState:
    x = np.random.default_rng(number).random((6, 2))
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    return method.tell(state, x, bowl(x, number))


def proposals(method: ConsensusBO) -> list[Payload]:
    payloads = [method.outbox(agent(method, number), Streams(1, owner=number))[0] for number in range(N)]
    return [payload for payload in payloads if payload is not None]


def answers(method: ConsensusBO, payloads: list[Payload], step: int, staleness: Array | None = None) -> dict[int, Payload]:
    server = method.server_init(PROBLEM)
    for number, payload in enumerate(payloads):
        server = method.receive(server, Inbound(number, step, 0.0, payload), 0.0)
    weight = np.ones(N) if staleness is None else staleness
    return method.broadcast(server, range(N), weight, Streams(1, owner=COORDINATOR))[0]


def matrix(count: int, step: int, until: int, leader: int = -1) -> Array:
    return np.stack([mixing_row(row, count, step, until, leader) for row in range(count)])


@pytest.mark.parametrize(("count", "until"), [(2, 5), (3, 7), (5, 4), (5, 100), (8, 3)])
def test_the_matrices_follow_the_published_recursion(count: int, until: int) -> None:
    """W(t + 1) gains (K - 1) / (T K) on its diagonal and loses 1 / (T K) elsewhere; the other one is moved towards agent 1."""
    plain, off = np.full((count, count), 1.0 / count), 1.0 / (until * count)
    for step in range(until):
        if plain[1, 1] > (count - 1) ** 2 * off:
            led = plain - off
            led[1, :] = plain[1, :] + (count - 1) * off
            led[:, 1] = plain[:, 1] + (count - 1) * off
            led[1, 1] = plain[1, 1] - (count - 1) ** 2 * off
        else:
            led = np.full((count, count), (count - 2) / (count - 1) ** 2)
            led[:, 1] = led[1, :] = 1.0 / (count - 1)
            led[1, 1] = 0.0
        np.testing.assert_allclose(matrix(count, step, until), plain, atol=1e-12)
        np.testing.assert_allclose(matrix(count, step, until, 1), led, atol=1e-12)
        plain = plain + np.eye(count) * (count - 1) * off - (1.0 - np.eye(count)) * off
    assert (matrix(count, until, until) == np.eye(count)).all() and (matrix(count, until + 3, until, 1) == np.eye(count)).all()


@pytest.mark.parametrize("leader", [-1, 0, 2])
def test_every_matrix_is_symmetric_and_doubly_stochastic(leader: int) -> None:
    for count, until in ((3, 1), (4, 2), (6, 30)):
        for step in range(until + 2):
            found = matrix(count, step, until, leader)
            assert found.min() > -1e-12
            np.testing.assert_allclose(found, found.T, atol=1e-12)
            np.testing.assert_allclose(found.sum(axis=0), 1.0)


@pytest.mark.parametrize("kind", ["uniform", "leader"])
@pytest.mark.parametrize("step", [0, 3, T])
def test_answers_are_the_product_with_the_matrix_and_stale_proposals_count_for_less(kind: Any, step: int) -> None:
    method = ConsensusBO(matrix=kind)
    payloads = proposals(method)
    x = np.stack([payload["x"] for payload in payloads])
    leader = -1 if kind == "uniform" else int(np.argmax([payload["utility"][0] for payload in payloads]))
    found = answers(method, payloads, step)
    np.testing.assert_allclose(np.stack([found[k]["x"] for k in range(N)]), matrix(N, step, T, leader) @ x, atol=1e-12)
    worth = np.array([1.0, 0.5, 0.0, 1.0])
    stale = matrix(N, step, T, leader) * worth
    stale[np.diag_indices(N)] += 1.0 - stale.sum(axis=1)
    found = answers(method, payloads, step, worth)
    np.testing.assert_allclose(np.stack([found[k]["x"] for k in range(N)]), stale @ x, atol=1e-12)


def test_a_proposal_is_where_the_own_improvement_is_largest_and_its_utility_is_in_the_units_of_the_values() -> None:
    method = ConsensusBO(matrix="leader")
    state = agent(method, 1)
    payload, state = method.outbox(state, Streams(1, owner=1))
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    posterior = method.own.posterior(state.local)
    highest = criterion_values(posterior, improvement(posterior), grid).max()
    assert payload is not None and state.local.hyper is not None
    top = payload["utility"][0] - np.log(state.local.hyper.scale)
    assert top >= highest - 1e-6
    doubled = state._replace(local=changed(state.local, y=2 * state.local.y, hyper=None, fitted=0))
    again, _ = method.outbox(doubled, Streams(1, owner=1))
    assert again is not None and again["utility"][0] - payload["utility"][0] == pytest.approx(np.log(2), abs=1e-4)


def test_an_agent_evaluates_the_mix_once_and_then_its_own_proposal() -> None:
    method = ConsensusBO()
    mix = answers(method, proposals(method), 0)[0]
    state = agent(method, 0)
    first, state = method.ask(state, [Inbound(COORDINATOR, 0, 0.0, mix)], Streams(1, owner=0).at(1))
    np.testing.assert_allclose(first.x[0], mix["x"], atol=1e-12)
    state = method.tell(state, first.x, bowl(first.x))
    second, _ = method.ask(state, [], Streams(1, owner=0).at(2))
    assert (first.origin, second.origin) == ("federated", "own")
    proposed, _ = method.outbox(state, Streams(1, owner=0).at(1))
    assert proposed is not None
    np.testing.assert_allclose(second.x[0], proposed["x"], atol=1e-4)


def test_who_has_observed_nothing_proposes_nothing() -> None:
    method = ConsensusBO()
    known = np.random.default_rng(0).random((5, 2))
    problem = dataclasses.replace(PROBLEM, agent=3, history_x=known, history_y=bowl(known))
    assert method.outbox(method.agent_init(problem, Streams(1)), Streams(1, owner=3))[0] is None
    found = answers(method, proposals(method)[:2], 0)
    assert set(found) == {0, 1}
