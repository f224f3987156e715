"""FLoRA: everything is sent once, and what comes back for all is best on the surface, as a dense grid says."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.components.collaborative import CollaborativeState
from fedbo.algorithms.components.surrogate import LocalState, Surrogate, standardised
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.surrogates.gp import predict
from fedbo_rivals.flora import POOLED, EvaluatedTable, FLoRA

N = 3
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)
TOPS = np.array([[0.2, 0.3], [0.4, 0.8], [0.7, 0.5]])
GRID = np.stack(np.meshgrid(*[np.linspace(0, 1, 81)] * 2), axis=-1).reshape(-1, 2)
PLAIN = Surrogate(coordinates="plain", clip=0.0)


def bowl(x: Array, agent: int = 0) -> Array:
    return np.asarray(3.0 * agent - ((x - TOPS[agent]) ** 2).sum(axis=1))


def agent(method: FLoRA, number: int, count: int = 25) -> CollaborativeState:
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    x = np.random.default_rng(number).random((count, 2))
    return method.tell(state, x, bowl(x, number))


def answered(method: FLoRA, count: int = 25) -> tuple[dict[int, Payload], dict[int, EvaluatedTable]]:
    server = method.server_init(PROBLEM)
    for number in range(N):
        payload, _ = method.outbox(agent(method, number, count), Streams(1, owner=number))
        assert payload is not None
        server = method.receive(server, Inbound(number, 0, 0.0, payload), 0.0)
    return method.broadcast(server, range(N), np.ones(N), Streams(1, owner=COORDINATOR))


def test_a_message_is_all_that_was_evaluated_and_is_sent_once() -> None:
    method = FLoRA(after=3)
    assert [step for step in range(9) if method.sends(step)] == [3]
    payload, _ = method.outbox(agent(method, 1), Streams(1, owner=1))
    x = np.random.default_rng(1).random((25, 2))
    assert payload is not None
    np.testing.assert_allclose(payload["x"], x, rtol=1e-9)
    np.testing.assert_array_equal(payload["y"], bowl(x, 1))


@pytest.mark.parametrize("surface", ["average", "worst"])
def test_the_configuration_is_best_for_all_surrogates_together(surface: Any) -> None:
    found, tables = answered(FLoRA(surface=surface, own=PLAIN))
    assert len({payload["x"].tobytes() for payload in found.values()}) == 1
    posteriors = [table.fitted for table in tables.values() if table.fitted is not None]
    assert len(posteriors) == N

    def of_all(x: Array) -> Array:
        means = np.stack([predict(one, x)[0] for one in posteriors])
        return means.mean(axis=0) if surface == "average" else means.min(axis=0)

    assert of_all(found[0]["x"][None, :])[0] >= of_all(GRID).max() - (1e-6 if surface == "average" else 5e-3)
    if surface == "average":  # the mean of bowls, each in units of its own, is a bowl between their tops
        assert np.abs(found[0]["x"] - TOPS.mean(axis=0)).max() < 0.1


@pytest.mark.parametrize("surface", ["single", "cautious"])
def test_one_surface_of_all_pairs_takes_values_in_units_of_their_agents(surface: Any) -> None:
    method: Any = FLoRA(surface=surface, own=PLAIN, caution=2.0)
    found, tables = answered(method)
    u = np.concatenate([table.u for table in tables.values()])
    y = np.concatenate([standardised(table.y) for table in tables.values()])
    streams = Streams(1, owner=COORDINATOR)
    posterior = PLAIN.posterior(PLAIN.fit(LocalState(u, y), streams.within("surface")))
    mean, variance = predict(posterior, GRID)
    at, spread = predict(posterior, found[0]["x"][None, :])
    caution = 2.0 if surface == "cautious" else 0.0
    assert at[0] - caution * np.sqrt(spread[0]) >= (mean - caution * np.sqrt(variance)).max() - 1e-6


def test_many_pairs_are_thinned_evenly() -> None:
    pooled = FLoRA(own=PLAIN)._pooled([EvaluatedTable(np.full((400, 2), n / 4), np.arange(400.0)) for n in range(N)])
    assert len(pooled.y) == POOLED
    assert [int((pooled.u[:, 0] == n / 4).sum()) for n in range(N)] == [100, 100, 100]


def test_an_agent_evaluates_the_configuration_next_and_then_goes_on_alone() -> None:
    method = FLoRA()
    state, inbox, origins = agent(method, 0), [Inbound(COORDINATOR, 0, 0.0, {"x": np.array([0.31, 0.62])})], []
    for step in range(1, 4):
        decision, state = method.ask(state, inbox, Streams(1, owner=0).at(step))
        if step == 1:
            np.testing.assert_allclose(decision.x, [[0.31, 0.62]], rtol=1e-12)
        state, inbox = method.tell(state, decision.x, bowl(decision.x)), []
        origins.append(decision.origin)
    assert origins == ["federated", "own", "own"]
