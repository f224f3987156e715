"""The trust region of a search: its side by hand, its box, and draws within it."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.surrogates.draws import posterior_draw, value
from fedbo.surrogates.gp import Hyperparameters
from fedbo.surrogates.trust_region import FIRST, LONGEST, SHORTEST, box, side, within


def test_the_side_grows_with_three_successes_and_shrinks_with_as_many_failures_as_inputs() -> None:
    assert side(np.array([0.0, 1.0]), 5) == FIRST
    assert side(np.array([0.0, 1.0, 2.0]), 5) == LONGEST == 2 * FIRST
    assert side(np.array([2.0, 1.0, 0.0, 1.0, 0.5]), 5) == FIRST
    assert side(np.array([2.0, 1.0, 0.0, 1.0, 0.5, 0.1]), 5) == FIRST / 2
    assert side(np.array([2.0, 1.0, 0.0, 1.0, 0.5, 0.1]), 2) == FIRST / 2  # after four failures at least


def test_a_region_that_became_too_small_begins_anew() -> None:
    shrunk = [side(np.concatenate([[1.0], np.zeros(4 * halvings)]), 2) for halvings in range(9)]
    assert shrunk[:7] == [FIRST * 0.5**k for k in range(7)]
    assert min(shrunk) >= SHORTEST
    assert FIRST in shrunk[7:]


def test_the_side_is_a_function_of_values_whatever_their_units() -> None:
    y = np.random.default_rng(0).standard_normal(40)
    assert side(y, 6) == side(1e6 * y + 3.0, 6)


def test_the_box_is_longer_along_inputs_of_long_scale_and_stays_in_the_cube() -> None:
    low, high = box(np.full(3, 0.5), 0.1, (1.0, 2.0, 4.0))
    np.testing.assert_allclose(high - low, [0.05, 0.1, 0.2])
    low, high = box(np.array([0.0, 1.0]), 0.5, 0.3)
    assert (low == [0.0, 0.75]).all() and (high == [0.25, 1.0]).all()


@pytest.mark.parametrize("family", ["se", "matern32", "matern52"])
def test_a_draw_within_a_box_is_that_draw_there(family: str) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.random((12, 4)), rng.standard_normal(12)
    draw = posterior_draw(Hyperparameters((0.3, 0.5, 1.0, 0.2), 1.2, 1e-3, family, 0.4, 2.0), x, y, rng)
    low, high = np.array([0.1, 0.0, 0.4, 0.2]), np.array([0.3, 1.0, 0.5, 0.9])
    v = rng.random((20, 4))
    np.testing.assert_allclose(value(within(draw, low, high), v), value(draw, low + (high - low) * v), rtol=1e-9, atol=1e-9)
