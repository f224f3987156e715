"""The box of native units and the unit cube."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbo.objectives.base import Parameter
from fedbo.objectives.space import from_unit, inside, to_unit

LINEAR, LOG = Parameter("rate", 1e-4, 10.0), Parameter("weight", 1e-3, 7e5, log=True)
BOTH = (LINEAR, LOG)


def test_the_ends_of_the_range_are_met_exactly_in_both_directions() -> None:
    ends = from_unit(BOTH, [[0.0, 0.0], [1.0, 1.0]])
    assert ends.tolist() == [[1e-4, 1e-3], [10.0, 7e5]]
    assert to_unit(BOTH, ends).tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_no_points_are_no_points_of_the_same_dimension() -> None:
    for parameters in (BOTH, (LINEAR,), (LINEAR, LINEAR)):
        nothing = np.empty((0, len(parameters)))
        assert from_unit(parameters, nothing).shape == to_unit(parameters, nothing).shape == nothing.shape


def test_a_log_parameter_has_its_geometric_mean_in_the_middle() -> None:
    assert from_unit((LOG,), [0.5])[0] == pytest.approx(np.sqrt(1e-3 * 7e5), rel=1e-14)


def test_a_linear_parameter_follows_the_published_arithmetic_to_the_bit() -> None:
    u = np.random.Generator(np.random.Philox(0)).random((1000, 1))
    assert np.array_equal(from_unit((LINEAR,), u), 1e-4 + u * (10 - 1e-4))


@given(
    u=st.floats(0.0, 1.0),
    low=st.floats(1e-6, 1e3),
    ratio=st.floats(1.001, 1e6),
    log=st.booleans(),
)
def test_going_there_stays_in_the_box_and_coming_back_gives_the_same_point(
    u: float, low: float, ratio: float, log: bool
) -> None:
    box = (Parameter("p", low, low * ratio, log),)
    x = from_unit(box, [u])
    assert low <= x[0] <= low * ratio
    assert to_unit(box, x)[0] == pytest.approx(u, abs=1e-9)


def test_a_point_outside_is_refused_by_name_value_and_range() -> None:
    with pytest.raises(ValueError, match=r"weight = 0\.0 is outside \[0\.001, 700000\.0\]"):
        to_unit(BOTH, [[1.0, 1.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match=r"rate \(in the unit cube\) = 1\.5 is outside \[0\.0, 1\.0\]"):
        from_unit(BOTH, [1.5, 0.5])


def test_a_point_that_is_not_a_number_is_outside() -> None:
    with pytest.raises(ValueError, match="rate = nan is outside"):
        inside(BOTH, [np.nan, 1.0])


def test_a_point_with_another_number_of_coordinates_is_refused() -> None:
    with pytest.raises(ValueError, match=r"points have shape \(3,\); use \(2,\) or \(n, 2\)"):
        from_unit(BOTH, [0.1, 0.2, 0.3])


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (0.0, np.inf)])
def test_an_empty_or_endless_range_is_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="parameter p: .* is not a finite range"):
        Parameter("p", low, high)


def test_a_log_range_that_reaches_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"parameter p: a log range must start above 0, got 0\.0"):
        Parameter("p", 0.0, 1.0, log=True)
