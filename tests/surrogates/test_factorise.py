"""The factorisation that all surrogates share: no jitter where none is needed, enough where it helps, else an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import lapack

from fedbo.algorithms.bandits.neural import ridge
from fedbo.algorithms.collaborative.pooled import Observed, evidence, multitask_draw
from fedbo.surrogates.draws import pathwise_draw, value, weight_space_draw
from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.gp import ROBUST, GPSettings, Hyperparameters, condition, covariance, fit_gp, predict
from fedbo.surrogates.gp_settings import SMOOTH
from fedbo.surrogates.kernels import FAMILIES
from fedbo.surrogates.linear import draw_weights
from fedbo.surrogates.posterior import NotPositiveDefinite, factorise, log_marginal_likelihood

Array = npt.NDArray[np.float64]
RNG = np.random.default_rng(0)
POINTS: dict[str, Array] = {
    "one": RNG.random((1, 2)),
    "spread": RNG.random((30, 2)),
    "repeated": np.repeat(RNG.random((3, 2)), 20, axis=0),
    "all but repeated": RNG.random(2) + 1e-9 * RNG.standard_normal((60, 2)),
    "close": RNG.random(2) + 1e-5 * RNG.standard_normal((60, 2)),
}
VALUES: dict[str, Callable[[Array], Array]] = {
    "large": lambda x: 1e12 * (1.0 + np.sin(6.0 * x[:, 0])),
    "small": lambda x: 1e-12 * np.sin(6.0 * x[:, 0]),
    "constant": lambda x: np.full(len(x), 3.0),
    "zero": lambda x: np.zeros(len(x)),
}
points = pytest.mark.parametrize("x", POINTS.values(), ids=POINTS)


def used(hyper: Hyperparameters, x: Array, y: Array) -> None:
    """Make all that is made of a Gaussian process; every number must be finite."""
    posterior = condition(hyper, x, y)
    assert np.isfinite(predict(posterior, x)).all()
    assert np.isfinite(covariance(posterior, x)).all()
    assert np.isfinite(value(pathwise_draw(posterior, np.random.default_rng(1)), x)).all()
    assert np.isfinite(value(weight_space_draw(hyper, x, y, np.random.default_rng(1)), x)).all()
    density, gradient = log_marginal_likelihood(hyper, x, y)
    assert np.isfinite(density) and np.isfinite(gradient).all()


@points
@pytest.mark.parametrize("y", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("fitted", [ROBUST, SMOOTH, replace(GPSettings(), restarts=2)], ids=["robust", "smooth", "faithful"])
def test_whatever_was_observed_a_fit_ends_in_a_surrogate_that_can_be_used(
    fitted: GPSettings, y: Callable[[Array], Array], x: Array
) -> None:
    used(fit_gp(x, y(x), fitted, np.random.default_rng(2)), x, y(x))


@points
@given(
    length=st.floats(-5.0, 5.0),
    variance=st.floats(-8.0, 5.0),
    noise=st.floats(-18.0, 0.0),
    family=st.sampled_from(list(FAMILIES)),
)
@settings(max_examples=25, derandomize=True)
def test_any_hyperparameters_within_the_bounds_can_be_used(
    x: Array, length: float, variance: float, noise: float, family: str
) -> None:
    """Given are the logarithms to base 10; down to noise 1e-18, far below all bounds, and length scales of 1e5 box widths."""
    used(Hyperparameters(10.0**length, 10.0**variance, 10.0**noise, family), x, np.sin(6.0 * x[:, 0]))


@points
@pytest.mark.parametrize("noise", [1e-2, 1e-6, 1e-10])
@pytest.mark.parametrize("pulls", [1, 50])
def test_weights_are_drawn_at_points_that_were_seen_often(pulls: int, noise: float, x: Array) -> None:
    features = draw_features(np.random.default_rng(0), 2, 100, 0.2)
    rows, y = phi(features, np.repeat(x, pulls, axis=0)), np.repeat(np.sin(6.0 * x[:, 0]), pulls)
    assert np.isfinite(draw_weights(rows, y, noise, np.random.default_rng(0))).all()


@points
@pytest.mark.parametrize("rho", [0.0, 0.9, 1.0])
def test_agents_that_saw_the_same_points_share_a_process(rho: float, x: Array) -> None:
    hyper, seen = Hyperparameters(1e3, 1.0, 1e-12), Observed(np.tile(x, (2, 1)), np.ones(2 * len(x)), np.arange(2 * len(x)) % 2)
    assert np.isfinite(evidence(hyper, rho, seen))
    assert np.isfinite(value(multitask_draw(hyper, rho, seen, 0, np.random.default_rng(0)), x)).all()


@given(n=st.integers(1, 12), seed=st.integers(0, 1000), level=st.floats(-12.0, 12.0))
@settings(max_examples=60, derandomize=True)
def test_a_healthy_matrix_has_the_factor_of_lapack_to_the_bit_and_no_jitter(n: int, seed: int, level: float) -> None:
    root = np.random.default_rng(seed).standard_normal((n, n))
    matrix = 10.0**level * (root @ root.T + np.eye(n))
    for scale in (0.0, 1e3 * 10.0**level):
        factor, jitter = factorise(matrix, scale)
        assert jitter == 0.0 and np.tril(factor).tobytes() == np.tril(lapack.dpotrf(matrix, lower=1)[0]).tobytes()


def test_the_jitter_is_the_least_of_the_ladder_that_helps_and_the_same_every_time() -> None:
    matrix = np.ones((5, 5)) - 3e-9 * np.eye(5)
    _, jitter = factorise(matrix)
    assert jitter == pytest.approx(1e-8) and factorise(matrix)[1] == jitter
    assert factorise(1e-6 * matrix, 1.0)[1] == pytest.approx(1e-14), "relative to the smaller size first"
    assert factorise(1e-6 * np.ones((5, 5)) - 5e-9 * np.eye(5), 1.0)[1] == pytest.approx(1e-8), "then to the larger"


@pytest.mark.parametrize("matrix", [np.array([[1.0, 2.0], [2.0, 1.0]]), -np.eye(3), np.zeros((2, 2))])
def test_what_is_no_covariance_is_refused_and_not_made_one(matrix: Array) -> None:
    with pytest.raises(
        NotPositiveDefinite, match=r"no Cholesky factor of \(\d, \d\) with jitter up to 1e-06 of the mean diagonal"
    ):
        factorise(matrix)


def test_the_inverse_of_a_precision_matrix_takes_what_jitter_it_needs() -> None:
    rows = np.repeat(np.random.default_rng(0).standard_normal((2, 6)), 50, axis=0)
    found = ridge(rows.T @ rows, 1e-15)
    assert np.isfinite(found.inverse).all()
    with pytest.raises(NotPositiveDefinite, match="no Cholesky factor"):
        ridge(-np.eye(3), 0.5)
