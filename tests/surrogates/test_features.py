"""Random Fourier features against the kernels they approximate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from reference_derivatives import feature_derivatives

from fedbo.surrogates.features import (
    Features,
    draw_features,
    phi,
)
from fedbo.surrogates.kernels import FAMILIES, make_kernel

Array = npt.NDArray[np.float64]


def features_of(normalise: bool, dim: int = 3, kernel: str = "se") -> Features:
    return draw_features(np.random.default_rng(3), dim, 60, 0.4, kernel, variance=1.6, normalise=normalise)


def test_features_are_those_of_appendix_a() -> None:
    features = draw_features(np.random.default_rng(5), 2, 50, 0.1, normalise=False)
    rng = np.random.default_rng(5)
    s, b = rng.standard_normal((50, 2)) / 0.1, rng.uniform(0.0, 2.0 * np.pi, 50)
    x = np.random.default_rng(6).random((9, 2))
    expected = np.sqrt(2.0 / 50) * np.cos(x @ s.T + b)
    np.testing.assert_allclose(phi(features, x), expected, atol=1e-13)
    normalised = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(phi(features._replace(normalise=True), x), normalised, atol=1e-13)


def test_normalised_features_have_the_norm_sigma_0_everywhere() -> None:
    rows = phi(features_of(True), np.random.default_rng(0).random((100, 3)))
    np.testing.assert_allclose((rows**2).sum(axis=1), 1.6, rtol=1e-13)


def test_another_length_scale_gives_the_same_features_rescaled() -> None:
    for kernel in FAMILIES:
        near = draw_features(np.random.default_rng(1), 2, 30, 0.1, kernel)
        far = draw_features(np.random.default_rng(1), 2, 30, (0.2, 0.4), kernel)
        np.testing.assert_allclose(near.frequencies * 0.1, far.frequencies * (0.2, 0.4), rtol=1e-14)
        np.testing.assert_array_equal(near.phases, far.phases)


@pytest.mark.parametrize("kernel", FAMILIES)
def test_the_kernel_error_shrinks_like_one_over_the_root_of_m(kernel: str) -> None:
    # Law: the mean squared error of one entry is at most 1.5 variance^2 / m, exactly proportional to 1 / m. 60
    # feature sets of seed 2: the ratio of root mean square errors at m and 16 m is 4; the band is 4.5 standard errors
    # (below 1e-5).
    x = np.random.default_rng(0).random((15, 2))
    exact, errors = make_kernel(kernel, 0.3, 1.0)(x, x), {}
    rng = np.random.default_rng(2)
    for m in (64, 1024):
        sets = [draw_features(rng, 2, m, 0.3, kernel, normalise=False) for _ in range(60)]
        errors[m] = np.sqrt(np.mean([(phi(f, x) @ phi(f, x).T - exact) ** 2 for f in sets]))
    assert errors[64] < np.sqrt(1.5 / 64)
    assert 3.2 < errors[64] / errors[1024] < 5.0


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_gradients_and_hessians_agree_with_differences(normalise: bool, dim: int) -> None:
    features, rng = features_of(normalise, dim), np.random.default_rng(4)
    omega, x, step = rng.standard_normal(60), rng.random((8, dim)), 1e-5
    value, gradient, hessian = feature_derivatives(features, omega)(x)
    np.testing.assert_allclose(value, phi(features, x) @ omega, atol=1e-12)
    pairs = [(x + e, x - e) for e in step * np.eye(dim)]
    by_value = [(phi(features, a) @ omega - phi(features, b) @ omega) / (2 * step) for a, b in pairs]
    slope = feature_derivatives(features, omega)
    by_gradient = [(slope(a)[1] - slope(b)[1]) / (2 * step) for a, b in pairs]
    np.testing.assert_allclose(gradient, np.stack(by_value, axis=1), atol=1e-7)
    np.testing.assert_allclose(hessian, np.stack(by_gradient, axis=1), atol=1e-6)


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="no features for kernel 'rbf'; available: se, matern32, matern52"):
        draw_features(np.random.default_rng(0), 2, 10, 0.1, "rbf")
