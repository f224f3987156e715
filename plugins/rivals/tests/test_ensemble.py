"""Many linear models at once: against one at a time, finite differences, refits without a point, and plain loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2, kendalltau

from fedbo.surrogates.features import Features, draw_features, phi
from fedbo.surrogates.gp import ROBUST, GPSettings, fit_gp
from fedbo.surrogates.gp_settings import SMOOTH
from fedbo.surrogates.linear import LinearModel, inverse_precision, linear_model, mean, predict, update
from fedbo.surrogates.posterior import Hyperparameters, NotPositiveDefinite, condition, covariance
from fedbo.surrogates.posterior import predict as gp_predict
from fedbo_rivals.ensemble import (
    Ensemble,
    combined,
    discordance,
    ensemble,
    joint_draws,
    leave_one_out_draws,
    leave_one_out_loss,
    means,
    means_with_gradients,
    phi_and_jacobian,
    predictions,
    ranking_loss,
)
from tests.surrogates.test_factorise import VALUES, Array, points

M, NOISE = 20, 1e-2


def models(noise: float = NOISE) -> tuple[Features, list[LinearModel], Ensemble]:
    rng = np.random.default_rng(1)
    features = draw_features(rng, 2, M, 0.4, "matern52")
    known = []
    for agent in range(3):
        x = rng.random((8 + agent, 2))
        known.append(update(linear_model(M, noise), phi(features, x), np.sin(3.0 * x[:, 0] + agent)))
    nu, inverse = np.array([mean(one) for one in known]), np.array([inverse_precision(one) for one in known])
    return features, known, ensemble(features, nu, inverse, noise)


def test_an_ensemble_believes_what_each_model_believes() -> None:
    features, known, together = models()
    x = np.random.default_rng(2).random((7, 2))
    at = predictions(together, x)
    for n, one in enumerate(known):
        expected_mean, expected_variance = predict(one, phi(features, x))
        np.testing.assert_allclose(at.mean[:, n], expected_mean, atol=1e-12)
        np.testing.assert_allclose(at.variance[:, n], expected_variance, atol=1e-12)
    np.testing.assert_array_equal(means(together, x), at.mean)
    np.testing.assert_array_equal(means_with_gradients(together, x)[1], at.mean_gradient)


def test_the_variance_is_right_at_the_authors_noise_too() -> None:
    features, known, together = models(noise=1e-6)
    x = np.random.default_rng(2).random((7, 2))
    for n, one in enumerate(known):
        np.testing.assert_allclose(
            predictions(together, x).variance[:, n], predict(one, phi(features, x))[1], rtol=1e-6, atol=1e-12
        )


def test_gradients_are_those_of_finite_differences() -> None:
    _, _, together = models()
    x, h = np.random.default_rng(3).random((5, 2)), 1e-6
    at = predictions(together, x)
    for j in range(2):
        step = h * np.eye(2)[j]
        above, below = predictions(together, x + step), predictions(together, x - step)
        np.testing.assert_allclose(at.mean_gradient[:, :, j], (above.mean - below.mean) / (2 * h), atol=1e-7)
        np.testing.assert_allclose(at.variance_gradient[:, :, j], (above.variance - below.variance) / (2 * h), atol=1e-7)


def test_a_weighted_sum_of_models_is_one_model() -> None:
    _, _, together = models()
    x, weight = np.random.default_rng(4).random((4, 2)), np.array([0.5, 0.0, 0.3])
    one, each = predictions(combined(together, weight), x), predictions(together, x)
    np.testing.assert_allclose(one.mean[:, 0], each.mean @ weight, atol=1e-12)
    np.testing.assert_allclose(one.variance[:, 0], each.variance @ weight**2, rtol=1e-10)
    np.testing.assert_allclose(
        one.variance_gradient[:, 0], np.einsum("nkd,k->nd", each.variance_gradient, weight**2), atol=1e-12
    )


def test_joint_draws_have_the_posterior_mean_and_covariance() -> None:
    """Hotelling's statistic of each model's mean of 4,000 draws is chi-square; seed 5, false alarms below 1e-6 a model."""
    features, known, together = models()
    x, count = np.random.default_rng(5).random((4, 2)), 4000
    draws = joint_draws(together, x, count, np.random.default_rng(5))
    for n, one in enumerate(known):
        rows = phi(features, x)
        expected = NOISE * rows @ inverse_precision(one) @ rows.T
        off = draws[n].mean(axis=0) - rows @ mean(one)
        assert count * off @ np.linalg.solve(expected, off) < chi2.isf(1e-6, len(x))
        np.testing.assert_allclose(np.cov(draws[n].T), expected, atol=0.15 * expected.max())


def test_a_matrix_that_is_no_inverse_is_refused() -> None:
    features, _, together = models()
    broken = ensemble(features, together.nu[:1], -np.eye(M)[None], NOISE)
    with pytest.raises(NotPositiveDefinite, match="no Cholesky factor"):
        joint_draws(broken, np.zeros((2, 2)), 3, np.random.default_rng(0))


def test_draws_that_leave_a_point_out_are_those_of_a_process_that_never_saw_it() -> None:
    """Means and covariances over 20,000 draws; a mean is off by 0.04 standard deviations with probability 1e-8; seed 6."""
    rng = np.random.default_rng(6)
    x, count = rng.random((9, 2)), 20_000
    y = np.sin(5.0 * x[:, 0]) + 0.1 * rng.standard_normal(9)
    hyper = Hyperparameters(0.3, 1.2, 0.05, "matern52", 0.2, 1.7)
    draws = leave_one_out_draws(condition(hyper, x, y), count, rng)
    for j in range(9):
        others = np.arange(9) != j
        left = condition(hyper, x[others], y[others])
        expected = covariance(left, x)
        assert (np.abs(draws[j].mean(axis=0) - gp_predict(left, x)[0]) < 0.05 * np.sqrt(expected.diagonal())).all()
        np.testing.assert_allclose(np.cov(draws[j].T), expected, atol=0.05 * expected.max())


def test_the_ranking_loss_counts_the_pairs_in_the_wrong_order() -> None:
    rng = np.random.default_rng(7)
    y, draws = np.array([0.1, 0.5, 0.5, 0.2, 0.9]), rng.standard_normal((2, 3, 5))
    pairs = list(itertools.product(range(5), repeat=2))
    for n, s in itertools.product(range(2), range(3)):
        expected = sum((draws[n, s, j] < draws[n, s, k]) != (y[j] < y[k]) for j, k in pairs)
        assert ranking_loss(draws, y)[n, s] == expected


def test_the_loss_of_left_out_points_compares_each_with_the_others_in_its_own_draw() -> None:
    rng = np.random.default_rng(8)
    y, draws = rng.standard_normal(4), rng.standard_normal((4, 3, 4))
    pairs = list(itertools.product(range(4), repeat=2))
    for s in range(3):
        expected = sum((draws[j, s, j] < draws[j, s, k]) != (y[j] < y[k]) for j, k in pairs)
        assert leave_one_out_loss(draws, y)[s] == expected


def test_discordance_is_the_share_that_kendall_counts() -> None:
    rng = np.random.default_rng(9)
    y, predicted = rng.standard_normal(12), rng.standard_normal((3, 12))
    expected = [(1.0 - kendalltau(one, y).statistic) / 2.0 for one in predicted]
    np.testing.assert_allclose(discordance(predicted, y), expected, atol=1e-12)
    np.testing.assert_array_equal(discordance(np.array([[0.3]]), np.array([1.0])), [0.0])


@points
@pytest.mark.parametrize("noise", [1e-2, 1e-6, 1e-10])
@pytest.mark.parametrize("pulls", [1, 50])
def test_models_draw_jointly_at_points_that_their_sender_has_seen_often(pulls: int, noise: float, x: Array) -> None:
    """Their covariance is 1e-8 of the numbers it is made of, and all that these have lost to rounding is in it."""
    features = draw_features(np.random.default_rng(0), 2, 100, 0.2)
    rows, y = phi(features, np.repeat(x, pulls, axis=0)), np.repeat(np.sin(6.0 * x[:, 0]), pulls)
    model = update(linear_model(100, noise), rows, y)
    together = ensemble(features, mean(model)[None], inverse_precision(model)[None], noise)
    draws = joint_draws(together, np.repeat(x, 2, axis=0), 200, np.random.default_rng(0))[0]
    assert np.abs(draws - draws.mean(axis=0)).max() < 6.0 * np.sqrt(noise) + 1e-3


@points
@pytest.mark.parametrize("y", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("fitted", [ROBUST, SMOOTH], ids=["robust", "smooth"])
def test_draws_without_a_point_are_finite_whatever_was_observed(
    fitted: GPSettings, y: Callable[[Array], Array], x: Array
) -> None:
    posterior = condition(fit_gp(x, y(x), fitted, np.random.default_rng(2)), x, y(x))
    assert np.isfinite(leave_one_out_draws(posterior, 3, np.random.default_rng(1))).all()


@pytest.mark.parametrize("normalise", [True, False])
def test_the_jacobian_of_the_features_agrees_with_differences(normalise: bool) -> None:
    features = draw_features(np.random.default_rng(3), 3, 60, 0.4, "se", variance=1.6, normalise=normalise)
    x = np.random.default_rng(7).random((6, 3))
    rows, jacobian = phi_and_jacobian(features, x)
    np.testing.assert_allclose(rows, phi(features, x), atol=1e-13)
    differences = [(phi(features, x + e) - phi(features, x - e)) / 2e-6 for e in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(jacobian, np.stack(differences, axis=2), atol=1e-8)
