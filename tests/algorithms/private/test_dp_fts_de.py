"""DP-FTS-DE against the paper: where agents begin, how messages are weighted, and what a release makes them do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo.algorithms.base import Inbound, Private, Problem, Starting
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.schedules import FROM_ZERO, NAMED, TEMPERATURES, probability, temperature
from fedbo.algorithms.private.dp_fts_de import ALGORITHMS, DPFTSDE, region_of, split_cube
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.algorithms.ts import TS
from fedbo.surrogates.draws import message_function
from fedbo.surrogates.features import Features, draw_features, phi
from fedbo.surrogates.maximise import maximise, maximise_pieces
from fedbo.testing.algorithm_contract import AGENTS, ROUNDS, asked, started

CHEAP: dict[str, Any] = {"apart": 0.0, "own": TS(surrogate="features", features=20), "features": 20}
PROBLEM = Problem(2, 29, tuple(range(29)), 10, 60)


def _value(features: Features, omega: np.ndarray, low: np.ndarray, high: np.ndarray, x: np.ndarray) -> np.ndarray:
    """phi(x)'omega_i in every box that holds x; on a face the larger of the two."""
    rows = phi(features, x)
    inside = ((x[:, None] >= low - 1e-12) & (x[:, None] <= high + 1e-12)).all(axis=2)
    return np.where(inside, rows @ omega.T, -np.inf).max(axis=1)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_regions_have_equal_volume_are_disjoint_and_cover_the_cube(count: int, dim: int, seed: int) -> None:
    low, high = split_cube(count, dim)
    assert low.shape == high.shape == (count, dim) and (low >= 0).all() and (high <= 1).all()
    np.testing.assert_allclose((high - low).prod(axis=1), 1 / count, rtol=1e-9)
    x = np.random.default_rng(seed).random((200, dim))
    assert (((x[:, None] >= low) & (x[:, None] < high)).all(axis=2).sum(axis=1) == 1).all()
    common = (np.minimum(high[:, None], high) - np.maximum(low[:, None], low)).clip(0).prod(axis=2)
    np.testing.assert_allclose(common, np.diag((high - low).prod(axis=1)), atol=1e-12)


def test_four_regions_of_the_square_are_its_quadrants() -> None:
    low, high = split_cube(4, 2)
    np.testing.assert_array_equal(low, [[0, 0], [0, 0.5], [0.5, 0], [0.5, 0.5]])
    np.testing.assert_array_equal(high - low, np.full((4, 2), 0.5))


def test_regions_are_nearly_cubes() -> None:
    for count in (4, 8, 16, 64):
        low, high = split_cube(count, 2)
        assert ((high - low).max(axis=1) / (high - low).min(axis=1)).max() <= 2


@given(st.integers(1, 60), st.integers(1, 40))
def test_agents_are_assigned_evenly(n_agents: int, count: int) -> None:
    sizes = np.bincount([region_of(agent, count) for agent in range(n_agents)], minlength=count)
    assert len(sizes) == count and sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(
    ("t", "expected"), [(1, 1.0), (11, 1.0), (12, 29 / 28), (20, 29 / 20), (39, 29.0), (40, math.inf), (500, math.inf)]
)
def test_the_published_temperature_rises_from_1_to_infinity(t: int, expected: float) -> None:
    assert temperature("paper", t) == expected


def test_temperatures_never_fall() -> None:
    for name in TEMPERATURES:
        values = [temperature(name, t) for t in range(1, 100)]
        assert values == sorted(values) and values[0] > 0


def test_the_published_weights_fall_linearly_in_the_exponent_from_16_to_1_within_30_releases() -> None:
    """The authors' create_partitions.py: T_const = 10 times a = 16, then a_s = linspace(16, 1, T_max_decay = 30), then 1.

    Their number 0 is the release after the initial points, as ours is. exp(a_t) for the agents of the region, exp(1) for the
    others (29 agents, 4 quadrants).
    """
    a_t = np.concatenate([np.full(10, 16.0), np.linspace(16.0, 1.0, 30), np.full(20, 1.0)])
    for release, a in enumerate(a_t):
        weights = DPFTSDE().weights(PROBLEM, release)
        for i in range(4):
            raw = np.exp(np.where(np.arange(29) % 4 == i, a, 1.0))
            np.testing.assert_allclose(weights[i], raw / raw.sum(), rtol=1e-10)


@pytest.mark.parametrize("contrast", [0.0, 3.0, 15.0])
@pytest.mark.parametrize("degree", [0.7, 1.0, 4.0, math.inf])
def test_weights_are_the_softmax_of_the_paper(contrast: float, degree: float) -> None:
    algorithm = DPFTSDE(regions=3, contrast=contrast, temperature=degree)
    own = np.arange(29) % 3 == np.arange(3)[:, None]
    raw = np.exp((contrast * own + 1) / degree)
    np.testing.assert_allclose(algorithm.weights(PROBLEM, 7), raw / raw.sum(axis=1, keepdims=True), rtol=1e-12)


def test_one_region_weights_all_alike_and_a_low_temperature_leaves_the_others_out() -> None:
    for release in (0, 20, 100):
        np.testing.assert_allclose(DPFTSDE(regions=1).weights(PROBLEM, release), np.full((1, 29), 1 / 29))
    cold = DPFTSDE(regions=4, temperature=1e-3).weights(PROBLEM, 0)
    np.testing.assert_allclose(cold, (np.arange(29) % 4 == np.arange(4)[:, None]) / np.array([[8], [7], [7], [7]]))


def test_a_region_without_agents_weights_all_alike() -> None:
    weights = DPFTSDE(regions=4).weights(Problem(2, 2, (0, 1), 3, 5), 0)
    np.testing.assert_allclose(weights[2:], 0.5)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)


@pytest.mark.parametrize("coordinates", ["plain", "arcsine"])
@pytest.mark.parametrize(
    ("dim", "count", "side"),
    [
        (1, 5, 4001),
        *(pytest.param(*one, marks=pytest.mark.long) for one in ((1, 1, 4001), (2, 4, 201), (2, 7, 201), (3, 4, 41))),
    ],
)
def test_the_maximiser_finds_the_top_of_the_piecewise_function(dim: int, count: int, side: int, coordinates: str) -> None:
    """It is never below the best of a dense grid, and its value is that of the function at its point; seeds 0..3."""
    axes = np.meshgrid(*[np.linspace(0, 1, side)] * dim, indexing="ij")
    grid = np.stack([axis.ravel() for axis in axes], axis=1)
    low, high = (to_coordinates(corner, coordinates) for corner in split_cube(count, dim))
    for seed in range(4 if dim < 3 else 3):
        rng = np.random.default_rng(seed)
        features = draw_features(rng, dim, 30, 0.2, "matern52")
        omega = rng.standard_normal((count, 30))
        point, top = maximise_pieces(features, omega, low, high, None)
        assert top >= _value(features, omega, low, high, grid).max() - 1e-9
        assert _value(features, omega, low, high, point[None])[0] == pytest.approx(top, abs=1e-9)
        assert ((point >= 0) & (point <= 1)).all()


def test_one_piece_is_maximised_as_the_whole_cube_is() -> None:
    rng = np.random.default_rng(1)
    features, omega = draw_features(rng, 2, 50, 0.1), rng.standard_normal((1, 50))
    whole, top = maximise(message_function(features, omega[0]), None, 2)
    point, same = maximise_pieces(features, omega, *split_cube(1, 2), None)
    assert top == same
    np.testing.assert_array_equal(point, whole)


def _told(algorithm: DPFTSDE, omega: np.ndarray, dim: int = 2, agent: int = 0, t: int = 1) -> tuple[Any, Any]:
    """Ask an agent that has three points and was told `omega`; give the decision and its state."""
    problem = Problem(dim, 4, (0, 1, 2, 3), 3, 9, agent)
    streams = Streams(1, owner=agent, step=t)
    x = np.random.default_rng(agent).random((3, dim))
    state = algorithm.tell(algorithm.agent_init(problem, streams), x, x.sum(axis=1))
    return algorithm.ask(state, [Inbound(COORDINATOR, 0, 0.0, {"omega": omega})], streams)


def test_agents_that_were_told_the_same_go_to_the_same_place_whatever_becomes_of_the_first_answer() -> None:
    algorithm, omega = DPFTSDE(p=0.0, apart=0.0), np.random.default_rng(0).standard_normal((4, 100))
    first, state = _told(algorithm, omega)
    place = first.x.copy()
    first.x[:] = 0.0
    second, _ = _told(algorithm, omega, agent=3)
    assert first.origin == second.origin == "federated"
    np.testing.assert_array_equal(second.x, place)
    low, high = (to_coordinates(corner, "arcsine") for corner in split_cube(4, 2))
    best, _ = maximise_pieces(state.features, omega, low, high, None)
    np.testing.assert_allclose(to_coordinates(place, "arcsine")[0], best, atol=1e-12)


def test_more_than_three_inputs_are_maximised_too() -> None:
    algorithm = DPFTSDE(p=0.0, regions=3, **CHEAP)
    decision, _ = _told(algorithm, np.random.default_rng(0).standard_normal((3, 20)), dim=5)
    assert decision.origin == "federated" and ((decision.x >= 0) & (decision.x <= 1)).all()


@pytest.mark.parametrize("message", [{}, {"omega": np.zeros((4, 20))}])
def test_without_anything_to_follow_an_agent_goes_its_own_way(message: dict[str, np.ndarray]) -> None:
    algorithm = DPFTSDE(p=0.0, **CHEAP)
    run = started(algorithm)
    assert isinstance(algorithm, Private)
    everybody, streams = range(AGENTS), run.streams.of(COORDINATOR)
    closed, _ = algorithm.broadcast(algorithm.closed(run.server), everybody, np.ones(AGENTS), streams)
    np.testing.assert_array_equal(closed[0]["omega"], np.zeros((4, 20)))
    inbox = [Inbound(COORDINATOR, 1, 1.0, message)] if message else []
    decision, _ = algorithm.ask(run.states[0], inbox, run.streams.of(0).at(1))
    assert decision.origin == "own"


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5))
@settings(max_examples=40)
def test_initial_points_are_the_uniform_ones_moved_into_the_own_region(agent: int, count: int, dim: int) -> None:
    algorithm = DPFTSDE(regions=count)
    assert isinstance(algorithm, Starting)
    problem = Problem(dim, 41, (0,), 6, 5, agent)
    uniform = np.random.default_rng(agent).random((6, dim))
    low, high = (corner[agent % count] for corner in split_cube(count, dim))
    x = algorithm.initial_points(problem, uniform)
    assert ((x >= low) & (x <= high)).all()
    np.testing.assert_allclose((x - low) / (high - low), uniform, atol=1e-9)


def test_with_one_region_initial_points_stay_as_they_are() -> None:
    uniform = np.random.default_rng(0).random((6, 2))
    np.testing.assert_array_equal(DPFTSDE(regions=1).initial_points(PROBLEM, uniform), uniform)


def test_schedules_from_0_are_the_others_but_for_the_first_iteration() -> None:
    assert set(FROM_ZERO) == {"1-1/t from 0", "1-1/sqrt(t) from 0"}
    for name in FROM_ZERO:
        plain = name.removesuffix(" from 0")
        assert plain in NAMED and probability(name, 1) == 0
        assert all(probability(name, t) == probability(plain, t) for t in range(2, 100))


def test_the_published_schedule_makes_4_68_federated_queries_in_60_iterations() -> None:
    assert sum(1 - probability("1-1/t from 0", t) for t in range(1, 61)) == pytest.approx(4.68, abs=5e-3)


def _origins(name: str, steps: int, **given_settings: Any) -> list[str]:
    run = started(entry(name).make(**{**CHEAP, **given_settings})).run(steps)
    return [decision.origin for decisions in run.decisions for decision in decisions.values()]


def test_with_p_1_0_the_first_query_of_everybody_is_federated() -> None:
    assert _origins("dp_fts_de", 1) == ["federated"] * AGENTS


def test_the_controls_take_their_turns_exactly_when_dp_fts_de_does() -> None:
    words = {"dp_fts_de": "federated", "dp_fts_de_noise": "federated", "dp_fts_de_uniform": "uniform"}
    turns = [[origin == word for origin in _origins(name, 12, p=0.5)] for name, word in words.items()]
    assert turns[0] == turns[1] == turns[2]
    assert 0 < sum(turns[0]) < len(turns[0])


def test_with_p_1_and_one_region_it_is_thompson_sampling_to_the_bit() -> None:
    own = TS(surrogate="features", features=20)
    federated = started(DPFTSDE(own=own, p=1.0, regions=1, features=20)).run(ROUNDS)
    assert asked(federated) == asked(started(own).run(ROUNDS))


def _message(y: np.ndarray, seed: int = 1, **given_settings: Any) -> np.ndarray:
    algorithm = DPFTSDE(**{"features": 12, "noise": 0.05, **given_settings})
    x = np.random.default_rng(3).random((len(y), 2))
    state = algorithm.agent_init(Problem(2, 2, (0,), 0, 5, 1, x, y), Streams(1, owner=1))
    payload, _ = algorithm.outbox(state, Streams(seed, owner=1))
    assert payload is not None
    return payload["omega"]


@pytest.mark.parametrize("n", [4, 12, 30])
def test_a_message_may_be_the_posterior_mean_of_the_weights(n: int) -> None:
    y = np.random.default_rng(n).standard_normal(n)
    state = DPFTSDE(features=12).agent_init(Problem(2, 2, (0,), 0, 5, 1), Streams(1, owner=1))
    rows = phi(state.features, to_coordinates(np.random.default_rng(3).random((n, 2)), "arcsine"))
    mean = np.linalg.solve(rows.T @ rows + 0.05 * np.eye(12), rows.T @ y)
    np.testing.assert_allclose(_message(y, message="mean", centre=False), mean, atol=1e-10)


def test_a_drawn_message_is_spread_about_the_mean() -> None:
    """Squared distance of 200 draws, against the trace of the posterior covariance; seeds 0..199, 6 standard errors."""
    y = np.random.default_rng(0).standard_normal(8)
    state = DPFTSDE(features=12).agent_init(Problem(2, 2, (0,), 0, 5, 1), Streams(1, owner=1))
    rows = phi(state.features, to_coordinates(np.random.default_rng(3).random((8, 2)), "arcsine"))
    covariance = 0.05 * np.linalg.inv(rows.T @ rows + 0.05 * np.eye(12))
    mean = _message(y, message="mean")
    squares = [((_message(y, seed, message="draw") - mean) ** 2).sum() for seed in range(200)]
    error = math.sqrt(2 * np.trace(covariance @ covariance) / 200)
    assert np.mean(squares) == pytest.approx(np.trace(covariance), abs=6 * error)


@pytest.mark.parametrize("message", ["draw", "mean"])
def test_a_centred_message_depends_neither_on_the_scale_of_values_nor_on_their_level(message: str) -> None:
    y = np.random.default_rng(0).standard_normal(8)
    np.testing.assert_allclose(_message(3 * y + 5, message=message), _message(y, message=message), atol=1e-9)
    assert np.abs(_message(y + 5, message=message, centre=False) - _message(y, message=message, centre=False)).max() > 1e-3


def test_a_control_message_is_as_long_as_the_true_one_and_its_direction_says_nothing() -> None:
    y, other = np.random.default_rng(0).standard_normal((2, 8))
    true, control = _message(y), _message(y, control="noise")
    assert np.linalg.norm(control) == pytest.approx(np.linalg.norm(true))
    same = _message(other, control="noise")
    np.testing.assert_allclose(control / np.linalg.norm(control), same / np.linalg.norm(same), atol=1e-12)


def test_agents_follow_the_last_release_or_with_memory_the_weighted_mean_of_all() -> None:
    releases = np.random.default_rng(0).standard_normal((6, 4, 20))
    for memory in (0.0, 0.3, 0.9):
        algorithm = DPFTSDE(memory=memory, **CHEAP)
        server = algorithm.server_init(PROBLEM)
        for number, vectors in enumerate(releases):
            server = algorithm.released(server, vectors, number)
        weights = memory ** np.arange(5, -1, -1.0)
        expected = np.einsum("t,tpm->pm", weights / weights.sum(), releases)
        answers, _ = algorithm.broadcast(server, [0, 5], np.ones(29), Streams(1))
        assert answers.keys() == {0, 5}
        np.testing.assert_allclose(answers[5]["omega"], expected, atol=1e-12)
        if memory == 0.0:
            np.testing.assert_array_equal(answers[0]["omega"], releases[-1])


def test_an_answer_cannot_be_written_to_and_stays_as_it_was_told() -> None:
    algorithm = DPFTSDE(**CHEAP)
    server = algorithm.released(algorithm.server_init(PROBLEM), np.ones((4, 20)), 0)
    answers, _ = algorithm.broadcast(server, [0], np.ones(29), Streams(1))
    with pytest.raises(ValueError, match="read-only"):
        answers[0]["omega"][0] = 2.0
    algorithm.released(server, np.zeros((4, 20)), 1)
    np.testing.assert_array_equal(answers[0]["omega"], np.ones((4, 20)))


def test_the_mechanism_is_that_of_the_settings() -> None:
    chosen: dict[str, Any] = {"clip": 7.0, "share": 0.5, "sampling": "fixed", "per_block": True}
    adaptive: dict[str, Any] = {"quantile": 0.5, "rate": 0.1, "count_noise": 2.0}
    mechanism = DPFTSDE(regions=3, noise_multiplier=1.5, **chosen, **adaptive).mechanism(PROBLEM)
    assert (mechanism.blocks, mechanism.noise) == (3, 1.5)
    assert {name: getattr(mechanism, name) for name in chosen | adaptive} == chosen | adaptive


def test_names_are_the_method_and_its_parts() -> None:
    for name, preset in [(name, preset) for name, found in ALGORITHMS.items() for preset in (None, *found.presets)]:
        made = entry(name).make(preset)
        assert isinstance(made, DPFTSDE) and isinstance(made, Private)
        mechanism = made.mechanism(PROBLEM)
        free = name == "fts_de"
        assert (mechanism.noise == 0) == (mechanism.clip == math.inf) == (mechanism.share == 1) == free
        assert mechanism.blocks == (1 if name == "dp_fts" else 4)
        assert made.control == {"dp_fts_de_noise": "noise", "dp_fts_de_uniform": "uniform"}.get(name, "none")
    with pytest.raises(ValueError, match="no setting 'clip'"):
        entry("fts_de").make(clip=3.0)


def test_the_faithful_preset_is_the_published_landmine_experiment() -> None:
    made = entry("dp_fts_de").make("faithful")
    assert isinstance(made, DPFTSDE)
    assert (made.regions, made.features, made.clip, made.share, made.noise_multiplier) == (4, 100, 22.0, 0.35, 1.0)
    assert (made.kernel, made.message, made.memory, made.centre, made.temperature) == ("se", "draw", 0.0, False, "paper")
    assert made.own == entry("ts").make("faithful") and made.contrast == 15 and made.p == "1-1/t from 0"


@pytest.mark.parametrize(
    ("given_settings", "complaint"),
    [
        ({"regions": 0}, "regions must be at least 1, not 0"),
        ({"contrast": -1.0}, "contrast must be at least 0 and finite, not -1.0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be at least 0 and finite"),
        ({"count_noise": math.nan}, "count_noise must be at least 0 and finite, not nan"),
        ({"memory": 1.0}, r"memory must be in \[0, 1\), not 1.0"),
        ({"share": 0.0}, r"share must be in \(0, 1\], not 0.0"),
        ({"share": 1.1}, r"share must be in \(0, 1\]"),
        ({"clip": 0.0}, "clip must be above 0, not 0.0"),
        ({"clip": math.inf}, "clip must be finite if there is noise or a quantile"),
        ({"clip": math.inf, "noise_multiplier": 0.0, "quantile": 0.5}, "clip must be finite if"),
        ({"sampling": "both"}, "no sampling 'both'; available: fixed, poisson"),
        ({"message": "mode"}, "no message 'mode'; available: draw, mean"),
        ({"control": "zeros"}, "no control 'zeros'"),
        ({"quantile": 1.0}, r"quantile must be in \(0, 1\), not 1.0"),
        ({"rate": 0.0}, "rate must be above 0 and finite"),
        ({"quantile": 0.5, "noise_multiplier": 2.0}, "count_noise must be above noise_multiplier / 2"),
        ({"quantile": 0.5, "noise_multiplier": 1.0, "count_noise": 0.5}, "count_noise must be above noise_multiplier / 2"),
        ({"temperature": "hot"}, "temperature must be paper, a number, or a function as module:name, not 'hot'"),
        ({"temperature": 0.0}, "temperature must be a schedule of numbers above 0; the number of release 1 is 0.0"),
        ({"p": "1-1/t from 1"}, "p must be 1-1/sqrt.*, not '1-1/t from 1'"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_the_remedy(given_settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        DPFTSDE(**given_settings)


def test_what_does_not_suit_the_problem_is_refused_before_the_start() -> None:
    few = Problem(2, 4, (0, 1, 2, 3), 3, 50)
    with pytest.raises(ValueError, match=r"share must select at least one of the 4 agents, not 0\.1"):
        DPFTSDE(sampling="fixed", share=0.1).upload(few)
    DPFTSDE(sampling="poisson", share=0.1).upload(few)
    with pytest.raises(ValueError, match="temperature must be a schedule of numbers above 0; the number of release 51 is 0.0"):
        DPFTSDE(temperature=lambda t: 51.0 - t).upload(few)
    with pytest.raises(ValueError, match=r"p must be a schedule of probabilities; p_5 = 1\.25"):
        DPFTSDE(p=lambda t: t / 4).upload(few)


def test_without_own_regions_initial_points_are_those_of_everybody_else() -> None:
    uniform = np.random.default_rng(0).random((5, 2))
    problem = Problem(2, 8, tuple(range(8)), 5, 3, agent=3)
    assert (entry("dp_fts_de").make(own_regions=False).initial_points(problem, uniform) == uniform).all()
    assert not (entry("dp_fts_de").make().initial_points(problem, uniform) == uniform).any()
