"""Guided optimisation with private messages: their norm, and what is left of them under the noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Problem
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo_rivals.dp_guide import NORM, DPGuide, gaussian_of, moments
from fedbo_rivals.guide_agent import GuideState, LikelyOptimum

N = 6
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)
PLACE = np.array([0.8, 0.3])


def bowl(x: Array, centre: Array = PLACE) -> Array:
    return np.asarray(-((x - centre) ** 2).sum(axis=1))


def known(method: DPGuide, number: int, count: int = 20, centre: Array = PLACE) -> GuideState:
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    x = np.random.default_rng(number).random((count, 2))
    return method.tell(state, x, number + bowl(x, centre))


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_no_private_message_is_longer_than_the_norm_to_which_it_would_be_clipped(dim: int) -> None:
    rng = np.random.default_rng(dim)
    for _ in range(200):
        optimum = LikelyOptimum(
            rng.random(), rng.integers(0, 2, dim) * rng.random(dim), rng.random(dim), 5.0 * rng.standard_normal()
        )
        assert np.linalg.norm(moments(optimum)) <= NORM
    assert np.linalg.norm(moments(LikelyOptimum(1.0, np.ones(dim), np.ones(dim), 40.0))) == pytest.approx(NORM)


def test_mean_moments_without_noise_are_those_of_the_mixture_of_all_agents() -> None:
    rng = np.random.default_rng(3)
    sent = [LikelyOptimum(rng.random(), rng.random(3), 0.02 * rng.random(3), 0.3) for _ in range(5)]
    found = gaussian_of(np.mean([moments(one) for one in sent], axis=0), 0.0)
    weight = np.array([one.share for one in sent])
    chosen = rng.choice(5, 100_000, p=weight / weight.sum())
    mean, variance = np.array([one.mean for one in sent])[chosen], np.array([one.variance for one in sent])[chosen]
    drawn = mean + np.sqrt(variance) * rng.standard_normal(mean.shape)
    assert found is not None
    np.testing.assert_allclose(found["mean"][0], drawn.mean(axis=0), atol=0.005)
    np.testing.assert_allclose(found["variance"][0], drawn.var(axis=0), atol=0.005)


def test_a_released_gaussian_is_widened_by_its_noise_and_withheld_where_that_hides_it() -> None:
    mean = moments(LikelyOptimum(1.0, np.array([0.3, 0.6]), np.full(2, 0.01), 3.0))
    wide, narrow = gaussian_of(mean, 0.2), gaussian_of(mean, 0.0)
    assert wide is not None and narrow is not None and gaussian_of(mean, 0.6) is None
    np.testing.assert_allclose(wide["variance"] - narrow["variance"], 0.5 * 0.2**2 / mean[0] ** 2, rtol=1e-9)


def test_what_many_private_agents_have_in_common_is_found_through_the_noise() -> None:
    """Twenty agents, noise multiplier 1: the mean of ten releases is off by less than .25, which chance exceeds once in 1e4."""
    method = DPGuide(noise_multiplier=1.0)
    problem = dataclasses.replace(PROBLEM, n_agents=20)
    sent = [method.outbox(known(method, number, 12), Streams(1, owner=number).at(1))[0] for number in range(5)]
    mean = np.mean([payload["moments"] for payload in sent if payload is not None], axis=0)
    rng, off = np.random.default_rng(2), []
    for _ in range(10):
        server = method.released(method.server_init(problem), (mean + NORM / 20 * rng.standard_normal(5))[None], 0)
        answer = method.broadcast(server, [0], np.ones(20), Streams(1, owner=COORDINATOR))[0]
        off.append(np.abs(answer[0]["mean"][0] - PLACE))
    assert np.mean(off) < 0.12
