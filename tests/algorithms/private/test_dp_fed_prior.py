"""The private federated prior: what a message may be, what is answered, and that it is used, though noise hides it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Payload, Problem
from fedbo.algorithms.components.coordinates import from_coordinates
from fedbo.algorithms.learned_prior.prior_agent import MOST, PriorState
from fedbo.algorithms.private.dp_fed_prior import PART, DPFedPrior
from fedbo.algorithms.streams import COORDINATOR, Streams

N, M = 20, 49
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)
CENTRE = np.array([0.3, 0.7])
METHOD = DPFedPrior(points=M)


def known(number: int, count: int = 25, scale: float = 1.0) -> PriorState:
    """An agent that has seen a bowl, whose level and scale say nothing."""
    state = METHOD.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    x = np.random.default_rng(number).random((count, 2))
    return METHOD.tell(state, x, scale * (number - ((x - CENTRE) ** 2).sum(axis=1)))._replace(t=1)


def message(number: int, count: int = 25, scale: float = 1.0) -> Array:
    payload, _ = METHOD.outbox(known(number, count, scale), Streams(1, owner=number).at(1))
    assert payload is not None
    return payload["shape"]


def answer(vectors: list[Array]) -> Payload:
    server = METHOD.server_init(PROBLEM)
    for number, vector in enumerate(vectors):
        server = METHOD.released(server, vector[None], number)
    return METHOD.broadcast(server, range(N), np.ones(N), Streams(1, owner=COORDINATOR))[0][0]


@pytest.mark.parametrize("count", [1, 2, 5, 25])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_no_message_is_longer_than_the_norm_to_which_it_would_be_clipped(count: int, scale: float) -> None:
    found = message(3, count, scale)
    assert np.linalg.norm(found[:-1]) <= 1.0 + 1e-12 and abs(found[-1]) <= PART
    assert np.linalg.norm(found) <= METHOD.mechanism(PROBLEM).clip
    assert abs(found[:-1].sum()) < 1e-9


def test_a_message_says_nothing_of_level_and_scale_and_who_knows_more_says_it_louder() -> None:
    one, other = message(3, 25, 1.0), message(3, 25, 1000.0)
    np.testing.assert_allclose(other, one, atol=1e-3)
    assert np.linalg.norm(message(3, 4)[:-1]) < np.linalg.norm(one[:-1])


def test_an_answer_is_the_mean_of_all_releases_with_the_deviation_of_its_noise() -> None:
    vectors = list(np.random.default_rng(2).standard_normal((4, M + 1)))
    found, mean = answer(vectors), np.mean(vectors, axis=0)
    np.testing.assert_allclose(found["mean"], mean[:-1])
    one = METHOD.noise_multiplier * METHOD.mechanism(PROBLEM).clip / N
    assert found["noise"][0] == pytest.approx(one / 2.0)
    assert found["stretch"][0] == pytest.approx(mean[-1] * N * MOST / PART)


def first_federated(vector: Array) -> Array:
    """The first point `(2,)` of an agent that has seen three others, in the unit cube."""
    state = METHOD.agent_init(PROBLEM, Streams(5))
    x = np.array([[0.9, 0.1], [0.8, 0.9], [0.1, 0.2]])
    state = METHOD.tell(state, x, -40.0 * ((x - CENTRE) ** 2).sum(axis=1))
    state = state._replace(answer=answer([vector]))
    decision, _ = METHOD.ask(state, [], Streams(5).at(1))
    assert decision.origin == "federated"
    return decision.x[0]


def test_what_all_have_in_common_is_found_through_the_noise() -> None:
    """Twenty agents, noise multiplier 1.5, ten draws of the noise: mean distance below .2; that of uniform points is .45."""
    mean = np.mean([message(number) for number in range(N)], axis=0)
    rng, noise = np.random.default_rng(1), METHOD.noise_multiplier * METHOD.mechanism(PROBLEM).clip / N
    found = [first_federated(mean + noise * rng.standard_normal(M + 1)) for _ in range(10)]
    assert np.mean([np.linalg.norm(x - CENTRE) for x in found]) < 0.2


def test_coordinates_are_those_for_which_the_sum_of_all_speaks() -> None:
    state = known(1)
    for stretch, wanted in ((5.0, "stretched"), (-5.0, "arcsine")):
        told: Payload = {"mean": np.zeros(M), "noise": np.ones(1), "stretch": np.array([stretch])}
        assert METHOD._chosen(state._replace(answer=told))[0].coordinates == wanted
    assert from_coordinates(np.array([[0.5]]), "stretched")[0, 0] == pytest.approx(0.5)
