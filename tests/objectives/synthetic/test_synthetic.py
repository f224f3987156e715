"""Functions drawn from a Gaussian process, and analytic ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, minimize

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Array
from fedbo.objectives.functions import Branin, Quadratic
from fedbo.objectives.models.cosines import CosineSum
from fedbo.objectives.synthetic.gp_synthetic import GPFamily, GPSynthetic, GPSyntheticDE, GridFunction, common_function


def drawn(federation: GPSynthetic | GPSyntheticDE, agent: int, seed: int = 0) -> GridFunction:
    return federation.objective(agent, Streams(seed).rng("world"), Streams(seed, owner=agent).rng("own"))


def test_the_target_runs_from_zero_to_one_on_a_thousand_points() -> None:
    values = drawn(GPSynthetic(), 0).values
    assert (len(values), values.min(), values.max()) == (1000, 0.0, 1.0)


@pytest.mark.parametrize("difference", [0.02, 1.2])
def test_every_other_agent_is_d_n_above_or_below_the_target_at_each_point(difference: float) -> None:
    federation = GPSynthetic(difference=difference)
    gap = drawn(federation, 7).values - drawn(federation, 0).values
    assert np.allclose(np.abs(gap), difference, rtol=0.0, atol=1e-12)
    assert 0.4 < np.mean(gap > 0.0) < 0.6  # a fair coin leaves this once in 1e9 draws of 1,000


def test_agents_of_dp_fts_de_all_differ_a_little_from_the_common_function() -> None:
    federation = GPSyntheticDE(difference=0.05)
    common = drawn(GPSynthetic(), 0).values
    gaps = [drawn(federation, agent).values - common for agent in (0, 199)]
    assert all(0.049 < np.abs(gap).max() <= 0.05 for gap in gaps)
    assert not np.array_equal(gaps[0], gaps[1])


def test_the_best_value_is_the_largest_on_the_grid_and_x_goes_to_the_nearest_point() -> None:
    one = drawn(GPSynthetic(), 3)
    grid = np.linspace(0.0, 1.0, 1000)
    assert max(one.score(np.array([x])) for x in grid) == one.best_value
    assert one.score(grid[400:401] + 0.0004) == one.score(grid[400:401]) == one.values[400]


def test_the_noise_has_the_stated_variance() -> None:
    """Chi-squared law with 4,000 degrees of freedom, fixed seed: false alarm below 1e-5."""
    one, rng = drawn(GPSynthetic(noise=0.01), 0), Streams(0).rng("noise")
    x = np.array([0.3])
    assert np.var([one.evaluate(x, rng) - one.score(x) for _ in range(4000)]) == pytest.approx(0.01, rel=0.1)


def test_draws_have_the_covariance_of_the_kernel() -> None:
    """Increments of scaled draws: their mean square grows as 1 - k(h), whatever the scale; 400 draws, fixed seeds."""
    draws = np.array([common_function(200, 0.05, seed) for seed in range(400)])
    scale = draws.std(axis=1, keepdims=True)
    lags = np.array([1, 5, 10, 20])
    square = np.array([np.mean(((draws[:, lag:] - draws[:, :-lag]) / scale) ** 2) for lag in lags])
    expected = 1.0 - np.exp(-0.5 * (lags / 199 / 0.05) ** 2)
    assert square / square[2] == pytest.approx(expected / expected[2], rel=0.06)


def test_a_smooth_draw_is_as_exact_as_a_rough_one() -> None:
    """A long length scale makes the kernel matrix singular: its draws must be smooth to rounding."""
    curve = common_function(1000, 1.0, 5)
    assert np.abs(np.diff(curve, 6)).max() < 1e-11


def test_bowls_have_their_best_at_the_centre_and_stay_within_the_spread() -> None:
    federation = Quadratic(dimensions=3, spread=0.1)
    bowls = [federation.objective(a, Streams(1).rng("world"), Streams(1, owner=a).rng("own")) for a in range(10)]
    assert [one.score(one.centre) for one in bowls] == [0.0] * 10
    centres = np.array([one.centre for one in bowls])
    assert 0.0 < np.ptp(centres, axis=0).max() <= 0.2
    assert federation.metric.native(bowls[0].score(np.zeros(3))) == pytest.approx(np.sum(centres[0] ** 2))


@pytest.mark.parametrize("agent", range(4))
def test_the_branin_minimum_is_inside_the_box_and_nowhere_lower(agent: int) -> None:
    one = Branin(spread=2.0).objective(agent, Streams(2).rng("world"), Streams(2, owner=agent).rng("own"))
    low, high = (np.array([getattr(p, end) for p in one.parameters]) for end in ("low", "high"))
    starts = low + (high - low) * np.random.Generator(np.random.Philox(agent)).random((20, 2))

    def height(x: Array) -> float:
        return -one.score(np.clip(x, low, high))  # difference quotients reach over the edge

    found = [-minimize(height, start, bounds=Bounds(low, high), method="L-BFGS-B").fun for start in starts]
    assert max(found) == pytest.approx(one.best_value, abs=1e-7)
    assert max(found) <= one.best_value + 1e-12


def test_the_plain_branin_has_its_published_minimum() -> None:
    one = Branin(spread=0.0).objective(0, Streams(2).rng("world"), Streams(2).rng("own"))
    for minimiser in ([-np.pi, 12.275], [np.pi, 2.275], [9.42478, 2.475]):
        assert one.score(np.array(minimiser)) == pytest.approx(-0.397887, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"length_scale": 0.0}, "length_scale must be in .0, 1., not 0.0"),
        ({"noise": -1.0}, "noise must be at least 0 and finite, not -1.0"),
        ({"points": 1}, "points must be in .2, 1000000., not 1"),
        ({"agents": 0}, "agents must be at least 1, not 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict[str, float], said: str) -> None:
    for federation in (GPSynthetic, GPSyntheticDE):
        with pytest.raises(ValueError, match=said):
            federation(**settings)  # type: ignore[arg-type]


def member(federation: GPFamily, agent: int, seed: int) -> CosineSum:
    return federation.objective(agent, Streams(seed).rng("world"), Streams(seed, owner=agent).rng("own"))


def test_two_agents_of_a_family_have_the_likeness_as_their_correlation() -> None:
    """400 pairs at three points, fixed seeds: the mean product has a standard error of .06 at most, so below 5 of them."""
    points = np.array([[0.1, 0.2], [0.1, 0.4], [0.9, 0.9]])
    pairs = np.array([[member(GPFamily(likeness=0.6), agent, seed).scores(points) for agent in (1, 2)] for seed in range(400)])
    assert np.mean(pairs[:, 0] * pairs[:, 1], axis=0) == pytest.approx(0.6, abs=0.3)
    assert np.mean(pairs[:, 0, 0] * pairs[:, 0, 1]) == pytest.approx(np.exp(-0.5), abs=0.3)  # one length scale apart
    assert np.mean(pairs**2) == pytest.approx(1.0, abs=0.15)


def test_agents_of_a_family_are_equal_or_unrelated_at_the_ends_of_likeness() -> None:
    points = np.random.default_rng(0).random((50, 2))
    one, other = (member(GPFamily(likeness=1.0), agent, 1).scores(points) for agent in (0, 1))
    np.testing.assert_array_equal(one, other)
    assert abs(np.corrcoef(*(member(GPFamily(likeness=0.0), agent, 1).scores(points) for agent in (0, 1)))[0, 1]) < 0.9


@pytest.mark.parametrize("dimensions", [1, *(pytest.param(d, marks=pytest.mark.long) for d in (2, 3))])
def test_no_point_of_a_fine_grid_is_better_than_the_best_value_of_a_family(dimensions: int) -> None:
    side = np.linspace(0.0, 1.0, {1: 2001, 2: 101, 3: 26}[dimensions])
    grid = np.stack(np.meshgrid(*[side] * dimensions, indexing="ij"), axis=-1).reshape(-1, dimensions)
    for seed in range(3 if dimensions < 3 else 1):
        one = member(GPFamily(dimensions=dimensions), seed, seed)
        assert one.scores(grid).max() <= one.best_value <= one.scores(grid).max() + 0.1
        assert one.score(grid[7]) == pytest.approx(one.scores(grid[7:8])[0])


@pytest.mark.parametrize("federation", [Branin(agents=50), *(Quadratic(agents=50, dimensions=d) for d in (1, 2, 7, 8, 20))])
def test_several_agents_are_evaluated_in_one_call_to_the_bit_as_alone(federation: Branin | Quadratic) -> None:
    objectives = [federation.objective(n, Streams(1).rng("world"), Streams(1, owner=n).rng("own")) for n in range(50)]
    box = np.array([(each.low, each.high) for each in federation.parameters])
    x = box[:, 0] + (box[:, 1] - box[:, 0]) * np.random.default_rng(0).random((50, len(box)))
    kind: Any = type(objectives[0])
    alone = [each.score(point) for each, point in zip(objectives, x, strict=True)]
    assert all(each.is_exact for each in objectives) and kind.scores_each(objectives, x).tolist() == alone
