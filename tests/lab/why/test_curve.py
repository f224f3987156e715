"""The probability of a bad end over time: its intervals, where further draws go, and its jumps."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from fedbo.lab.why.curve import DecisionCurve, wilson
from fedbo.settings.errors import ArgumentError


@pytest.mark.parametrize(("bad", "draws"), [(0, 5), (3, 8), (8, 8), (40, 100)])
def test_wilson_intervals_agree_with_scipy(bad: int, draws: int) -> None:
    theirs = scipy.stats.binomtest(bad, draws).proportion_ci(method="wilson")
    assert wilson(bad, draws) == pytest.approx((theirs.low, theirs.high))


def test_without_draws_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def decided_at(moment: float, draws: dict[float, int], seed: int, before: float = 0.1) -> DecisionCurve:
    """Return the curve of a run whose bad end was decided at one moment; `draws` counts the draws at each time."""
    rng = np.random.default_rng(seed)

    def ask(time: float, number: int) -> bool:
        draws[time] = draws.get(time, 0) + 1
        return time > moment or bool(rng.random() < before)

    return DecisionCurve(ask, [float(time) for time in range(1, 101)], 100.0, True)


def test_a_decisive_event_is_found_among_a_hundred() -> None:
    # Each refinement halves a window of which one end is bad with probability 0.1, by four draws. All twenty seeds are fixed.
    found = 0
    for seed in range(20):
        draws: dict[float, int] = {}
        curve = decided_at(37.0, draws, seed)
        curve.start(5)
        spent = curve.refine(60)
        assert spent <= 60
        assert sum(draws.values()) == 40 + spent
        largest = curve.jumps()[0]
        found += largest.start == 37.0 and largest.stop == 38.0 and largest.sure
    assert found >= 18


def test_further_draws_go_to_the_jump() -> None:
    draws: dict[float, int] = {}
    curve = decided_at(60.0, draws, 1, before=0.0)
    curve.start(4)
    before = set(draws)
    curve.refine(30)
    assert all(50 <= time <= 65 for time in set(draws) - before)


def test_an_end_that_was_never_open_has_no_jump_and_costs_nothing_further() -> None:
    curve = DecisionCurve(lambda time, number: True, [1.0, 2.0, 3.0], 3.0, True)
    curve.start(6)
    assert len(curve.points) == 4
    assert curve.refine(50) == 0
    assert curve.jumps() == []


def test_the_end_of_the_run_counts_as_the_last_moment() -> None:
    curve = DecisionCurve(lambda time, number: False, [1.0, 2.0, 3.0], 3.0, True)
    curve.start(6)
    assert [(jump.start, jump.stop) for jump in curve.jumps()] == [(3.0, 3.0)]


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(ArgumentError, match="draws = 0: must be at least 1"):
        DecisionCurve(lambda time, number: True, [1.0], 1.0, True).start(0)
