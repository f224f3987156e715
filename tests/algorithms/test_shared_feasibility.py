"""Shared feasibility: probabilities by brute force, their slopes, and that failures of others keep an agent away."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.failures import REACH, Prior, outcomes_of, success
from fedbo.algorithms.learned_prior.fed_prior import FedPrior
from fedbo.algorithms.streams import COORDINATOR, Streams

N = 3
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)
METHOD = FedPrior(feasibility=True, points=49, coordinates="plain")


def test_a_probability_is_that_of_weighted_counts() -> None:
    rng = np.random.default_rng(1)
    good, bad, design, told, u = rng.random((4, 2)), rng.random((3, 2)), rng.random((5, 2)), rng.random(5), rng.random(2)

    def near(a: Array, b: Array) -> float:
        return float(np.exp(-0.5 * ((a - b) ** 2).sum() / (2 * REACH**2)))

    weights = [near(u, one) for one in design]
    prior = sum(w * p for w, p in zip(weights, told, strict=True)) / sum(weights)
    succeeded, failed = sum(near(u, one) for one in good), sum(near(u, one) for one in bad)
    found, slope = success(outcomes_of(good, bad), Prior(design, told, 0.5), u[None, :])
    assert found[0] == pytest.approx((succeeded + prior) / (succeeded + failed + 1.0))
    ends = [success(outcomes_of(good, bad), Prior(design, told, 0.5), (u + s * d)[None, :])[0][0]
            for d in 1e-6 * np.eye(2) for s in (1, -1)]  # fmt: skip
    np.testing.assert_allclose(slope[0], [(ends[0] - ends[1]) / 2e-6, (ends[2] - ends[3]) / 2e-6], rtol=1e-5)


def state_of(method: Any, number: int, x: Array, failed: Array) -> Any:
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    state = method.tell(state, x, -((x - 0.85) ** 2).sum(axis=1))
    return method.avoiding(state, failed) if len(failed) else state


def answer(method: Any) -> Any:
    """Let two agents whose evaluations fail above 0.6 send, and return what the third one receives."""
    server, rng = method.server_init(PROBLEM), np.random.default_rng(4)
    for number in (1, 2):
        x = rng.random((30, 2))
        lost = (x > 0.6).any(axis=1)
        payload, _ = method.outbox(state_of(method, number, x[~lost], x[lost]), Streams(1, owner=number))
        assert set(payload) == set(method.upload(PROBLEM)), "a message is as declared"
        server = method.receive(server, Inbound(number, 0, 0.0, payload), 0.0)
    return method.broadcast(server, [0], np.ones(N), Streams(1, owner=COORDINATOR))[0][0]


def test_failures_of_others_keep_an_agent_away() -> None:
    x = np.array([[0.1, 0.2], [0.4, 0.3], [0.2, 0.5]])
    chosen = []
    for method in (METHOD, dataclasses.replace(METHOD, feasibility=False)):
        told = answer(method)
        assert ("feasible" in told) == method.feasibility
        state = state_of(method, 0, x, np.empty((0, 2)))
        chosen.append(method.ask(state, [Inbound(COORDINATOR, 0, 0.0, told)], Streams(1, owner=0).at(1))[0].x[0])
    assert chosen[0].max() < chosen[1].max(), "the slope leads towards the corner where others failed"


def test_probabilities_lie_between_0_and_1_and_controls_send_others() -> None:
    told = answer(METHOD)["feasible"]
    assert ((told >= 0.0) & (told <= 1.0)).all() and told.min() < 0.4 < 0.7 < told.max()
    sent = {name: answer(entry(f"fed_prior{name}").make(None, feasibility=True, points=49))["feasible"]
            for name in ("", "_noise", "_shuffled")}  # fmt: skip
    assert not np.allclose(sent[""], sent["_shuffled"]) and not np.allclose(sent[""], sent["_noise"])
    assert set(entry("fed_prior").make(None).upload(PROBLEM) or {}) == {"values", "certainty", "stretch"}
