"""A process with a learned prior against the joint normal law written out, finite differences, and an ordinary process."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import multivariate_normal

from fedbo.algorithms.learned_prior import learned_prior as lp
from fedbo.surrogates.acquisition import prediction as ordinary
from fedbo.surrogates.kernels import SE, Matern
from fedbo.surrogates.posterior import Hyperparameters, condition
from tests.algorithms.learned_prior.densities import density_function

Array = npt.NDArray[np.float64]
RNG = np.random.default_rng(5)
DESIGN, VALUES = RNG.random((40, 2)), RNG.standard_normal((6, 40)) + 3.0
X, Y, AT = RNG.random((8, 2)), RNG.standard_normal(8) + 3.0, RNG.random((5, 2))
MOMENTS = lp.Moments(VALUES.mean(axis=0), (VALUES - VALUES.mean(axis=0)) / np.sqrt(5.0), 0.4)
PRIOR = lp.learned_prior(DESIGN, MOMENTS, 0.3)
MEDIANS = np.log(np.array(PRIOR.parameters))
PARAMETERS = lp.PriorParameters(0.2, 0.4, 0.05, 0.7)


def interpolated(values: Array, x: Array) -> Array:
    """Carry values `(40,)` at the design to x, by an inverse."""
    gram = SE(0.3)(DESIGN, DESIGN) + lp.INTERPOLATION_NOISE * np.eye(40)
    return np.asarray(SE(0.3)(x, DESIGN) @ np.linalg.inv(gram) @ values)


def law(x: Array) -> tuple[Array, Array]:
    """Mean and covariance of the function at x, in units of the values."""
    mean = VALUES.mean(axis=0)
    centre = mean.mean()
    directions = np.array([interpolated(row, x) for row in (VALUES - mean) / np.sqrt(5.0)])
    residual = PRIOR.scale**2 * Matern(PARAMETERS.length_scale, PARAMETERS.variance)(x, x)
    return centre + interpolated(mean - centre, x), PARAMETERS.tau * directions.T @ directions + residual


def test_predictions_are_those_of_the_joint_normal_law() -> None:
    both = np.vstack([X, AT])
    mean, covariance = law(both)
    seen = covariance[:8, :8] + PARAMETERS.noise_variance * PRIOR.scale**2 * np.eye(8)
    gain = covariance[8:, :8] @ np.linalg.inv(seen)
    belief = lp.believe(PRIOR, PARAMETERS, X, Y)
    wanted = mean[8:] + gain @ (Y - mean[:8])
    np.testing.assert_allclose(lp.expected(belief, AT), wanted, rtol=1e-8)
    found = lp.predictor(belief)(AT)
    np.testing.assert_allclose(PRIOR.centre + PRIOR.scale * found.mean, wanted, rtol=1e-8)
    left = np.diag(covariance[8:, 8:] - gain @ covariance[:8, 8:])
    np.testing.assert_allclose(PRIOR.scale**2 * found.variance, left, rtol=1e-6)


def test_the_density_is_that_of_the_joint_normal_law_times_the_priors() -> None:
    mean, covariance = law(X)
    noisy = covariance + PARAMETERS.noise_variance * PRIOR.scale**2 * np.eye(8)
    theta = np.log(np.array(PARAMETERS))
    apart = (theta - MEDIANS) / lp.SPREADS
    wanted = 0.5 * apart @ apart - multivariate_normal(mean, noisy).logpdf(Y) - 8 * np.log(PRIOR.scale)
    assert density_function(PRIOR, X, Y)(theta)[0] == pytest.approx(wanted, rel=1e-8)


def test_gradients_are_those_of_differences() -> None:
    density, theta, step = density_function(PRIOR, X, Y), MEDIANS + 0.3, 1e-6
    wanted = [(density(theta + step * e)[0] - density(theta - step * e)[0]) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(density(theta)[1], wanted, rtol=1e-6)
    belief = lp.believe(PRIOR, PARAMETERS, X, Y)
    found = lp.predictor(belief)(AT)
    for j, e in enumerate(step * np.eye(2)):
        up, down = lp.predictor(belief)(AT + e), lp.predictor(belief)(AT - e)
        np.testing.assert_allclose(found.mean_gradient[:, j], (up.mean - down.mean) / (2 * step), rtol=1e-4, atol=1e-6)
        slope = (up.variance - down.variance) / (2 * step)
        np.testing.assert_allclose(found.variance_gradient[:, j], slope, rtol=1e-4, atol=1e-6)


def test_the_fit_is_no_worse_than_a_search_on_a_grid() -> None:
    density = density_function(PRIOR, X, Y)
    found = density(np.log(np.array(lp.fit(PRIOR, X, Y))))[0]
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, 6)] * 4), axis=-1).reshape(-1, 4) * lp.SPREADS + MEDIANS
    inside = np.clip(grid, lp.LIMITS[:, 0], lp.LIMITS[:, 1])
    assert found <= min(density(theta)[0] for theta in inside) + 1e-6


def test_without_anything_learned_it_is_an_ordinary_process() -> None:
    flat = lp.flat_prior(2, 3.0, 2.0)
    found = lp.predictor(lp.believe(flat, PARAMETERS, X, Y))(AT)
    hyper = Hyperparameters(PARAMETERS.length_scale, PARAMETERS.variance, PARAMETERS.noise_variance, "matern52")
    wanted = ordinary(condition(hyper, X, (Y - 3.0) / 2.0), AT)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
    assert lp.fit(flat, X[:0], Y[:0]) == lp.PriorParameters()


def test_without_observations_the_mean_is_that_of_a_smooth_prior() -> None:
    design = np.stack(np.meshgrid(*[np.linspace(0, 1, 10)] * 2), axis=-1).reshape(-1, 2)
    moments = lp.Moments(np.sin(3 * design[:, 0]) + design[:, 1], np.empty((0, 100)), 0.0)
    prior = lp.learned_prior(design, moments, lp.interpolation_length(100, 2))
    belief = lp.believe(prior, PARAMETERS, X[:0], Y[:0])
    np.testing.assert_allclose(lp.expected(belief, AT), np.sin(3 * AT[:, 0]) + AT[:, 1], atol=0.02)


def test_the_scale_holds_all_variance_and_the_residual_is_its_share() -> None:
    variance = MOMENTS.mean.var() + (MOMENTS.directions**2).sum() / 40 + MOMENTS.residual
    assert PRIOR.scale == pytest.approx(np.sqrt(variance))
    assert PRIOR.parameters == lp.PriorParameters(variance=MOMENTS.residual / PRIOR.scale**2)
    assert lp.learned_prior(DESIGN, MOMENTS._replace(residual=0.0), 0.3).residual == lp.LEAST_RESIDUAL


@pytest.mark.parametrize("number", [5, 20])
def test_a_shrunk_covariance_is_nearer_to_the_true_one_and_keeps_its_trace(number: int) -> None:
    """Draws of a smooth process in 40 dimensions: with the variance taken off given back evenly, in each of 20 estimates."""
    true = SE(0.2)(DESIGN, DESIGN)
    root = np.linalg.cholesky(true + 1e-9 * np.eye(40))
    rng = np.random.default_rng(8)
    for _ in range(20):
        draws = rng.standard_normal((number, 40)) @ root.T
        sample = draws.T @ draws / number
        kept, residual = lp.shrunk(sample, number)
        assert kept.trace() + 40 * residual == pytest.approx(sample.trace())
        assert np.linalg.norm(kept + residual * true - true) < np.linalg.norm(sample - true)


def test_an_estimate_from_one_function_is_all_shrunk_and_one_from_many_hardly() -> None:
    one = np.outer(np.arange(4.0), np.arange(4.0))
    np.testing.assert_array_equal(lp.shrunk(one, 1.0)[0], 0.0)
    np.testing.assert_allclose(lp.shrunk(one, 1e6)[0], one, rtol=1e-5)
    assert lp.shrunk(np.zeros((4, 4)), 3.0)[1] == 0.0


@pytest.mark.parametrize(("draws", "within"), [(500, 0.16), pytest.param(2000, 0.08, marks=pytest.mark.long)])
def test_unlike_agents_cost_no_more_nats_than_the_bounds_say(draws: int, within: float) -> None:
    """Values of a plain process: directions cost at most their information, a mean of n others 1 / (2 n) an observation."""
    rng, number = np.random.default_rng(6), 11
    plain = Matern(0.2, 1.0)(X, X) + 0.01 * np.eye(8)
    root = np.linalg.cholesky(plain)
    directions = rng.standard_normal((5, 8))
    wide = plain + directions.T @ directions
    information = 0.5 * (np.linalg.slogdet(wide)[1] - np.linalg.slogdet(plain)[1])
    means = []
    for _ in range(draws):
        y, m = root @ rng.standard_normal(8), (root @ rng.standard_normal((8, number))).mean(axis=1)
        honest = multivariate_normal(np.zeros(8), plain).logpdf(y)
        assert honest - multivariate_normal(np.zeros(8), wide).logpdf(y) <= information
        means.append(honest - multivariate_normal(m, plain).logpdf(y))
    # The mean cost is 8 / (2 * 11) = .364, with a standard deviation of at most .9 in a draw: four of them in the mean
    # of 500 draws are .16, and of 2000 .08.
    assert np.mean(means) == pytest.approx(8 / (2 * number), abs=within)


def test_a_shape_is_recovered_as_by_the_likeliest_process_written_out() -> None:
    rng = np.random.default_rng(3)
    told = np.sin(4.0 * DESIGN[:, 0]) + DESIGN[:, 1] + 0.3 * rng.standard_normal(40)
    shape = lp.recovered(DESIGN, told, 0.3, lp.interpolation_length(40, 2))
    best = (-np.inf, 0.0, 0.0)
    for length in lp.interpolation_length(40, 2) * lp.LENGTHS:
        for size in lp.SIZES:
            covariance = size * (SE(length)(DESIGN, DESIGN) + lp.INTERPOLATION_NOISE * np.eye(40)) + 0.09 * np.eye(40)
            best = max(best, (float(multivariate_normal(np.zeros(40), covariance).logpdf(told)), length, size))
    _, length, size = best
    assert shape.length_scale == pytest.approx(length)
    covariance = size * (SE(length)(DESIGN, DESIGN) + lp.INTERPOLATION_NOISE * np.eye(40)) + 0.09 * np.eye(40)
    wanted = size * SE(length)(AT, DESIGN) @ np.linalg.inv(covariance) @ told
    prior = lp.shape_prior(shape, 3.0, 2.0)
    np.testing.assert_allclose(lp.rows_of(prior, AT)[:, 0], wanted, atol=1e-8)
    np.testing.assert_allclose(lp.rows_of(prior, AT)[:, 1], lp.SIZE * wanted, atol=1e-8)
    np.testing.assert_allclose(lp.rows_of(prior, DESIGN)[:, 2], 1.0, atol=0.02)
    assert (prior.centre, prior.scale) == (3.0, 2.0)


def test_noise_alone_has_hardly_a_shape() -> None:
    """Of 50 draws of noise alone with deviation 1, at most ten leave a mean of more than .3; fixed seed."""
    rng = np.random.default_rng(4)
    sizes = [
        np.abs(
            lp.rows_of(lp.shape_prior(lp.recovered(DESIGN, row, 1.0, lp.interpolation_length(40, 2)), 0.0, 1.0), DESIGN)[:, 0]
        ).max()
        for row in rng.standard_normal((50, 40))
    ]
    assert (np.array(sizes) > 0.3).sum() <= 10
