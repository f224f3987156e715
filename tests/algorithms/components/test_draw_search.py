"""The search for the best point of several draws against dense grids, and scalarisation against hypervolume."""

from __future__ import annotations

from math import gamma, pi

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo.algorithms.components.draw_search import Judge, SearchBox, Values, best_of_draws, make_judge
from fedbo.algorithms.components.several import Several, scoped
from fedbo.algorithms.components.several_models import resolved_margins
from fedbo.algorithms.learned_prior.several_prior import in_scores, joined, likely_power, split
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.draws import Draw, value
from fedbo.surrogates.features import draw_features
from fedbo.surrogates.fronts import hypervolume, non_dominated
from fedbo.surrogates.gp import POWERS, warp, warp_like

SIDE = np.linspace(0.0, 1.0, 201)
GRID = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1).reshape(-1, 2)
CUBE = SearchBox(np.zeros(2), np.ones(2))


def _draws(seed: int, count: int) -> list[Values]:
    rng = np.random.default_rng(seed)
    made = [Draw(draw_features(rng, 2, 40, 0.3, "matern52"), rng.standard_normal(40)) for _ in range(count)]
    return [lambda x, draw=draw: value(draw, x) for draw in made]  # type: ignore[misc]


def _values(draws: list[Values], x: np.ndarray) -> np.ndarray:
    return np.column_stack([draw(x) for draw in draws])


def _several(m: int, c: int, weights: tuple[float, ...] = ()) -> Several:
    none, nothing = np.empty((0, 2)), np.empty((0, m + c))
    return Several(
        (),
        x=none,
        values=nothing,
        objectives=m,
        references=(),
        weights=weights,
        failed=none,
        history_x=none,
        history_values=nothing,
    )


@pytest.mark.parametrize("seed", range(3))
def test_under_a_bound_the_best_feasible_point_of_the_draws_is_found(seed: int) -> None:
    """Never 0.05 below the best of 40,401 points, where values have a standard deviation near 1; the point is feasible."""
    draws = _draws(seed, 2)
    on_grid = _values(draws, GRID)
    threshold = np.array([np.quantile(on_grid[:, 1], 0.8)])
    judge = Judge("hypervolume", threshold, np.ones(1), np.empty(0), np.zeros(1))
    x = best_of_draws(draws, judge, CUBE, np.empty((0, 2)), Streams(seed))
    found = _values(draws, x[None])[0]
    assert found[1] >= threshold[0]
    assert found[0] >= on_grid[on_grid[:, 1] >= threshold[0], 0].max() - 0.05


@pytest.mark.parametrize("seed", range(2))
def test_where_no_point_is_feasible_the_least_violation_is_found(seed: int) -> None:
    draws = _draws(seed, 3)
    on_grid = _values(draws, GRID)
    thresholds = on_grid[:, 1:].max(axis=0) + 0.5
    judge = Judge("hypervolume", thresholds, np.ones(1), np.empty(0), np.zeros(1))
    x = best_of_draws(draws, judge, CUBE, np.empty((0, 2)), Streams(seed))
    assert judge.violations(_values(draws, x[None]))[0] <= judge.violations(on_grid).min() + 0.05


@pytest.mark.parametrize("scalarise", ["hypervolume", "chebyshev"])
def test_weighted_objectives_are_maximised(scalarise: str) -> None:
    for seed in range(2):
        draws = _draws(10 + seed, 2)
        on_grid = _values(draws, GRID)
        judge = Judge(scalarise, np.empty(0), np.array([0.6, 0.8]), on_grid.min(axis=0), on_grid.max(axis=0))
        x = best_of_draws(draws, judge, CUBE, np.empty((0, 2)), Streams(seed))
        assert judge.scores(_values(draws, x[None]))[0] >= judge.scores(on_grid).max() - 0.05


@pytest.mark.parametrize("seed", range(2))
def test_on_a_front_the_point_is_near_the_front_of_the_draws_and_far_from_known_ones(seed: int) -> None:
    draws, known = _draws(20 + seed, 2), np.random.default_rng(seed).random((5, 2))
    judge = Judge("pareto", np.empty(0), np.ones(2), np.empty(0), np.zeros(2))
    x = best_of_draws(draws, judge, CUBE, known, Streams(seed))
    on_grid, found = _values(draws, GRID), _values(draws, x[None])
    assert not ((on_grid - 0.1 >= found).all(axis=1)).any()
    front = GRID[non_dominated(on_grid)]
    distances = np.linalg.norm(front[:, None] - known, axis=2).min(axis=1)
    assert np.linalg.norm(known - x, axis=1).min() >= 0.5 * distances.max()


@pytest.mark.parametrize("m", [2, 3])
def test_over_the_weights_the_scores_have_the_hypervolume_as_their_mean(m: int) -> None:
    """Golovin and Zhang 2020, Lemma 5; 4,000 draws of weights, seed 3; 5 standard errors: false alarms in 1 of 10^6."""
    values = np.random.default_rng(m).random((12, m))
    best = []
    for step in range(4000):
        judge = make_judge("hypervolume", _several(m, 0), (values, np.zeros(m), np.empty(0)), Streams(3, 0, 0, step))
        best.append(max(judge.scores(values).max(), 0.0) ** m)
    factor = pi ** (m / 2) / (2**m * gamma(m / 2 + 1))
    error = factor * np.std(best) / np.sqrt(len(best))
    assert abs(factor * np.mean(best) - hypervolume(values, np.zeros(m))) < 5 * error


def test_weights_are_drawn_for_each_decision_from_the_own_stream_and_those_of_the_agent_turn_them() -> None:
    units = (np.zeros((1, 2)), np.zeros(2), np.empty(0))

    def drawn(weights: tuple[float, ...], agent: int, step: int) -> np.ndarray:
        return make_judge("chebyshev", _several(2, 0, weights), units, Streams(0, 0, agent, step)).weights

    one = drawn((1.0, 1.0), 0, 1)
    np.testing.assert_array_equal(one, drawn((), 0, 1))
    assert not np.allclose(one, drawn((1.0, 1.0), 0, 2)) and not np.allclose(one, drawn((1.0, 1.0), 1, 1))
    turned = drawn((1.0, 3.0), 0, 1)
    assert turned[1] / turned[0] == pytest.approx(3.0 * one[1] / one[0])
    assert np.linalg.norm(turned) == pytest.approx(1.0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(0, 2))
@settings(max_examples=30)
def test_merits_order_points_as_the_order_does(seed: int, m: int, c: int) -> None:
    rng = np.random.default_rng(seed)
    metrics = rng.standard_normal((20, m + c))
    judge = Judge("chebyshev", rng.standard_normal(c), rng.random(m) + 0.1, np.zeros(m), np.ones(m))
    merits = judge.merits(metrics)[judge.order(metrics)]
    assert (np.diff(merits) <= 1e-9).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
@settings(max_examples=30)
def test_transforms_increase_everywhere_and_keep_what_they_must(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    y, at = np.round(rng.standard_normal(n), 1) * 1e3, np.sort(rng.uniform(-5e3, 5e3, 40))
    power = likely_power(y)
    for transform in (lambda v: in_scores(v, y, power), lambda v: resolved_margins(v, y)):
        assert (np.diff(transform(at)) >= 0).all()
    np.testing.assert_array_equal(np.sign(resolved_margins(at, y)), np.sign(at))
    for power in POWERS:
        np.testing.assert_allclose(warp_like(y, y, power), warp(y, power), atol=1e-12)
        assert (np.diff(warp_like(at, y, power)) > 0).all()


def test_the_likely_power_makes_values_normal() -> None:
    """Distances below the best that are log-normal need a logarithm or more, and normal values no more than a root; seed 5."""
    normal = np.random.default_rng(5).standard_normal(400)
    assert likely_power(-np.exp(2.0 * normal)) <= 0.0
    assert likely_power(normal) >= 0.5


def test_messages_about_metrics_are_joined_and_split_again() -> None:
    rng = np.random.default_rng(0)
    parts = [{"mean": rng.random(4), "directions": rng.random((rows, 4)), "residual": rng.random(1)} for rows in (2, 3)]
    for part, again in zip(parts, split(joined(parts), 2), strict=True):
        rows = len(part["directions"])
        np.testing.assert_array_equal(again["directions"][:rows], part["directions"])
        assert not again["directions"][rows:].any() and len(again["directions"]) == 3
        np.testing.assert_array_equal(again["mean"], part["mean"])
        np.testing.assert_array_equal(again["residual"], part["residual"])


def test_the_first_metric_has_the_streams_of_a_method_with_one() -> None:
    streams = Streams(1, 2, 3, 4)
    assert scoped(streams, 0) is streams
    drawn = {scoped(streams, metric).rng("own draw").random() for metric in range(3)}
    assert len(drawn) == 3
