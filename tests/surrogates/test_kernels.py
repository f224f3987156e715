"""Kernels against scikit-learn and finite differences."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.gaussian_process.kernels import RBF
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from fedbo.surrogates.kernels import FAMILIES, SE, Kernel, Matern, make_kernel

Array = npt.NDArray[np.float64]
SCALES = (0.3, (0.2, 0.5, 0.9))
X = np.random.default_rng(0).random((12, 3))
Z = np.random.default_rng(1).random((7, 3))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", SCALES)
def test_kernels_agree_with_scikit_learn(family: str, scale: float) -> None:
    theirs = RBF(scale) if family == "se" else SklearnMatern(scale, nu=1.5 if family == "matern32" else 2.5)
    np.testing.assert_allclose(make_kernel(family, scale, 1.7)(X, Z), 1.7 * theirs(X, Z), rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", SCALES)
def test_gradients_with_respect_to_inputs_agree_with_differences(family: str, scale: float) -> None:
    kernel, step = make_kernel(family, scale, 1.7), 1e-6
    differences = [(kernel(X + e, Z) - kernel(X - e, Z)) / (2 * step) for e in step * np.eye(3)]
    np.testing.assert_allclose(kernel.gradient(X, Z), np.stack(differences, axis=2), atol=1e-8)


@pytest.mark.parametrize("kernel", [SE(), Matern(nu=1.5), Matern(nu=2.5)])
def test_slopes_are_the_derivatives_of_the_correlation(kernel: Kernel) -> None:
    u, step = np.linspace(0.05, 4.0, 30), 1e-5
    correlation, slope, bend = kernel.slopes(u)
    np.testing.assert_allclose(kernel(np.sqrt(u)[:, None], np.zeros((1, 1)))[:, 0], correlation, rtol=1e-12)
    high, low = kernel.slopes(u + step), kernel.slopes(u - step)
    np.testing.assert_allclose(slope, (high[0] - low[0]) / (2 * step), atol=1e-8)
    np.testing.assert_allclose(bend, (high[1] - low[1]) / (2 * step), atol=1e-7)


def test_an_unknown_family_is_refused_with_the_list_of_families() -> None:
    with pytest.raises(ValueError, match="no kernel 'rbf'; available: se, matern32, matern52"):
        make_kernel("rbf", 1.0, 1.0)
    with pytest.raises(ValueError, match="no Matern kernel with nu = 0.5"):
        Matern(nu=0.5)
