"""Power transforms of values against finite differences and densities written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedbo.surrogates.gp import POWERS, SCALED, CoordinateTrials, fit_gp, fit_warped, warp
from fedbo.surrogates.gp_settings import EXACT


def values(seed: int, n: int = 12) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(0.0, 2.0, n))


@pytest.mark.parametrize("power", POWERS)
def test_transforms_keep_the_order_and_depend_on_units_in_nothing(power: float) -> None:
    y = values(0)
    assert (np.argsort(warp(y, power)) == np.argsort(y)).all()
    np.testing.assert_allclose(warp(3.0 + 7.0 * y, power), warp(y, power), rtol=1e-9, atol=1e-9)


def test_power_1_changes_units_only() -> None:
    y = values(1)
    assert np.corrcoef(warp(y, 1.0), y)[0, 1] == pytest.approx(1.0, abs=1e-12)


def test_equal_values_and_a_single_one_stay_finite() -> None:
    for y in (np.zeros(5), np.array([3.0]), np.array([1.0, 1.0, 1.0, 0.0])):
        for power in POWERS:
            assert np.isfinite(warp(y, power)).all()


def test_the_likeliest_transform_is_that_with_the_largest_density_of_the_values_as_they_are() -> None:
    """The density of y is that of the transformed values by the joint normal law, times the derivative from differences."""
    settings = replace(SCALED, tolerance=EXACT)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.random((15, 2))
        y = -np.exp(2.0 * np.sin(4.0 * x[:, 0]) + x[:, 1] + 0.01 * rng.standard_normal(15))
        densities = []
        for power in POWERS:
            t = warp(y, power)
            hyper = fit_gp(x, t, settings, rng)
            covariance = hyper.scale**2 * (hyper.kernel(x, x) + hyper.noise_variance * np.eye(15))
            middle = float(np.median(y.max() - y))

            def at(v: float, power: float = power, middle: float = middle, top: float = float(y.max())) -> float:
                q = 1.0 + (top - v) / middle
                return float(-np.log(q) if power == 0.0 else (1.0 - q**power) / power)

            slopes = [(at(v + 1e-6) - at(v - 1e-6)) / 2e-6 for v in y]
            law = multivariate_normal(np.full(15, hyper.offset), covariance)
            densities.append(float(law.logpdf(t)) + float(np.log(slopes).sum()))
        found = fit_warped(x, y, settings, (rng, None))
        assert found.power == POWERS[int(np.argmax(densities))]
        assert found.density == pytest.approx(max(densities), abs=1e-4)
        alone = fit_gp(x, warp(y, found.power), settings, rng)  # its climbs begin elsewhere, and end near those
        np.testing.assert_allclose(found.hyper.length_scale, alone.length_scale, rtol=0.01)


def test_values_of_an_exponential_are_taken_by_their_logarithms() -> None:
    rng = np.random.default_rng(3)
    x = rng.random((40, 2))
    smooth = np.sin(3.0 * x[:, 0]) + x[:, 1]
    assert fit_warped(x, -np.exp(-4.0 * smooth), SCALED, (rng, None)).power <= 0.0
    assert fit_warped(x, smooth, SCALED, (rng, None)).power >= 0.5


def test_a_start_changes_where_the_climbs_begin_alone() -> None:
    rng = np.random.default_rng(4)
    x = rng.random((20, 3))
    y = np.cos(4.0 * x).sum(axis=1)
    first = fit_warped(x, y, SCALED, (rng, None))
    again = fit_warped(x, y, SCALED, (rng, first.hyper))
    assert again.power == first.power
    np.testing.assert_allclose(np.log(again.hyper.length_scale), np.log(first.hyper.length_scale), atol=1e-2)


@pytest.mark.parametrize("cost", [10.0, 1e3])
def test_an_input_keeps_the_coordinates_in_which_the_values_are_likelier_by_more_than_the_cost(cost: float) -> None:
    """The values are smooth in the square of the first input and in the second input as it is."""
    rng = np.random.default_rng(5)
    u = np.linspace(0.0, 1.0, 30)[rng.permutation(30)]
    x = np.column_stack([u**0.25, rng.random(30)])
    y = np.sin(9.0 * x[:, 0] ** 4) + x[:, 1]
    trials = CoordinateTrials(np.array([x, x**4]), np.zeros(2, np.int64), np.arange(2), 0, cost)
    first, found = fit_warped(x, y, SCALED, (rng, None)), fit_warped(x, y, SCALED, (rng, None), trials=trials)
    assert trials.kinds.tolist() == ([1, 0] if cost == 10.0 else [0, 0])
    assert (found.density > first.density + cost) == (cost == 10.0)
    seen = np.column_stack([x[:, 0] ** 4, x[:, 1]]) if cost == 10.0 else x
    alone = fit_warped(seen, y, SCALED, (rng, found.hyper), (found.power,))
    assert found.density == pytest.approx(alone.density, abs=0.1)
