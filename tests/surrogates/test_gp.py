"""The exact Gaussian process against scikit-learn, dense algebra and finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from fedbo.surrogates import gp
from fedbo.surrogates.gp import (
    FITTED,
    ROBUST,
    SCALED,
    FittedParameter,
    GPSettings,
    Hyperparameters,
    NotPositiveDefinite,
    condition,
    fit_gp,
    log_marginal_likelihood,
    mean,
    predict,
    representatives,
)
from fedbo.surrogates.gp_settings import EXACT, SMOOTH
from fedbo.surrogates.kernels import FAMILIES
from fedbo.surrogates.posterior import evidence_function, factorise

Array = npt.NDArray[np.float64]
SCALES = (0.4, (0.3, 0.6))


def data(n: int = 30) -> tuple[Array, Array]:
    rng = np.random.default_rng(n)
    x = rng.random((n, 2))
    return x, np.sin(6.0 * x[:, 0]) + x[:, 1] ** 2 + 0.05 * rng.standard_normal(n)


def theirs(hyper: Hyperparameters, x: Array, y: Array) -> GaussianProcessRegressor:
    """scikit-learn's regressor with the same hyperparameters."""
    nu = {"matern32": 1.5, "matern52": 2.5}
    scale = hyper.length_scale
    shape = RBF(scale) if hyper.family == "se" else Matern(scale, nu=nu[hyper.family])
    kernel = ConstantKernel(hyper.variance) * shape + WhiteKernel(hyper.noise_variance)
    return GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(x, y)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", SCALES)
def test_predictions_and_evidence_agree_with_scikit_learn(family: str, scale: float) -> None:
    x, y = data()
    hyper, other = Hyperparameters(scale, 1.4, 0.02, family), np.random.default_rng(9).random((20, 2))
    reference, posterior = theirs(hyper, x, y), condition(hyper, x, y)
    mean, variance = predict(posterior, other)
    expected, covariance = reference.predict(other, return_cov=True)
    np.testing.assert_allclose(mean, expected, atol=1e-9)
    # Theirs is the variance of an observation, ours of the function.
    np.testing.assert_allclose(gp.covariance(posterior, other), covariance - 0.02 * np.eye(20), atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(covariance) - 0.02, atol=1e-9)
    value, gradient = log_marginal_likelihood(hyper, x, y)
    expected_value, by_theta = reference.log_marginal_likelihood(reference.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(expected_value, abs=1e-9)
    # Theirs has the order variance, length scale(s), noise.
    np.testing.assert_allclose(gradient, np.concatenate([by_theta[1:-1], by_theta[:1], by_theta[-1:]]), atol=1e-8)


def test_a_repeated_noise_free_point_is_met_with_jitter_that_is_reported() -> None:
    x, y = np.full((4, 2), 0.5), np.ones(4)
    posterior = condition(Hyperparameters(0.3, 1.0, 0.0), x, y)
    assert 0.0 < posterior.jitter <= 1e-6
    assert predict(posterior, x[:1])[0] == pytest.approx(1.0, abs=1e-5)
    first = condition(Hyperparameters(0.3, 1.0, 0.0), x[:1], y[:1])
    assert first.jitter == 0.0


def test_a_matrix_beyond_the_jitter_ladder_raises_a_typed_error() -> None:
    with pytest.raises(NotPositiveDefinite, match="no Cholesky factor"):
        factorise(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(NotPositiveDefinite, match="not finite"):
        factorise(np.array([[np.nan, 0.0], [0.0, 1.0]]))


def test_without_observations_the_prior_is_left() -> None:
    posterior = condition(Hyperparameters(0.3, 1.5, 0.1, offset=2.0, scale=3.0), np.empty((0, 2)), np.empty(0))
    mean, variance = predict(posterior, np.random.default_rng(0).random((4, 2)))
    np.testing.assert_allclose(mean, 2.0)
    np.testing.assert_allclose(variance, 1.5 * 9.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_the_prediction_agree_with_differences(family: str) -> None:
    x, y = data(15)
    posterior = condition(Hyperparameters((0.3, 0.5), 1.2, 0.01, family, 0.3, 2.0), x, y)
    other = np.random.default_rng(3).random((6, 2))
    *predictions, mean_gradient, variance_gradient = gp.predict_with_gradients(posterior, other)
    np.testing.assert_allclose(predictions, predict(posterior, other), atol=1e-12)
    for j, e in enumerate(1e-5 * np.eye(2)):
        high, low = predict(posterior, other + e), predict(posterior, other - e)
        np.testing.assert_allclose(mean_gradient[:, j], (high[0] - low[0]) / 2e-5, atol=1e-6)
        np.testing.assert_allclose(variance_gradient[:, j], (high[1] - low[1]) / 2e-5, atol=1e-6)


@pytest.mark.parametrize("ard", [False, True])
def test_a_fit_ends_where_the_evidence_has_no_slope_and_beats_scikit_learn(ard: bool) -> None:
    x, y = data(40)
    settings = replace(GPSettings(), ard=ard)
    hyper = fit_gp(x, y, settings, np.random.default_rng(0))
    value, gradient = log_marginal_likelihood(hyper, x, y)
    assert np.abs(gradient).max() < 1e-2
    kernel = ConstantKernel(0.1) * RBF([1.0, 1.0] if ard else 1.0) + WhiteKernel(1e-4, (1e-8, 1e3))
    reference = GaussianProcessRegressor(kernel, alpha=0.0, n_restarts_optimizer=2, random_state=0).fit(x, y)
    assert value > reference.log_marginal_likelihood_value_ - 1e-4


def test_the_setting_of_the_authors_is_the_default() -> None:
    settings = GPSettings()
    starts = [p.start for p in settings.parameters(2)]
    assert starts == [1.0, 0.1, 1e-4]
    assert (settings.kernel, settings.ard, settings.centre, settings.standardise, settings.restarts) == (
        "se",
        False,
        False,
        False,
        10,
    )


def test_priors_pull_a_fit_of_few_points_towards_their_medians() -> None:
    x, y = data(4)
    narrow = FittedParameter(0.2, prior=(0.2, 0.01))
    hyper = fit_gp(x, y, replace(ROBUST, length_scale=narrow), np.random.default_rng(0))
    assert hyper.length_scale == pytest.approx((0.2, 0.2), rel=0.02)


def test_fixed_parameters_keep_their_values() -> None:
    x, y = data(20)
    fixed = FittedParameter(0.25, fixed=True)
    hyper = fit_gp(x, y, replace(GPSettings(), noise_variance=fixed, restarts=1), np.random.default_rng(0))
    assert hyper.noise_variance == pytest.approx(0.25, rel=1e-12)
    everything = replace(GPSettings(), length_scale=fixed, variance=fixed, noise_variance=fixed)
    assert fit_gp(x, y, everything, np.random.default_rng(0)).length_scale == pytest.approx(0.25, rel=1e-12)


def test_standardised_values_are_modelled_and_predictions_come_back_in_native_units() -> None:
    x, y = data(30)
    plain = fit_gp(x, y, ROBUST, np.random.default_rng(0))
    moved = fit_gp(x, 100.0 + 50.0 * y, ROBUST, np.random.default_rng(0))
    assert moved.length_scale == pytest.approx(plain.length_scale, rel=1e-3)
    mean, variance = predict(condition(plain, x, y), x)
    moved_mean, moved_variance = predict(condition(moved, x, 100.0 + 50.0 * y), x)
    np.testing.assert_allclose(moved_mean, 100.0 + 50.0 * mean, rtol=1e-4)
    np.testing.assert_allclose(moved_variance, 2500.0 * variance, rtol=1e-2)


def test_a_fit_depends_on_its_generator_alone_and_asks_it_for_the_same_numbers_whatever_n_is() -> None:
    x, y = data(20)
    assert fit_gp(x, y, ROBUST, np.random.default_rng(4)) == fit_gp(x, y, ROBUST, np.random.default_rng(4))
    after = []
    for n in (0, 1, 20):
        rng = np.random.default_rng(4)
        fit_gp(x[:n], y[:n], ROBUST, rng)
        after.append(rng.random())
    assert after[0] == after[1] == after[2]


def test_a_constant_history_can_be_fitted() -> None:
    x, _ = data(10)
    hyper = fit_gp(x, np.full(10, 0.7), ROBUST, np.random.default_rng(0))
    assert hyper.scale == 1.0 and hyper.offset == pytest.approx(0.7)


def test_a_warm_start_is_never_worse_than_where_it_began() -> None:
    x, y = data(30)
    best = fit_gp(x, y, GPSettings(), np.random.default_rng(0))
    again = fit_gp(x, y, replace(GPSettings(), restarts=0), np.random.default_rng(0), start=best)
    assert log_marginal_likelihood(again, x, y)[0] >= log_marginal_likelihood(best, x, y)[0] - 1e-9


def test_wrong_settings_and_data_are_refused() -> None:
    with pytest.raises(ValueError, match="no kernel 'rbf'; available: se, matern32, matern52"):
        GPSettings(kernel="rbf")
    with pytest.raises(ValueError, match="need 0 < lower bound <= start <= upper bound"):
        FittedParameter(1.0, (2.0, 3.0))
    with pytest.raises(ValueError, match="must be finite"):
        fit_gp(np.zeros((1, 2)), np.array([np.inf]), GPSettings(), np.random.default_rng(0))


def case_of(seed: int) -> tuple[Array, Array, GPSettings]:
    """Points and values in 1 to 4 inputs, some of them noise alone, and settings of every kind."""
    rng = np.random.default_rng(seed)
    n, dim = 1 + seed % 30, 1 + seed % 4
    x = rng.random((n, dim))
    y = np.sin(5 * x[:, 0]) + x.sum(axis=1) + 0.1 * rng.standard_normal(n) if seed % 5 else rng.standard_normal(n)
    return x, y, replace((ROBUST, SMOOTH, GPSettings(), SCALED)[seed % 4], tolerance=EXACT)


@pytest.mark.long
def test_the_compiled_evidence_and_its_gradient_are_those_of_numpy() -> None:
    from fedbo.surrogates.compiled.evidence import evidence_of, negative_log_posterior, squares_of

    for seed in range(300):
        x, y, settings = case_of(seed)
        parameters = settings.parameters(x.shape[1])
        theta = np.random.default_rng(seed).normal(-1.0, 0.7, len(parameters))
        evidence = evidence_function(settings.kernel, x, y, ard=settings.ard)
        value, gradient = gp._with_priors(evidence, settings, x.shape[1])(theta)
        found, squares = np.empty(len(theta)), squares_of(np.ascontiguousarray(x.T))
        number, priors = FAMILIES[settings.kernel].number, gp._priors(settings, x.shape[1])
        ours = negative_log_posterior(evidence_of(number, squares, y, priors, priors, np.empty((0, 0))), theta, found)
        assert ours == pytest.approx(value, rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(found, gradient, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(gradient).max())))


@pytest.mark.parametrize("cases", [40, pytest.param(200, marks=pytest.mark.long)])
def test_the_compiled_fit_ends_where_l_bfgs_b_of_scipy_does(cases: int) -> None:
    exact = 0
    for seed in range(cases):
        x, y, settings = case_of(seed)
        dim = x.shape[1]
        found = fit_gp(x, y, settings, np.random.default_rng(seed))
        evidence = evidence_function(settings.kernel, x, (y - found.offset) / found.scale, ard=settings.ard)
        objective = gp._with_priors(evidence, settings, dim)
        expected = gp._best_climb(objective, *gp._starts(settings, dim, np.random.default_rng(seed), None), settings.iterations)
        theta = gp._pack(found, settings, dim)
        # Where the evidence is flat, rounding decides about the last steps.
        assert objective(theta)[0] == pytest.approx(objective(expected)[0], abs=1e-6)
        exact += bool(np.abs(theta - expected).max() < 1e-8)
    assert exact >= 0.85 * cases


def test_a_fit_to_what_has_no_cholesky_factor_is_refused() -> None:
    from fedbo.surrogates.compiled.fit import fit

    x, y = np.zeros((1, 3)), np.array([1.0, 2.0, 1e200])
    theta, wide, start = np.empty((1, 3)), np.array([[-700.0, 700.0]] * 3), np.array([[0.0, np.inf, 0.0]])
    assert not fit(0, x, y[None], np.empty((0, 0)), np.zeros((3, 3)), start, wide, (10, EXACT), theta, np.empty(0))


@pytest.mark.parametrize("dim", [1, 3, 10])
def test_length_scales_that_are_alike_have_the_prior_of_a_common_and_an_own_part(dim: int) -> None:
    """Differences of the log prior are those of the normal law with covariance tau^2 I + s^2 11', centred on m sqrt(d)."""
    settings, rng = SCALED, np.random.default_rng(dim)
    assert settings.length_scale.prior is not None
    median, tau = settings.length_scale.prior
    law = multivariate_normal(np.full(dim, np.log(median * np.sqrt(dim))), tau**2 * np.eye(dim) + settings.alike**2)
    objective = gp._with_priors(lambda theta: (0.0, np.zeros(len(theta))), settings, dim)
    parameters = settings.parameters(dim)
    rest = np.log([p.prior[0] for p in parameters[dim:] if p.prior])
    first, second = rng.normal(0.0, 2.0, (2, dim))
    apart = objective(np.concatenate([second, rest]))[0] - objective(np.concatenate([first, rest]))[0]
    assert apart == pytest.approx(float(law.logpdf(first) - law.logpdf(second)), rel=1e-9)


def test_with_as_many_points_the_scaled_prior_finds_as_much_in_ten_inputs_as_in_two() -> None:
    """A function that varies slowly along every axis: the fit does not take it for noise, nor for fine detail."""
    for dim in (2, 10):
        rng = np.random.default_rng(dim)
        x, far = rng.random((60, dim)), rng.random((400, dim))
        truth = np.sin(2.0 * x).sum(axis=1), np.sin(2.0 * far).sum(axis=1)
        posterior = condition(fit_gp(x, truth[0], SCALED, rng), x, truth[0])
        assert np.corrcoef(predict(posterior, far)[0], truth[1])[0, 1] > 0.95


def test_representatives_are_all_rows_where_there_are_few() -> None:
    x, y = np.random.default_rng(0).random((7, 2)), np.arange(7.0)
    np.testing.assert_array_equal(representatives(x, y, 7), np.arange(7))


@pytest.mark.parametrize(("n", "count"), [(8, 7), (100, 10), (101, 33), (1000, 256)])
def test_half_of_the_representatives_are_nearest_to_the_largest_value_and_the_others_spread(n: int, count: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.random((n, 3)), rng.standard_normal(n)
    rows = representatives(x, y, count)
    assert len(rows) == len(set(rows.tolist())) == count
    assert (np.diff(rows) > 0).all()
    near = np.argsort(((x - x[y.argmax()]) ** 2).sum(axis=1))[: count // 2]
    assert set(near.tolist()) <= set(rows.tolist())
    others = np.setdiff1d(np.arange(n), near)
    places = np.searchsorted(others, np.setdiff1d(rows, near))
    assert np.diff(places).max() <= (len(others) - 1) / (count - count // 2 - 1) + 1.0
    assert {0, len(others) - 1} <= set(places.tolist())


def test_a_fit_to_many_observations_is_one_to_those_that_stand_for_all() -> None:
    rng = np.random.default_rng(4)
    x = rng.random((400, 2))
    y = np.sin(5.0 * x[:, 0]) + x[:, 1] + 0.1 * rng.standard_normal(400)
    rows = representatives(x, y, FITTED)
    settings = replace(ROBUST, standardise=False)
    assert fit_gp(x, y, settings, np.random.default_rng(0)) == fit_gp(x[rows], y[rows], settings, np.random.default_rng(0))
    found = fit_gp(x, y, ROBUST, np.random.default_rng(0))
    assert 0.05 < found.scale * np.sqrt(found.noise_variance) < 0.2  # the noise, of which the choice of rows takes nothing away
    assert found.scale == pytest.approx(float(y.std()))


def test_the_mean_alone_is_that_of_the_prediction() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.random((30, 2)), rng.standard_normal(30)
    posterior = condition(Hyperparameters((0.2, 0.7), 1.3, 0.1, family="matern52", offset=0.4, scale=2.0), x, y)
    at = rng.random((50, 2))
    np.testing.assert_allclose(mean(posterior, at), predict(posterior, at)[0], rtol=1e-12)
