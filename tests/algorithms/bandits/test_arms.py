"""A Gaussian process on arms against a dense solve over the raw history, and its draws against their law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from fedbo.algorithms.bandits.arms import (
    KERNELS,
    ArmPosterior,
    correlations,
    deviations,
    draw,
    draw_independent,
    grid,
    nearest,
    observe,
    prior,
)


def _played(kernel: str, length_scale: float, count: int, n: int, noise: float) -> tuple[ArmPosterior, np.ndarray, np.ndarray]:
    """Prediction after n values of arms, few of them played often, with the history."""
    rng = np.random.default_rng(3)
    arms, values = (count * rng.random(n) ** 3).astype(int), rng.normal(0.5, 0.5, n)
    posterior = prior(kernel, length_scale, 1, count)
    for arm, value in zip(arms, values, strict=True):
        posterior = observe(posterior, int(arm), float(value), noise)
    return posterior, arms, values


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("noise", [1.01, 1e-3])
def test_the_belief_is_that_of_a_dense_solve_over_the_raw_history(kernel: str, noise: float) -> None:
    posterior, arms, values = _played(kernel, 0.3, 40, 600, noise)
    covariance = correlations(kernel, 0.3, grid(1, 40))
    gram = covariance[np.ix_(arms, arms)] + noise * np.eye(len(arms))
    cross = covariance[:, arms]
    np.testing.assert_allclose(posterior.mean, cross @ np.linalg.solve(gram, values), atol=1e-10)
    np.testing.assert_allclose(
        posterior.root.T @ posterior.root, covariance - cross @ np.linalg.solve(gram, cross.T), atol=1e-11
    )
    np.testing.assert_allclose(posterior.gain, 0.5 * np.linalg.slogdet(gram / noise)[1], rtol=1e-10)


def test_the_root_does_not_drift_over_ten_thousand_values() -> None:
    posterior, arms, values = _played("matern52", 0.2, 30, 10_000, 1.0002)
    covariance = correlations("matern52", 0.2, grid(1, 30))
    times, total = np.bincount(arms, minlength=30), np.bincount(arms, values, minlength=30)
    # The same posterior in the other form: precision K^-1 + diag(n) / lambda.
    exact = np.linalg.inv(np.linalg.inv(covariance) + np.diag(times / 1.0002))
    np.testing.assert_allclose(posterior.root.T @ posterior.root, exact, atol=1e-11)
    np.testing.assert_allclose(posterior.mean, exact @ (total / 1.0002), atol=1e-9)


def test_joint_draws_have_the_covariance_of_the_posterior_and_apart_only_its_diagonal() -> None:
    """With S draws, S times a variance's ratio is chi-square with S degrees of freedom; false alarms 1e-6 for each of them."""
    posterior, scale, draws = _played("se", 0.3, 12, 20, 0.5)[0], 1.7, 4000
    exact = scale**2 * posterior.root.T @ posterior.root
    low, high = chi2.ppf([5e-7, 1 - 5e-7], draws) / draws
    for sample, together in ((draw, True), (draw_independent, False)):
        rng = np.random.default_rng(0)
        values = np.array([sample(posterior, rng, scale) for _ in range(draws)]) - posterior.mean
        for direction in np.vstack([np.eye(12), np.ones(12), np.diff(np.eye(12), axis=0)]):
            wanted = direction @ (exact if together else np.diag(exact.diagonal())) @ direction
            assert low < np.mean((values @ direction) ** 2) / wanted < high
    np.testing.assert_allclose(deviations(posterior), np.sqrt(exact.diagonal()) / scale)


@pytest.mark.parametrize(
    ("dim", "count", "shape"),
    [
        (1, 10, (10,)),
        (2, 10, (3, 3)),
        (2, 50, (7, 7)),
        (2, 100, (10, 10)),
        (3, 50, (4, 4, 3)),
        (5, 100, (3, 3, 3, 2, 2)),
        (4, 1, (1,) * 4),
    ],
)
def test_a_grid_has_midpoints_and_as_nearly_so_many_as_asked(dim: int, count: int, shape: tuple[int, ...]) -> None:
    arms = grid(dim, count)
    assert tuple(len(np.unique(arms[:, axis])) for axis in range(dim)) == shape
    assert len(arms) == np.prod(shape) == len(np.unique(arms, axis=0))
    for axis, size in enumerate(shape):
        np.testing.assert_allclose(np.unique(arms[:, axis]), (np.arange(size) + 0.5) / size)
    np.testing.assert_array_equal(nearest(arms, arms), np.arange(len(arms)))
