"""Fronts and hypervolumes against brute force, inclusion and exclusion, and counting of random points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo.surrogates.fronts import hypervolume, hypervolumes, non_dominated


def _by_pairs(values: np.ndarray) -> np.ndarray:
    """Compare every point with every other."""
    found = []
    for row in values:
        with np.errstate(invalid="ignore"):
            above = (values >= row).all(axis=1) & (values > row).any(axis=1)
        found.append(not np.isnan(row).any() and not above.any())
    return np.array(found, dtype=bool)


def _by_inclusion_and_exclusion(values: np.ndarray, reference: np.ndarray) -> float:
    """Sum the volumes of the intersections of 1, 2, ... boxes with alternating signs."""
    total = 0.0
    for size in range(1, len(values) + 1):
        for chosen in itertools.combinations(values, size):
            total -= (-1) ** size * float(np.maximum(np.min(chosen, axis=0) - reference, 0.0).prod())
    return total


@given(st.integers(0, 30), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_a_front_is_what_no_pair_rules_out_with_ties_copies_and_missing_values(n: int, m: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, levels, (n, m)).astype(float)
    values[rng.random((n, m)) < 0.05] = np.nan
    np.testing.assert_array_equal(non_dominated(values), _by_pairs(values))


def test_all_copies_of_a_point_of_the_front_are_in_it_and_rows_with_nan_are_not() -> None:
    values = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 1.0], [2.0, 0.0], [np.nan, 9.0], [-0.0, 3.0], [0.0, 3.0]])
    assert non_dominated(values).tolist() == [True, True, False, True, False, True, True]
    assert non_dominated(np.empty((0, 3))).tolist() == []
    assert non_dominated(np.full((2, 2), np.nan)).tolist() == [False, False]


@pytest.mark.parametrize("m", [2, 3])
def test_a_complete_table_has_the_front_of_its_pairs(m: int) -> None:
    rng = np.random.default_rng(m)
    values = np.round(rng.standard_normal((60_000, m)), 3)
    front = values[non_dominated(values)]
    assert non_dominated(front).all()
    # Whatever is left out is dominated by some point of the front.
    others = values[~non_dominated(values)][::97]
    assert ((front[None] >= others[:, None]).all(axis=2) & (front[None] > others[:, None]).any(axis=2)).any(axis=1).all()


@given(st.integers(0, 7), st.integers(1, 4), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_a_hypervolume_is_the_sum_by_inclusion_and_exclusion(n: int, m: int, whole: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 5, (n, m)).astype(float) if whole else rng.standard_normal((n, m))
    reference = rng.integers(-1, 3, m).astype(float)
    expected = _by_inclusion_and_exclusion(values, reference)
    assert hypervolume(values, reference) == pytest.approx(expected, abs=1e-9)
    series = hypervolumes(values, reference)
    np.testing.assert_allclose(series, [hypervolume(values[: k + 1], reference) for k in range(n)], atol=1e-9)


@pytest.mark.parametrize("m", [3, *(pytest.param(m, marks=pytest.mark.long) for m in (2, 4))])
def test_a_hypervolume_is_the_share_of_random_points_that_are_dominated(m: int) -> None:
    """200,000 points, seeds 2 to 4; 5 standard deviations: a false alarm in less than 1 of 10^6 for each."""
    rng = np.random.default_rng(m)
    values, reference = rng.random((40, m)) ** 0.3, np.full(m, 0.1)
    points = reference + (1.0 - reference) * rng.random((200_000, m))
    below = np.zeros(len(points), dtype=bool)
    for value in values:
        below |= (points <= value).all(axis=1)
    box, share = float((1.0 - reference).prod()), below.mean()
    assert hypervolume(values, reference) == pytest.approx(
        box * share, abs=5 * box * np.sqrt(share * (1 - share) / len(points))
    )


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_a_series_of_hypervolumes_never_falls_and_ends_at_that_of_all(m: int) -> None:
    rng = np.random.default_rng(10 + m)
    values = rng.standard_normal((60, m))
    values[7] = np.nan
    series = hypervolumes(values, np.full(m, -1.0))
    assert (np.diff(series) >= 0).all()
    assert series[-1] == pytest.approx(hypervolume(values, np.full(m, -1.0)), rel=1e-12)
    assert series[7] == series[6]


def test_what_is_not_above_the_reference_adds_nothing() -> None:
    assert hypervolume(np.array([[1.0, 0.0], [0.0, 1.0], [np.nan, 2.0]]), np.zeros(2)) == 0.0
    assert hypervolume(np.empty((0, 2)), np.zeros(2)) == 0.0
    assert hypervolumes(np.array([[np.nan, 1.0], [1.0, 1.0]]), np.zeros(2)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("shape", "reference"), [((3, 5), [0] * 5), ((3, 2), [0]), ((3, 2), [0, np.inf]), ((3, 0), [])])
def test_other_numbers_of_objectives_are_refused(shape: tuple[int, int], reference: list[float]) -> None:
    with pytest.raises(ValueError, match="1 <= m <= 4"):
        hypervolume(np.ones(shape), np.array(reference, dtype=float))
