"""Acquisition functions against integration and finite differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedbo.algorithms.components.inner_search import maximise_acquisition
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.acquisition import (
    Prediction,
    expected_improvement,
    log_expected_improvement,
    prediction,
    probability_of_improvement,
    upper_confidence_bound,
)
from fedbo.surrogates.gp import Hyperparameters, condition

Array = npt.NDArray[np.float64]
Acquisition = Callable[[Prediction], tuple[Array, Array]]
X = np.random.default_rng(0).random((14, 2))
Y = np.sin(5.0 * X[:, 0]) * X[:, 1]
POSTERIOR = condition(Hyperparameters(0.3, 1.0, 0.01), X, Y)


def test_expected_improvement_is_the_integral_of_the_improvement() -> None:
    at = Prediction(np.array([0.3, -1.0, 2.0]), np.array([0.5, 0.2, 1.5]), np.zeros((3, 1)), np.zeros((3, 1)))
    for i, found in enumerate(expected_improvement(at, 0.7)[0]):
        law = norm(at.mean[i], np.sqrt(at.variance[i]))
        assert found == pytest.approx(quad(lambda v, law=law: (v - 0.7) * law.pdf(v), 0.7, 15.0)[0], abs=1e-9)


@pytest.mark.parametrize("z", [5.0, 0.0, -0.999, -1.001, -10.0, -35.0])
def test_its_logarithm_is_the_logarithm_and_has_its_gradient(z: float) -> None:
    def at(mean: float, variance: float) -> Prediction:
        return Prediction(np.array([mean]), np.array([variance]), np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))

    mean, variance, step = 0.3 * z, 0.09, 1e-6
    value, gradient = log_expected_improvement(at(mean, variance), 0.0)
    assert value[0] == pytest.approx(np.log(expected_improvement(at(mean, variance), 0.0)[0][0]), rel=1e-9 if z > -5 else 0.02)
    slopes = [
        log_expected_improvement(at(mean + a, variance + b), 0.0)[0][0]
        - log_expected_improvement(at(mean - a, variance - b), 0.0)[0][0]
        for a, b in ((step, 0.0), (0.0, step))
    ]
    np.testing.assert_allclose(gradient[0], np.array(slopes) / (2 * step), rtol=1e-5)


def test_its_logarithm_goes_on_where_it_is_no_number_any_more() -> None:
    """The leading terms of the tail are -z^2 / 2 - log(sqrt(2 pi) z^2)."""
    for z in (-1e3, -9.99e3, -1.01e4, -1e6):
        at = Prediction(np.array([z]), np.ones(1), np.ones((1, 1)), np.zeros((1, 1)))
        value, gradient = log_expected_improvement(at, 0.0)
        assert value[0] == pytest.approx(-0.5 * z * z - np.log(np.sqrt(2 * np.pi) * z * z), rel=1e-6)
        assert gradient[0, 0] == pytest.approx(-z, rel=1e-5)


def test_expected_improvement_without_variance_is_the_improvement() -> None:
    at = Prediction(np.array([1.0, 0.0]), np.zeros(2), np.ones((2, 1)), np.zeros((2, 1)))
    value, gradient = expected_improvement(at, 0.25)
    np.testing.assert_allclose(value, [0.75, 0.0], atol=1e-12)
    np.testing.assert_allclose(gradient[:, 0], [1.0, 0.0], atol=1e-12)


def test_probability_of_improvement_is_that_of_the_normal_law() -> None:
    at = Prediction(np.array([0.3, -1.0, 2.0]), np.array([0.5, 0.2, 0.0]), np.ones((3, 1)), np.zeros((3, 1)))
    value, gradient = probability_of_improvement(at, 0.7)
    np.testing.assert_allclose(value, [norm.sf(0.7, 0.3, np.sqrt(0.5)), norm.sf(0.7, -1.0, np.sqrt(0.2)), 1.0])
    assert np.isfinite(gradient).all() and gradient[2, 0] == 0.0


def test_gradients_agree_with_differences() -> None:
    other, best = np.random.default_rng(1).random((8, 2)), float(Y.max())
    acquisitions: list[Acquisition] = [
        lambda at: expected_improvement(at, best),
        lambda at: probability_of_improvement(at, best),
        lambda at: upper_confidence_bound(at, 2),
    ]
    for acquisition in acquisitions:
        gradient = acquisition(prediction(POSTERIOR, other))[1]
        for j, e in enumerate(1e-6 * np.eye(2)):
            high, low = (acquisition(prediction(POSTERIOR, other + sign * e))[0] for sign in (1, -1))
            np.testing.assert_allclose(gradient[:, j], (high - low) / 2e-6, atol=1e-6)


def test_an_acquisition_is_maximised_as_well_as_on_a_dense_grid() -> None:
    best, axis = float(Y.max()), np.linspace(0.0, 1.0, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    on_grid = expected_improvement(prediction(POSTERIOR, grid), best)[0].max()
    point = maximise_acquisition(
        lambda x: expected_improvement(prediction(POSTERIOR, x), best), LocalState(X, Y), "plain", Streams(0)
    )
    assert expected_improvement(prediction(POSTERIOR, point[None]), best)[0][0] >= on_grid - 1e-9
    assert ((point >= 0.0) & (point <= 1.0)).all()
