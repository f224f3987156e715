"""Function draws: their derivatives, and their law against the exact posterior."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from reference_derivatives import derivatives as draw_derivatives
from scipy.stats import chi2

from fedbo.surrogates.draws import (
    Draw,
    KernelPart,
    WeightSpace,
    message_function,
    pathwise_draw,
    value,
    value_and_gradient,
    weight_space_draw,
)
from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.gp import Hyperparameters, Posterior, condition, covariance, predict
from fedbo.surrogates.kernels import FAMILIES

Array = npt.NDArray[np.float64]


def posterior_of(family: str = "se", n: int = 12) -> Posterior:
    x = np.random.default_rng(0).random((n, 2))
    y = np.sin(6.0 * x[:, 0]) + x[:, 1]
    return condition(Hyperparameters((0.3, 0.5), 1.3, 0.02, family, 0.4, 1.5), x, y)


def draws_of(family: str) -> dict[str, Draw]:
    posterior, rng = posterior_of(family), np.random.default_rng(1)
    return {
        "weight space": weight_space_draw(posterior.hyper, posterior.x, posterior.y, rng),
        "pathwise": pathwise_draw(posterior, rng),
        "kernel": Draw(kernel_part=KernelPart(posterior.hyper.kernel, posterior.x, posterior.alpha), offset=0.4, scale=1.5),
        "message": message_function(draw_features(rng, 2, 50, 0.3), rng.standard_normal(50)),
    }


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["weight space", "pathwise", "kernel", "message"])
def test_gradients_and_hessians_agree_with_differences(family: str, kind: str) -> None:
    draw, x, step = draws_of(family)[kind], np.random.default_rng(2).random((6, 2)), 1e-6
    at_x, gradient, hessian = draw_derivatives(draw)(x)
    np.testing.assert_allclose(at_x, value(draw, x), atol=1e-11)
    for j, e in enumerate(step * np.eye(2)):
        high, low = (draw_derivatives(draw)(x + sign * e) for sign in (1, -1))
        np.testing.assert_allclose(gradient[:, j], (high[0] - low[0]) / (2 * step), atol=1e-5)
        np.testing.assert_allclose(hessian[:, j], (high[1] - low[1]) / (2 * step), atol=1e-3)
    np.testing.assert_allclose(value_and_gradient(draw, x)[1], gradient, atol=1e-11)


def whitened(samples: Array, mean: Array, spread: Array) -> Array:
    return np.asarray(np.linalg.solve(np.linalg.cholesky(spread), (samples - mean).T))


@pytest.mark.parametrize("beta", [pytest.param(1.0, marks=pytest.mark.long), 2.0])
def test_pathwise_draws_have_the_exact_posterior_covariance(beta: float) -> None:
    # Law: with fresh unnormalised features every draw has exactly the posterior mean and beta^2 times its covariance
    # (it is not quite Gaussian). 4,000 draws, seed 5: entries of the whitened covariance have standard error below
    # 0.03 and of the mean 0.016; the bounds are 5 of them for 6 + 36 numbers, a false-alarm rate below 1e-4.
    posterior, rng = posterior_of(), np.random.default_rng(5)
    x = np.random.default_rng(6).random((6, 2))
    samples = np.array([value(pathwise_draw(posterior, rng, 100, beta), x) for _ in range(4000)])
    white = whitened(samples, predict(posterior, x)[0], beta**2 * covariance(posterior, x))
    assert np.abs(white.mean(axis=1)).max() < 0.08
    np.testing.assert_allclose(white @ white.T / 4000, np.eye(6), atol=0.15)


def test_weight_space_draws_have_the_law_of_the_model_on_their_own_features() -> None:
    # Law: given its features, a draw at 3 points is N(mu, beta^2 sigma^2) of FTS (6) and (7), hence chi-squared with
    # 3 degrees of freedom; 2,000 fresh draws, seed 7, their sum is chi-squared with 6,000: two-sided false-alarm rate
    # 2e-5.
    posterior, rng, beta = posterior_of(), np.random.default_rng(7), 1.5
    hyper, x = posterior.hyper, np.random.default_rng(8).random((3, 2))
    total = 0.0
    for _ in range(2000):
        draw = weight_space_draw(hyper, posterior.x, posterior.y, rng, WeightSpace(40, beta))
        assert draw.features is not None
        rows, other = phi(draw.features, posterior.x), phi(draw.features, x)
        gram = rows @ rows.T + hyper.noise_variance * np.eye(len(rows))
        cross = np.linalg.solve(gram, rows @ other.T).T
        mean = hyper.offset + cross @ (posterior.y - hyper.offset)
        spread = (hyper.scale * beta) ** 2 * (other @ other.T - cross @ rows @ other.T)
        total += float((whitened(value(draw, x)[None], mean, spread) ** 2).sum())
    assert 1e-5 < chi2.cdf(total, 6000) < 1 - 1e-5


def test_without_observations_draws_come_from_the_prior() -> None:
    empty = condition(Hyperparameters(0.3, 2.0, 0.1), np.empty((0, 2)), np.empty(0))
    x = np.random.default_rng(0).random((5, 2))
    drawn = pathwise_draw(empty, np.random.default_rng(1))
    assert drawn.kernel_part is None and np.isfinite(value(drawn, x)).all()
    again = weight_space_draw(empty.hyper, empty.x, empty.y, np.random.default_rng(1))
    assert np.isfinite(value(again, x)).all()
