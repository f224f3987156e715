"""Federated Thompson sampling against the paper: what is sent, what is followed, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedbo.algorithms.base import Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.components.schedules import NAMED, probability
from fedbo.algorithms.fts import FTS, FTSServer
from fedbo.algorithms.messages import encode
from fedbo.algorithms.streams import Streams
from fedbo.algorithms.ts import TS
from fedbo.settings.records import changed
from fedbo.settings.trust import admit, places_in
from fedbo.surrogates.features import phi
from fedbo.testing.algorithm_contract import AGENTS, ROUNDS, asked, started

CHEAP: dict[str, Any] = {"apart": 0.0, "own": TS(surrogate="features", features=20), "features": 20}
PROBLEM = Problem(2, 4, (0, 1, 2, 3), 3, 50)


def _origins(algorithm: Any, rounds: int) -> list[str]:
    """Give the origins of all decisions, round by round."""
    run = started(algorithm).run(rounds)
    return [decision.origin for decisions in run.decisions for decision in decisions.values()]


def test_the_published_schedule_makes_0_875_federated_queries_in_50_iterations() -> None:
    assert sum(1 - probability("1-1/t^2", t) for t in range(1, 51)) == pytest.approx(0.875, abs=1e-3)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_schedule_rises_to_one_and_repeats_its_second_value_first(name: str) -> None:
    p = [probability(name, t) for t in range(1, 2001)]
    assert p[0] == p[1] and p == sorted(p) and 0 <= p[0] and p[-1] > 0.97


def test_a_schedule_may_be_a_constant_or_a_function_of_ones_own() -> None:
    assert probability(0.25, 9) == 0.25
    assert probability(lambda t: 1 / t, 4) == 0.25
    admit(["math:exp2"])
    assert probability("math:exp2", -2) == 0.25


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ("1-1/x", "p must be 1-1/sqrt.*, not '1-1/x'"),
        (1.5, "p must be a schedule of probabilities; p_1 = 1.5 is not in"),
        (lambda t: -t, "p must be a schedule of probabilities; p_1 = -1.0 is not in"),
        ("nowhere:f", "no schedule at 'nowhere:f'"),
        ("math:nothing", "no schedule at 'math:nothing'"),
    ],
)
def test_a_schedule_that_is_none_is_refused(schedule: Any, complaint: str) -> None:
    admit(places_in(schedule))
    with pytest.raises(ValueError, match=complaint):
        FTS(p=schedule)


def test_a_message_is_a_draw_from_the_posterior_of_the_weights() -> None:
    """omega ~ N(nu, sigma^2 Sigma^-1): chi-square of 400 draws, each coordinate's mean; seeds 0..399, false alarm 1e-6."""
    algorithm = FTS(features=6, noise=0.05, centre=False, kernel="se")
    rng = np.random.default_rng(3)
    x, y = rng.random((15, 2)), rng.standard_normal(15)
    state = algorithm.agent_init(Problem(2, 2, (0,), 0, 5, 1, x, y), Streams(1, owner=1))
    rows = phi(state.features, to_coordinates(x, "arcsine"))
    sigma = rows.T @ rows + 0.05 * np.eye(6)
    mean, covariance = np.linalg.solve(sigma, rows.T @ y), 0.05 * np.linalg.inv(sigma)
    draws = np.array([algorithm.outbox(state, Streams(seed, owner=1))[0]["omega"] for seed in range(400)])  # type: ignore[index]
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    assert stats.chi2(6 * 400).cdf((whitened**2).sum()) == pytest.approx(0.5, abs=0.5 - 5e-7)
    assert np.abs(whitened.mean(axis=1)).max() * 20 < stats.norm.isf(1e-6 / 12)


@pytest.mark.parametrize("features", [50, 100, 150, 200])
def test_a_message_is_m_numbers_long_when_serialised(features: int) -> None:
    algorithm = FTS(features=features)
    state = algorithm.agent_init(Problem(2, 2, (0,), 0, 5, 1, np.full((1, 2), 0.5), np.ones(1)), Streams(1))
    payload, _ = algorithm.outbox(state, Streams(1))
    assert payload is not None
    declared = algorithm.upload(PROBLEM)
    assert declared is not None
    assert len(encode(payload, declared)) == 8 * features


def test_with_p_1_it_is_thompson_sampling_to_the_bit() -> None:
    own = TS(surrogate="features", features=20)
    federated = started(FTS(own=own, p=1.0, features=20, every=1)).run(ROUNDS)
    assert asked(federated) == asked(started(own).run(ROUNDS))


def test_with_p_0_every_query_follows_a_message() -> None:
    assert set(_origins(FTS(p=0.0, every=1, **CHEAP), 4)) == {"federated"}


def test_the_controls_take_their_turns_exactly_when_fts_does() -> None:
    turns = {}
    for name, word in (("fts", "federated"), ("fts_noise", "federated"), ("fts_uniform", "uniform")):
        made = entry(name).make(p=0.5, **CHEAP)
        turns[name] = [origin == word for origin in _origins(made, 12)]
    assert turns["fts"] == turns["fts_noise"] == turns["fts_uniform"]
    assert 0 < sum(turns["fts"]) < len(turns["fts"])


def test_a_message_that_came_once_is_used_once_and_p_n_is_renormalised() -> None:
    run = started(FTS(p=0.0, query="draw", every=0, **CHEAP)).run(4)
    origins = [decision.origin for decisions in run.decisions for decision in decisions.values()]
    assert origins == ["federated"] * AGENTS * (AGENTS - 1) + ["own"] * AGENTS * (4 - (AGENTS - 1))
    assert all(not state.weight.any() for state in run.states)


def test_a_federated_query_that_would_tell_little_gives_way_to_an_own_one() -> None:
    """With everything near, no query is federated; the controls give way in the same way."""
    for control, word in (("none", "federated"), ("uniform", "uniform")):
        near = FTS(p=0.0, every=1, control=control, **{**CHEAP, "apart": 1.1})
        assert set(_origins(near, 4)) == {"own"}
        far = FTS(p=0.0, every=1, control=control, **CHEAP)
        assert set(_origins(far, 4)) == {word}


def test_messages_that_keep_coming_may_be_used_again() -> None:
    assert set(_origins(FTS(p=0.0, query="draw", every=1, **CHEAP), 6)) == {"federated"}


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_fresh_message_is_sent_after_every_kth_iteration(every: int) -> None:
    algorithm = FTS(every=every, **CHEAP)
    assert [step for step in range(7) if algorithm.sends(step)] == list(range(0, 7, every))
    assert [step for step in range(7) if FTS(every=0).sends(step)] == [0]


def test_a_message_knows_more_as_t_n_grows() -> None:
    """The same stream draws messages from a posterior that narrows."""
    algorithm = FTS(every=1, noise=0.1, **CHEAP)
    state = algorithm.agent_init(Problem(2, 2, (0,), 0, 5, 0), Streams(1))
    spreads = []
    for _ in range(5):
        state = algorithm.tell(state, np.random.default_rng(len(state.local.y)).random((20, 2)), np.arange(20.0))
        state = changed(state, t=1)
        draws = [algorithm.outbox(state, Streams(seed))[0]["omega"] for seed in range(30)]  # type: ignore[index]
        spreads.append(float(np.std(draws, axis=0).mean()) / float(state.local.y.std()))
    assert spreads == sorted(spreads, reverse=True)


def test_a_straggler_has_p_n_0_and_everyone_else_an_equal_share() -> None:
    algorithm = FTS(features=3)
    server = algorithm.server_init(PROBLEM)
    for sender in (0, 2, 3):
        server = algorithm.receive(server, Inbound(sender, 0, 0.0, {"omega": np.full(3, float(sender))}), 1.0)
    answers, _ = algorithm.broadcast(server, [0, 1], np.ones(4), Streams(1))
    np.testing.assert_allclose(answers[0]["weight"], [0, 0, 0.5, 0.5])
    np.testing.assert_allclose(answers[1]["weight"], [1 / 3, 0, 1 / 3, 1 / 3])


def test_what_has_grown_stale_counts_for_less() -> None:
    algorithm = FTS(features=3)
    server = FTSServer(np.eye(4, 3), np.ones(4), np.arange(4))
    answers, _ = algorithm.broadcast(server, [0], np.array([1.0, 1.0, 0.5, 0.0]), Streams(1))
    np.testing.assert_allclose(answers[0]["weight"], [0, 2 / 3, 1 / 3, 0])


def test_whoever_has_weight_0_is_never_followed() -> None:
    algorithm = FTS(features=3, weights=(0.0, 0.0, 3.0, 1.0))
    server = FTSServer(np.eye(4, 3), np.ones(4), np.arange(4))
    answers, _ = algorithm.broadcast(server, [2, 3], np.ones(4), Streams(1))
    np.testing.assert_allclose(answers[3]["weight"], [0, 0, 1, 0])
    np.testing.assert_allclose(answers[2]["weight"], [0, 0, 0, 1])


def test_an_agent_of_whom_nothing_else_is_known_gets_no_answer() -> None:
    algorithm = FTS(features=3)
    server = algorithm.receive(algorithm.server_init(PROBLEM), Inbound(1, 0, 0.0, {"omega": np.ones(3)}), 1.0)
    assert algorithm.broadcast(server, [1], np.ones(4), Streams(1))[0] == {}


def test_a_relay_of_one_message_draws_its_sender_from_p_n() -> None:
    """Chi-square over 3,000 draws, steps 0..2999, false alarm 1e-6."""
    weights = (0.0, 1.0, 2.0, 5.0)
    algorithm = FTS(features=3, weights=weights, relay="one")
    server = FTSServer(np.arange(12.0).reshape(4, 3), np.ones(4), np.arange(4))
    counts = np.zeros(4)
    for step in range(3000):
        answer = algorithm.broadcast(server, [0], np.ones(4), Streams(1, step=step))[0][0]
        counts[answer["sender"][0]] += 1
        np.testing.assert_array_equal(answer["omega"], server.omega[answer["sender"][0]])
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], 3000 * np.array(weights[1:]) / 8).pvalue > 1e-6


def test_arcsine_coordinates_keep_the_cube_its_faces_and_every_point() -> None:
    x = np.random.default_rng(0).random((100, 3))
    x[0], x[1] = 0.0, 1.0
    u = to_coordinates(x, "arcsine")
    assert ((u >= 0) & (u <= 1)).all()
    np.testing.assert_array_equal(u[:2], x[:2])
    np.testing.assert_allclose(from_coordinates(u, "arcsine"), x, atol=1e-15)
    back = from_coordinates(np.array([[0.0, 1.0]]), "arcsine")
    np.testing.assert_array_equal(back, [[0.0, 1.0]])


def test_the_theoretical_beta_is_that_of_theorem_1() -> None:
    own = TS(surrogate="fixed", length_scale=0.3, noise=0.04, beta="theoretical", norm=2.0, delta=0.05, coordinates="plain")
    rng = np.random.default_rng(2)
    x = rng.random((7, 2))
    state = own.fit(own.tell(own.agent_init(PROBLEM, Streams(1)), x, rng.random(7)), Streams(1))
    gram = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / (2 * 0.3**2))
    gamma = 0.5 * np.log(np.linalg.det(np.eye(7) + gram / 0.04))
    assert own.theoretical_beta(state) == pytest.approx(2.0 + 0.2 * np.sqrt(2 * (gamma + 1 + np.log(4 / 0.05))))


def test_a_point_that_was_evaluated_already_gives_way_to_a_uniform_one() -> None:
    own = TS(surrogate="fixed")
    x = np.array([[0.25, 0.5]])
    state = own.tell(own.agent_init(PROBLEM, Streams(1)), x, np.ones(1))
    u = to_coordinates(x, "arcsine")[0]
    assert own.fresh(u, state, Streams(1), "own").origin == "random"
    assert not np.array_equal(own.fresh(u, state, Streams(1), "own").x, x)
    other = own.fresh(u + 1e-6, state, Streams(1), "own")
    assert other.origin == "own"
    np.testing.assert_allclose(other.x, x, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"query": "mode"}, "no query 'mode'; available: draw, mean"),
        ({"relay": "none"}, "no relay 'none'"),
        ({"kernel": "rbf"}, "no kernel 'rbf'"),
        ({"features": 0}, "features must be at least 1, not 0"),
        ({"noise": 0.0}, "noise must be above 0, not 0.0"),
        ({"every": -1}, "every must be at least 0, not -1; 0 means once, before the start"),
        ({"weights": (0.0, 0.0)}, "weights must be at least 0 with a positive sum"),
        ({"weights": (1.0, -1.0)}, "weights must be at least 0 with a positive sum"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_the_remedy(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        FTS(**settings)


def test_weights_for_another_number_of_agents_are_refused() -> None:
    with pytest.raises(ValueError, match="weights must be one number for each of the 4 agents, not 2"):
        FTS(weights=(1.0, 1.0)).upload(PROBLEM)


def test_a_schedule_that_fails_later_is_refused_before_the_start() -> None:
    with pytest.raises(ValueError, match=r"p must be a schedule of probabilities; p_5 = 1\.25 is not in \[0, 1\]"):
        FTS(p=lambda t: t / 4).upload(PROBLEM)


def test_who_knows_nothing_has_nothing_to_say() -> None:
    for control in ("none", "noise"):
        algorithm = FTS(control=control)
        assert algorithm.outbox(algorithm.agent_init(PROBLEM, Streams(1)), Streams(1))[0] is None


def test_the_surrogate_is_fitted_on_schedule_also_when_a_query_is_federated() -> None:
    run = started(FTS(p=0.0, every=1, features=20)).run(1)
    assert [state.local.fitted for state in run.states] == [3] * AGENTS
