"""Acquisition functions of several objectives and constraints against Monte Carlo, integration and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedbo.surrogates.acquisition import Prediction, log_expected_improvement
from fedbo.surrogates.fronts import hypervolume, hypervolumes, non_dominated
from fedbo.surrogates.gp import Hyperparameters, condition
from fedbo.surrogates.several import (
    SeveralCriterion,
    Strips,
    log_feasibility,
    log_hypervolume_improvement,
    strips,
)

NONE = np.zeros((1, 0))


def _at(mean: float, variance: float) -> Prediction:
    return Prediction(np.array([mean]), np.array([variance]), np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))


def _front(seed: int, n: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((n, 2))
    return values[non_dominated(values)]


@pytest.mark.parametrize(
    ("seed", "n"), [(2, 6), *(pytest.param(*one, marks=pytest.mark.long) for one in ((0, 0), (1, 1), (3, 30)))]
)
def test_the_expected_hypervolume_improvement_is_the_mean_over_draws(seed: int, n: int) -> None:
    """20,000 draws at 3 points for each front; within 5 standard errors: a false alarm in less than 1 of 10^5."""
    rng, reference = np.random.default_rng(100 + seed), np.array([-1.5, -1.0])
    front = _front(seed, n)
    over = strips(front, reference)
    before = hypervolume(front, reference)
    for _ in range(3):
        mean, sd = rng.uniform(0.0, 1.5, 2), np.exp(rng.uniform(-1.5, 0.0, 2))
        first, second = (_at(float(m), float(s) ** 2) for m, s in zip(mean, sd, strict=True))
        value, _ = log_hypervolume_improvement(first, second, over)
        drawn = mean + sd * rng.standard_normal((20_000, 2))
        gains = np.array([hypervolumes(np.vstack([front, one]), reference)[-1] for one in drawn[:200]]) - before
        # The same by strips, which is cheap enough for all draws.
        ends = np.append(over.edges[1:], np.inf)
        covered = np.clip(np.minimum(drawn[:, :1], ends) - over.edges, 0.0, None)
        volumes = (covered * np.clip(drawn[:, 1:] - over.floors, 0.0, None)).sum(axis=1)
        np.testing.assert_allclose(volumes[:200], gains, atol=1e-9)
        assert volumes.any()
        assert abs(volumes.mean() - np.exp(value[0])) < 5 * volumes.std() / np.sqrt(len(volumes))


@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.floats(0.0, 40.0))
@settings(max_examples=60)
def test_its_gradient_agrees_with_differences_near_the_front_and_far_below_it(seed: int, n: int, down: float) -> None:
    rng = np.random.default_rng(seed)
    over = strips(_front(seed, n), np.array([-1.0, -2.0]))
    place = np.array([*(rng.standard_normal(2) - down), *np.exp(rng.normal(-0.5, 0.5, 2))])

    def value(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        steps = np.eye(4)
        first = Prediction(point[:1], point[2:3], steps[[0]], steps[[2]])
        second = Prediction(point[1:2], point[3:], steps[[1]], steps[[3]])
        return log_hypervolume_improvement(first, second, over)

    at, gradient = value(place)
    assert np.isfinite(at).all() and np.isfinite(gradient).all()
    step = 1e-6
    slopes = [(value(place + step * e)[0][0] - value(place - step * e)[0][0]) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(gradient[0], slopes, rtol=2e-4, atol=1e-5)


def test_far_below_the_front_the_logarithm_goes_on() -> None:
    over = strips(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([-1.0, -1.0]))
    values = [log_hypervolume_improvement(_at(-z, 1.0), _at(-z, 1.0), over)[0][0] for z in (10.0, 1e2, 1e3, 1e4)]
    assert np.isfinite(values).all() and (np.diff(values) < 0).all()
    assert values[-1] == pytest.approx(-1e8, rel=1e-3)  # both tails fall as -z^2 / 2


def test_without_a_front_it_is_the_product_of_both_improvements_over_the_reference() -> None:
    over = strips(np.empty((0, 2)), np.array([0.3, -0.2]))
    value, _ = log_hypervolume_improvement(_at(0.1, 0.5), _at(0.4, 0.2), over)
    parts = [log_expected_improvement(_at(0.1, 0.5), 0.3)[0], log_expected_improvement(_at(0.4, 0.2), -0.2)[0]]
    np.testing.assert_allclose(value, sum(parts), rtol=1e-12)


def test_equal_points_and_points_below_the_reference_change_nothing() -> None:
    front, reference = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([-1.0, -1.0])
    more = np.vstack([front, front, [[2.0, -1.0], [-3.0, 4.0]]])
    one, other = (log_hypervolume_improvement(_at(0.4, 1.0), _at(0.6, 1.0), strips(f, reference)) for f in (front, more))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-12)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-9)


@pytest.mark.parametrize("z", [6.0, 1.0, 0.0, -1.0, -8.0, -37.0])
def test_the_log_probability_of_feasibility_is_that_of_the_normal_law_with_its_gradient(z: float) -> None:
    mean, variance, step = 0.2 + 0.3 * z, 0.09, 1e-6
    value, gradient = log_feasibility(_at(mean, variance), 0.2)
    assert value[0] == pytest.approx(norm.logsf(0.2, mean, 0.3), rel=1e-12)
    slopes = [
        log_feasibility(_at(mean + a, variance + b), 0.2)[0][0] - log_feasibility(_at(mean - a, variance - b), 0.2)[0][0]
        for a, b in ((step, 0.0), (0.0, step))
    ]
    np.testing.assert_allclose(gradient[0], np.array(slopes) / (2 * step), rtol=1e-4, atol=1e-9)


def test_far_from_the_limit_the_log_probability_keeps_its_slope() -> None:
    for z in (1e2, 1e4, 1e6):
        value, gradient = log_feasibility(_at(-z, 1.0), 0.0)
        assert value[0] == pytest.approx(-0.5 * z * z - np.log(np.sqrt(2 * np.pi) * z), rel=1e-6)
        assert gradient[0, 0] == pytest.approx(z, rel=1e-3)


def _posteriors(count: int) -> tuple[np.ndarray, list]:
    rng = np.random.default_rng(5)
    x = rng.random((12, 2))
    hyper = Hyperparameters(0.4, 1.0, 1e-3, family="matern52")
    return x, [condition(hyper, x, np.sin(3 * x[:, 0] + k) + x[:, 1] * (-1) ** k) for k in range(count)]


def test_constrained_improvement_is_the_mean_of_the_improvement_where_feasible() -> None:
    """100,000 draws of independent predictions at 3 points; 5 standard errors, seed 6: false alarms in 2 of 10^6."""
    x, (value, first, second) = _posteriors(3)
    best, thresholds = 0.3, np.array([0.1, -0.2])
    criterion = SeveralCriterion((value,), (first, second), thresholds, best)
    at = np.random.default_rng(6).random((3, 2))
    found = np.exp(criterion(at)[0])
    from fedbo.surrogates.gp import predict

    rng = np.random.default_rng(7)
    for place, point in enumerate(at):
        drawn = []
        for one in (value, first, second):
            mean, variance = predict(one, point[None])
            drawn.append(mean[0] + np.sqrt(variance[0]) * rng.standard_normal(100_000))
        gains = np.clip(drawn[0] - best, 0.0, None) * (drawn[1] >= thresholds[0]) * (drawn[2] >= thresholds[1])
        assert abs(gains.mean() - found[place]) < 5 * gains.std() / np.sqrt(len(gains)) + 1e-12


@pytest.mark.parametrize("kind", ["constrained", "front", "nothing feasible"])
def test_a_criterion_has_its_gradient_and_the_same_values_without(kind: str) -> None:
    _, (one, two, limit) = _posteriors(3)
    over: float | Strips | None = 0.2
    if kind == "front":
        over = strips(np.array([[0.0, 0.5], [0.5, 0.0]]), np.array([-2.0, -2.0]))
    criterion = SeveralCriterion((one, two), (limit,), np.array([0.4]), None if kind == "nothing feasible" else over)
    u, step = np.random.default_rng(8).random((5, 2)), 1e-6
    values, gradient = criterion(u)
    np.testing.assert_allclose(criterion(u, slopes=False)[0], values, rtol=1e-9)
    assert criterion(u, slopes=False)[1].shape == (5, 0)
    for k in range(2):
        shift = step * np.eye(2)[k]
        np.testing.assert_allclose(
            gradient[:, k], (criterion(u + shift)[0] - criterion(u - shift)[0]) / (2 * step), rtol=1e-3, atol=1e-4
        )
