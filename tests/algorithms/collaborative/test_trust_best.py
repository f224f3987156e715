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
from fedbo.testing.lockstep import Lockstep, noisy

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


def test_evaluations_in_vain_keep_their_share_in_every_run_and_points_that_improve_cost_nothing() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        pay, agents, spread = float(rng.uniform(0.05, 0.6)), int(rng.integers(2, 5)), float(rng.choice([0.0, 0.1, 1.0]))
        centres = 0.5 + spread * (rng.random((agents, 2)) - 0.5)
        problem = Problem(2, agents, tuple(range(agents)), int(rng.integers(1, 5)), 8)
        evaluate = noisy(lambda x, agent, centres=centres: -((x - centres[agent]) ** 2).sum(axis=1))  # type: ignore[misc]
        run = Lockstep(TrustBest(turn=1, pay=pay), problem, evaluate, seed)
        run.begin()
        run.exchange()
        run.run(8)
        gained = 0
        for agent, observed in enumerate(run.observed):
            values, vain = [float(one) for one in observed[0][1]], 0
            for round_, (_, y) in zip(run.decisions, observed[1:], strict=True):
                is_told, is_better = round_[agent].origin == "federated", float(y[0]) > max(values)
                assert not is_told or vain + 1 <= pay * (len(values) + 1), "one was not affordable"
                vain, gained = vain + (is_told and not is_better), gained + (is_told and is_better)
                values.append(float(y[0]))
                assert vain <= pay * len(values)
        assert gained or spread, "agents that are alike must gain"


def test_a_point_of_others_that_failed_or_is_under_way_counts_as_in_vain() -> None:
    method, x = TrustBest(turn=1, pay=0.25), np.random.default_rng(5).random((4, 2))
    offers = offered(np.array([[0.31, 0.3], [0.29, 0.3], [0.3, 0.28]]))
    decision, state = method.ask(begun(method, 0, x), offers, Streams(1, owner=0).at(1))
    assert decision.origin == "federated"
    waiting, _ = method.ask(method.pending(state, decision.x), offers, Streams(1, owner=0).at(2))
    assert waiting.origin == "own", "two of six in vain would be more than a quarter"
    failed, _ = method.ask(method.avoiding(state, decision.x), offers, Streams(1, owner=0).at(2))
    assert failed.origin == "own"
    better, _ = method.ask(method.tell(state, decision.x, np.array([10.0])), offers, Streams(1, owner=0).at(2))
    assert better.origin == "federated", "what is better costs nothing"


@pytest.mark.parametrize("name", ["trust_best", "share_best", "dp_share_best"])
def test_the_best_point_of_an_own_earlier_task_is_evaluated_first_where_that_is_asked_for(name: str) -> None:
    x = np.random.default_rng(2).random((6, 2))
    problem = dataclasses.replace(PROBLEM, agent=0, history=6, history_x=x, history_y=bowl(x))
    offers = offered(np.array([[0.9, 0.9]]))
    for is_asked in (True, False):
        method: Any = entry(name).make(earlier_first=is_asked)
        state = method.tell(method.agent_init(problem, Streams(1, owner=0)), x[:2] / 2, bowl(x[:2] / 2))
        first, state = method.ask(state, offers, Streams(1, owner=0).at(1))
        assert np.allclose(first.x[0], x[bowl(x).argmax()], atol=1e-12) == is_asked
        second, _ = method.ask(method.tell(state, first.x, bowl(first.x)), offers, Streams(1, owner=0).at(2))
        assert not np.allclose(second.x[0], first.x[0])
