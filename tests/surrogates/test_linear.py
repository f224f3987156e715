"""The Bayesian linear model against dense algebra, identities (6) and (7) of FTS, and the law of its draws."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from time import process_time

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from fedbo.surrogates import linear
from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.linear import LinearModel, linear_model, update

Array = npt.NDArray[np.float64]


def data(n: int, m: int, scale: float = 0.2) -> tuple[Array, Array, Array]:
    """Feature rows, values, and the feature rows of seven other points."""
    rng = np.random.default_rng(n + m)
    features = draw_features(rng, 2, m, scale)
    x = rng.random((n, 2))
    return phi(features, x), np.sin(7.0 * x[:, 0]) + x[:, 1], phi(features, rng.random((7, 2)))


def fitted(rows: Array, y: Array, noise: float) -> LinearModel:
    return update(linear_model(rows.shape[1], noise), rows, y)


@pytest.mark.parametrize("n", [1, 10, 30, 80])
def test_rank_one_updates_agree_with_a_dense_solve(n: int) -> None:
    rows, y, _ = data(n, 30)
    model = linear_model(30, 0.01)
    for row, value in zip(rows, y, strict=True):
        model = update(model, row, value)
    sigma = rows.T @ rows + 0.01 * np.eye(30)
    np.testing.assert_allclose(linear.inverse_precision(model), np.linalg.inv(sigma), atol=1e-9)
    np.testing.assert_allclose(linear.mean(model), np.linalg.solve(sigma, rows.T @ y), atol=1e-11)
    np.testing.assert_allclose(0.01 * linear.inverse_precision(model), 0.01 * np.linalg.inv(sigma), atol=1e-11)
    assert model.n == n


def test_many_rows_at_once_are_the_same_as_one_after_another() -> None:
    rows, y, other = data(25, 40)
    at_once = fitted(rows, y, 1e-4)
    in_turn = linear_model(40, 1e-4)
    for row, value in zip(rows, y, strict=True):
        in_turn = update(in_turn, row, value)
    np.testing.assert_allclose(linear.mean(at_once), linear.mean(in_turn), atol=1e-9)
    np.testing.assert_allclose(linear.predict(at_once, other)[1], linear.predict(in_turn, other)[1], atol=1e-12)


@pytest.mark.parametrize("n, m", [(10, 60), (60, 20)])
def test_identities_6_and_7_of_appendix_b_hold(n: int, m: int) -> None:
    rows, y, other = data(n, m)
    noise = 0.01
    mean, variance = linear.predict(fitted(rows, y, noise), other)
    gram, cross = rows @ rows.T + noise * np.eye(n), other @ rows.T
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(gram, y), atol=1e-10)
    reduction = np.einsum("ij,ji->i", cross, np.linalg.solve(gram, cross.T))
    np.testing.assert_allclose(variance, (other**2).sum(axis=1) - reduction, atol=1e-10)


def exact_mean(rows: Array, y: Array, noise: float) -> Array:
    """Sigma^-1 Phi'y in rational arithmetic on the very same floats, so that no rounding is left to argue about."""
    m = rows.shape[1]
    phi_rows = [[Fraction(float(v)) for v in row] for row in rows]
    table = [
        [sum((r[i] * r[j] for r in phi_rows), Fraction(0)) + (Fraction(noise) if i == j else 0) for j in range(m)]
        + [sum((r[i] * Fraction(float(v)) for r, v in zip(phi_rows, y, strict=True)), Fraction(0))]
        for i in range(m)
    ]
    for i in range(m):
        for j in range(i + 1, m):
            factor = table[j][i] / table[i][i]
            table[j] = [a - factor * b for a, b in zip(table[j], table[i], strict=True)]
    nu = [Fraction(0)] * m
    for i in reversed(range(m)):
        nu[i] = (table[i][m] - sum((table[i][j] * nu[j] for j in range(i + 1, m)), Fraction(0))) / table[i][i]
    return np.array([float(v) for v in nu])


def test_the_mean_is_right_to_nine_digits_in_the_near_singular_published_setting() -> None:
    # sigma^2 = 1e-6 and smooth features: the condition number of Sigma is above 1e6, that of its square root above 1e3.
    rows, y, _ = data(16, 12, scale=0.5)
    exact = exact_mean(rows, y, 1e-6)
    assert np.linalg.cond(rows.T @ rows + 1e-6 * np.eye(12)) > 1e6
    model = fitted(rows, y, 1e-6)
    assert np.abs(linear.mean(model) - exact).max() < 1e-9 * np.abs(exact).max()


@pytest.mark.parametrize("n", [8, 11, 20])
def test_a_draw_without_spread_is_the_mean_by_either_route_in_the_near_singular_setting(n: int) -> None:
    rows, y, _ = data(n, 11, scale=0.5)
    exact = exact_mean(rows, y, 1e-6)
    drawn = linear.draw_weights(rows, y, 1e-6, np.random.default_rng(0), beta=0.0)
    assert np.abs(drawn - exact).max() < 1e-8 * np.abs(exact).max()


def test_a_draw_is_made_even_where_the_dual_matrix_has_no_cholesky_factor() -> None:
    rows = np.repeat(data(1, 30)[0], 6, axis=0)
    omega = linear.draw_weights(rows, np.ones(6), 1e-18, np.random.default_rng(0))
    np.testing.assert_allclose(rows @ omega, 1.0, atol=1e-6)


def test_variances_stay_positive_and_right_at_repeated_points_with_tiny_noise() -> None:
    rows, y, _ = data(5, 100)
    model = linear_model(100, 1e-6)
    for _ in range(10):
        model = update(model, rows, y)
    variance = linear.predict(model, rows)[1]
    values, vectors = np.linalg.eigh(rows @ rows.T)
    shrunk = vectors @ np.diag(values * 1e-6 / (10 * values + 1e-6)) @ vectors.T
    np.testing.assert_allclose(variance, np.diag(shrunk), rtol=1e-7)
    assert (variance > 0).all()


def mahalanobis(draws: Array, mean: Array, covariance: Array) -> tuple[float, float]:
    """Tail probabilities of the draws' mean and of their total Mahalanobis distance under the claimed law."""
    count, m = draws.shape
    away = draws - mean
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), away.T)
    of_mean = count * float((whitened.mean(axis=1) ** 2).sum())
    return float(chi2.sf(of_mean, m)), float(chi2.cdf((whitened**2).sum(), m * count))


@pytest.mark.parametrize("n", [6, 40])
@pytest.mark.parametrize("beta", [1.0, 2.5])
@pytest.mark.parametrize("how", ["model", "data"])
def test_draws_have_the_law_of_equation_3(n: int, beta: float, how: str) -> None:
    # Law: 4,000 draws of N(nu, beta^2 sigma^2 Sigma^-1), seed 11; the two chi-squared tests together have a
    # false-alarm rate of 4e-5. The covariance, entry by entry in whitened coordinates, has standard
    # error at most sqrt(2 / 4000): 0.115 is 5 of them.
    rows, y, _ = data(n, 15)
    model, rng = fitted(rows, y, 0.05), np.random.default_rng(11)
    make: Callable[[], Array] = lambda: linear.draw_weights(rows, y, 0.05, rng, beta)  # noqa: E731
    draws = linear.draw(model, rng, 4000, beta) if how == "model" else np.array([make() for _ in range(4000)])
    mean, covariance = linear.mean(model), beta**2 * model.noise_variance * linear.inverse_precision(model)
    of_mean, of_spread = mahalanobis(draws, mean, covariance)
    assert of_mean > 1e-5 and 1e-5 < of_spread < 1 - 1e-5
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    np.testing.assert_allclose(whitened @ whitened.T / 4000, np.eye(15), atol=0.115)


def test_without_observations_the_prior_is_left() -> None:
    model = update(linear_model(4, 0.1), np.empty((0, 4)), np.empty(0))
    np.testing.assert_array_equal(linear.mean(model), np.zeros(4))
    np.testing.assert_allclose(model.noise_variance * linear.inverse_precision(model), np.eye(4), atol=1e-15)
    assert linear.draw_weights(np.empty((0, 4)), np.empty(0), 0.1, np.random.default_rng(0)).shape == (4,)


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="noise variance must be positive; got 0"):
        linear_model(4, 0.0)
    with pytest.raises(ValueError, match="must be finite"):
        update(linear_model(2, 0.1), np.array([np.nan, 1.0]), 1.0)


def test_an_update_leaves_the_old_model_as_it_was() -> None:
    rows, y, _ = data(3, 10)
    model = fitted(rows, y, 0.1)
    before = model.factor.copy()
    update(model, rows[0], 2.0)
    np.testing.assert_array_equal(model.factor, before)


def test_an_update_and_a_draw_take_far_less_than_a_millisecond() -> None:
    rows, y, _ = data(50, 100)
    model, rng, seconds = fitted(rows, y, 1e-6), np.random.default_rng(0), []
    for _ in range(50):
        begin = process_time()
        linear.draw(update(model, rows[0], 1.0), rng)
        seconds.append(process_time() - begin)
    # About 65 microseconds on one quiet core; the bound only catches a change of the order of the cost.
    assert min(seconds) < 5e-4
