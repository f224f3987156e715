"""One process over all agents: against dense formulas and against one process alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2, multivariate_normal

from fedbo.algorithms.collaborative.pooled import Observed, evidence, multitask_draw, multitask_posterior
from fedbo.surrogates.acquisition import Criterion, criterion_values, maximise_criterion
from fedbo.surrogates.draws import value
from fedbo.surrogates.gp import ROBUST, fit_gp, fit_shared_gp, log_marginal_likelihood
from fedbo.surrogates.gp_settings import EXACT
from fedbo.surrogates.posterior import Hyperparameters, predict

HYPER = Hyperparameters((0.3, 0.5), 1.3, 0.05, "matern52")


def observed() -> Observed:
    rng = np.random.default_rng(1)
    return Observed(rng.random((12, 2)), rng.standard_normal(12), np.repeat([0, 1, 4], 4))


def dense(rho: float, seen: Observed, x: np.ndarray, task: np.ndarray) -> np.ndarray:
    same = np.equal.outer(seen.task, task)
    return np.asarray(HYPER.kernel(seen.x, x) * (rho + (1.0 - rho) * same))


@pytest.mark.parametrize("rho", [0.0, 0.6, 1.0])
def test_the_evidence_is_the_density_of_the_values(rho: float) -> None:
    seen = observed()
    covariance = dense(rho, seen, seen.x, seen.task) + HYPER.noise_variance * np.eye(12)
    assert evidence(HYPER, rho, seen) == pytest.approx(multivariate_normal.logpdf(seen.y, cov=covariance), rel=1e-9)


def test_agents_that_are_not_alike_are_so_many_processes() -> None:
    seen = observed()
    alone = [log_marginal_likelihood(HYPER, seen.x[seen.task == n], seen.y[seen.task == n])[0] for n in (0, 1, 4)]
    assert evidence(HYPER, 0.0, seen) == pytest.approx(sum(alone), rel=1e-9)


@pytest.mark.parametrize("target", [pytest.param(1, marks=pytest.mark.long), 2])
def test_draws_have_the_mean_and_covariance_of_the_posterior(target: int) -> None:
    """For an agent with observations and one without; Hotelling's statistic over 600 draws, false alarms below 1e-6; seed 2.

    The prior part of a draw has 1,500 features, so that their error is far below that of the sample.
    """
    seen, rho = observed(), 0.6
    x = np.array([[0.2, 0.3], [0.8, 0.9]])
    cross = dense(rho, seen, x, np.full(2, target))
    covariance = dense(rho, seen, seen.x, seen.task) + HYPER.noise_variance * np.eye(12)
    expected = cross.T @ np.linalg.solve(covariance, seen.y)
    left = HYPER.kernel(x, x) - cross.T @ np.linalg.solve(covariance, cross)
    rng = np.random.default_rng(2)
    draws = np.array([value(multitask_draw(HYPER, rho, seen, target, rng, 1500), x) for _ in range(600)])
    off = draws.mean(axis=0) - expected
    assert 600 * off @ np.linalg.solve(left, off) < chi2.isf(1e-6, 2)
    np.testing.assert_allclose(np.cov(draws.T), left, atol=0.2 * left.max())


def test_hyperparameters_shared_by_one_process_are_its_own() -> None:
    rng = np.random.default_rng(3)
    x = rng.random((15, 2))
    y = np.sin(4.0 * x[:, 0])
    y = (y - y.mean()) / y.std()
    shared = fit_shared_gp([(x, y)], ROBUST, np.random.default_rng(0))
    own = fit_gp(x, y, replace(ROBUST, tolerance=EXACT), np.random.default_rng(0))
    np.testing.assert_allclose(shared.length_scale, own.length_scale, rtol=1e-6)
    assert shared.noise_variance == pytest.approx(own.noise_variance, rel=1e-6)


def test_hyperparameters_of_several_processes_are_a_maximum_of_the_sum() -> None:
    rng = np.random.default_rng(4)
    tables = []
    for agent in range(3):
        x = rng.random((12, 1))
        tables.append((x, np.sin(6.0 * x[:, 0] + agent) + 0.1 * rng.standard_normal(12)))
    free = ROBUST
    found = fit_shared_gp(tables, free, np.random.default_rng(0))

    def total(length_scale: float) -> float:
        hyper = Hyperparameters((length_scale,), found.variance, found.noise_variance, "matern52")
        prior = -0.5 * (np.log(length_scale / 0.3) / 0.7) ** 2
        return float(sum(log_marginal_likelihood(hyper, x, y)[0] for x, y in tables) + prior)

    (best,) = np.atleast_1d(found.length_scale)
    assert total(best) >= max(total(best * 1.02), total(best / 1.02))


@pytest.mark.parametrize("rho", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("target", [1, 2])
def test_the_posterior_of_an_agent_has_the_moments_of_dense_algebra(rho: float, target: int) -> None:
    """For an agent with observations and one without, also where the compiled search sees the process."""
    seen, x = observed(), np.random.default_rng(3).random((5, 2))
    cross = dense(rho, seen, x, np.full(5, target))
    covariance = dense(rho, seen, seen.x, seen.task) + HYPER.noise_variance * np.eye(12)
    posterior = multitask_posterior(HYPER, rho, seen, target)
    mean, variance = predict(posterior, x)
    np.testing.assert_allclose(mean, cross.T @ np.linalg.solve(covariance, seen.y), rtol=1e-8, atol=1e-10)
    left = HYPER.variance - np.einsum("in,in->n", cross, np.linalg.solve(covariance, cross))
    np.testing.assert_allclose(variance, left, rtol=1e-8)
    if len(posterior.x):
        u, found = maximise_criterion(posterior, Criterion(float(mean.max())), np.random.default_rng(0))
        values = criterion_values(posterior, Criterion(float(mean.max())), np.vstack([u[None], x]))
        assert found == pytest.approx(values[0], rel=1e-6)
        assert found >= values.max() - 1e-9
