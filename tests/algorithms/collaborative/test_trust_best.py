"""Judged incumbents: what is sent, whose point is evaluated, and that units and levels of other agents change nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.collaborative.trust_best import TrustBest
from fedbo.algorithms.components.collaborative import CollaborativeState
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.surrogates.gp import predict

N = 4
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)
METHOD = TrustBest()


def bowl(x: Array) -> Array:
    return np.asarray(-((x - 0.3) ** 2).sum(axis=1))


def begun(method: TrustBest, number: int, x: Array, scale: float = 1.0) -> CollaborativeState:
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    return method.tell(state, x, scale * bowl(x) + scale)


def offered(x: Array) -> list[Inbound]:
    return [Inbound(COORDINATOR, 0, 0.0, {"x": x})]


def test_the_offered_point_with_the_largest_bound_of_the_own_surrogate_is_evaluated() -> None:
    points = np.random.default_rng(3).random((8, 2))
    offers = np.array([[0.9, 0.95], [0.32, 0.27], [0.95, 0.05]])
    decision, state = METHOD.ask(begun(METHOD, 0, points), offered(offers), Streams(1, owner=0).at(1))
    mean, variance = predict(METHOD.own.posterior(state.local), to_coordinates(offers, "arcsine"))
    best = int((mean + 2.0 * np.sqrt(variance)).argmax())
    assert decision.origin == "federated" and best == 1
    np.testing.assert_allclose(decision.x[0], offers[best], rtol=1e-12)


def test_a_sender_of_bad_points_is_not_asked_again_nearby_while_another_offers() -> None:
    # the agent has seen that the corner is bad, and knows nothing of the middle
    points = np.array([[0.95, 0.95], [0.9, 0.98], [0.98, 0.9], [0.1, 0.1]])
    decision, _ = METHOD.ask(
        begun(METHOD, 0, points), offered(np.array([[0.97, 0.96], [0.45, 0.5]])), Streams(1, owner=0).at(1)
    )
    np.testing.assert_allclose(decision.x[0], [0.45, 0.5], rtol=1e-12)


def test_turns_alternate_and_points_that_were_evaluated_are_not_offered_twice() -> None:
    state, inbox = begun(METHOD, 0, np.random.default_rng(0).random((4, 2))), offered(np.array([[0.2, 0.8], [0.6, 0.6]]))
    origins = []
    for step in range(1, 7):
        decision, state = METHOD.ask(state, inbox, Streams(1, owner=0).at(step))
        state, inbox = METHOD.tell(state, decision.x, bowl(decision.x)), []
        origins.append(decision.origin)
    assert origins == ["federated", "own", "federated", "own", "own", "own"]


@pytest.mark.parametrize("scale", [1e6, 1e-6])
def test_messages_and_decisions_do_not_depend_on_the_units_of_values(scale: float) -> None:
    x = np.random.default_rng(5).random((6, 2))
    payloads = [METHOD.outbox(begun(METHOD, 1, x, factor), Streams(1, owner=1))[0] for factor in (1.0, scale)]
    assert all(payload is not None and set(payload) == {"x"} for payload in payloads)
    np.testing.assert_allclose(payloads[0]["x"], x[bowl(x).argmax()], rtol=1e-12)  # type: ignore[index]
    np.testing.assert_array_equal(payloads[0]["x"], payloads[1]["x"])  # type: ignore[index]


def test_every_agent_receives_the_newest_incumbents_of_the_others_alone() -> None:
    server = METHOD.server_init(PROBLEM)
    for sender, x in ((1, [0.1, 0.2]), (2, [0.3, 0.4]), (1, [0.5, 1.5])):  # the last one was damaged
        server = METHOD.receive(server, Inbound(sender, 0, 0.0, {"x": np.array(x)}), 0.0)
    found, _ = METHOD.broadcast(server, range(N), np.ones(N), Streams(1, owner=COORDINATOR))
    assert found[0]["x"].tolist() == [[0.5, 1.0], [0.3, 0.4]] and found[1]["x"].tolist() == [[0.3, 0.4]]
    lonely = METHOD.receive(METHOD.server_init(PROBLEM), Inbound(1, 0, 0.0, {"x": np.zeros(2)}), 0.0)
    assert set(METHOD.broadcast(lonely, range(N), np.ones(N), Streams(1))[0]) == {0, 2, 3}


def test_alone_an_agent_sends_nothing_and_asks_only_for_itself() -> None:
    alone: Any = entry("trust_best_alone").make()
    assert alone.upload(PROBLEM) is alone.download(PROBLEM) is None and not any(alone.sends(step) for step in range(3))
    decision, _ = alone.ask(begun(alone, 0, np.random.default_rng(7).random((5, 2))), [], Streams(1, owner=0).at(1))
    assert decision.origin == "own"


def test_the_controls_send_and_evaluate_uniform_points() -> None:
    x = np.random.default_rng(7).random((5, 2))
    noise, uniform = entry("trust_best_noise").make(), entry("trust_best_uniform").make()
    sent = [noise.outbox(begun(noise, 1, x), Streams(seed, owner=1))[0]["x"] for seed in range(3)]  # type: ignore
    assert len({tuple(one) for one in sent}) == 3 and not any((one == x).all(axis=1).any() for one in sent)
    decision, _ = uniform.ask(begun(uniform, 0, x), offered(np.array([[0.3, 0.3]])), Streams(1, owner=0).at(1))  # type: ignore
    assert decision.origin == "uniform" and not np.allclose(decision.x[0], [0.3, 0.3])
