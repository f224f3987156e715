"""Attacks against closed forms: exact where algebra says so, nothing where it is impossible, on the known curve."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedbo.surrogates.features import draw_features, phi
from fedbo_leak.attacks.base import distance, summit
from fedbo_leak.attacks.identity import named
from fedbo_leak.attacks.membership import area, gaussian_power
from fedbo_leak.attacks.observations import invert, maxima
from fedbo_leak.measuring import interval
from fedbo_leak.readings import AtPoints, smooth

DIM, M = 2, 60
FEATURES = draw_features(np.random.default_rng(0), DIM, M, 0.2, "matern52")


def rows(x):  # type: ignore[no-untyped-def]
    return phi(FEATURES, x)


def sums(x):  # type: ignore[no-untyped-def]
    features = rows(x)
    return features.T @ features


@pytest.mark.parametrize("count", [1, 4, 12])
def test_points_follow_exactly_from_sums_of_fewer_than_m_observations(count: int) -> None:
    x = np.random.default_rng(count).random((count, DIM))
    found = invert(sums(x), rows, DIM)
    assert len(found) == count
    assert max(min(distance(one, other) for other in found) for one in x) < 1e-5


def test_values_follow_exactly_from_sums_and_moments() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random((6, DIM)), rng.standard_normal(6)
    found = invert(sums(x), rows, DIM)
    values = np.linalg.lstsq(rows(found).T, rows(x).T @ y, rcond=None)[0]
    nearest = [int(np.argmin([distance(one, other) for other in found])) for one in x]
    assert np.allclose(values[nearest], y, atol=1e-3)


@pytest.mark.parametrize("count", [M, 3 * M])
def test_from_sums_of_m_observations_no_point_follows(count: int) -> None:
    rough = draw_features(np.random.default_rng(0), DIM, M, 0.03, "matern32")
    features = phi(rough, np.random.default_rng(1).random((count, DIM)))
    assert len(invert(features.T @ features, lambda x: phi(rough, x), DIM)) == 0


def test_the_difference_of_two_sums_tells_what_is_new_for_any_number_of_observations() -> None:
    x = np.random.default_rng(2).random((2 * M + 1, DIM))
    found = invert(sums(x) - sums(x[:-1]), rows, DIM)
    assert len(found) == 1 and distance(found[0], x[-1]) < 1e-4


def test_on_a_lattice_only_its_points_are_found() -> None:
    lattice = np.stack(np.meshgrid(*[(np.arange(7) + 0.5) / 7] * 2), axis=-1).reshape(-1, 2)
    found = invert(sums(lattice[[3, 30]]), rows, DIM, lattice)
    assert {tuple(one) for one in found} == {tuple(one) for one in lattice[[3, 30]]}


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 3.0])
def test_membership_under_a_gaussian_mechanism_meets_its_own_curve(multiplier: float) -> None:
    """The sum of a unit vector or of nothing, and noise: the likelihood ratio attains the curve of the mechanism.

    Law: the share of 20,000 members that are found, binomial; seed 5; false alarms 1e-6 in each of 12 comparisons.
    """
    rng, count = np.random.default_rng(5), 20_000
    members, others = 1.0 + multiplier * rng.standard_normal(count), multiplier * rng.standard_normal(count)
    for alarms in (0.001, 0.01, 0.1, 0.5):
        power = float(gaussian_power(alarms, multiplier))
        threshold = multiplier * stats.norm.isf(alarms)
        low, high = stats.binom.ppf([5e-7, 1 - 5e-7], count, power)
        assert low <= np.sum(members > threshold) <= high
    expected = stats.norm.cdf(1.0 / multiplier / math.sqrt(2.0))  # P(N(1, z^2) > N(0, z^2))
    assert area(members, others) == pytest.approx(expected, abs=5 * 0.5 / math.sqrt(count))


def test_the_curve_is_that_of_epsilon_and_delta() -> None:
    """Any point of the curve is within what (epsilon, delta) of the mechanism allows, and one of them attains it."""
    z, epsilon = 1.3, 0.8
    delta = stats.norm.cdf(1 / (2 * z) - epsilon * z) - math.exp(epsilon) * stats.norm.cdf(-1 / (2 * z) - epsilon * z)
    alarms = np.linspace(1e-6, 1 - 1e-6, 20_001)
    left = math.exp(epsilon) * alarms + delta - gaussian_power(alarms, z)
    assert left.min() >= -1e-12 and left.min() < 1e-6


def test_members_that_nothing_tells_from_others_have_an_area_of_one_half() -> None:
    assert area(np.zeros(5), np.zeros(7)) == 0.5
    assert area(np.ones(5), np.zeros(7)) == 1.0


def test_a_summit_is_found_and_a_smooth_function_goes_through_its_numbers() -> None:
    centre = np.array([0.31, 0.77])
    assert distance(summit(lambda x: -((x - centre) ** 2).sum(axis=1), 2), centre) < 0.003
    points = np.random.default_rng(0).random((40, 2))
    numbers = np.sin(3 * points[:, 0]) + points[:, 1]
    assert np.allclose(smooth(AtPoints(points, numbers))(points), numbers, atol=1e-2)
    assert len(maxima(points, numbers, 3)) == 3


def test_the_nearest_description_names_the_sender_among_those_of_equal_length() -> None:
    known = [(0, np.zeros(3)), (1, np.ones(3)), (2, np.full(2, 0.9))]
    assert named(known, np.full(3, 0.8)) == 1
    assert named(known, np.zeros(5)) is None


def test_an_interval_over_runs_covers_the_mean() -> None:
    """Law: Student's t over 8 runs of 5 dependent agents; seed 0; 95 % of 400 within 5 standard errors of a binomial share."""
    rng, owners = np.random.default_rng(0), np.repeat(np.arange(8), 5)
    hits = 0
    for _ in range(400):
        values = rng.standard_normal(8)[owners] + 0.3 * rng.standard_normal(40)
        middle, half = interval(values, owners)
        hits += abs(middle) <= half
    assert abs(hits / 400 - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 400)
