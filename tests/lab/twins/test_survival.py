"""CensoredTimes that were cut short: estimates against scipy's, and intervals that hold the truth as often as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedbo.lab.twins.families import FAMILIES, CensoredTimes, _fitted, _intervals, candidates, completed
from fedbo.lab.twins.survival import cut_again, mean_of, p_alike, survival

KNOWN = {"exponential": (2.0,), "lognormal": (2.0, 0.6), "gamma": (2.0, 3.0), "pareto": (2.0, 2.5)}
Cuts = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def by_end(name: str, rng: np.random.Generator, agents: int = 40, end: float = 4.0) -> CensoredTimes:
    """Each agent evaluates until the end, which cuts its last evaluation."""
    lengths = law_of(name).rvs((agents, 100), random_state=rng)
    over = np.cumsum(lengths, axis=1)
    begun = over - lengths < end
    return CensoredTimes(np.minimum(lengths, end - (over - lengths))[begun], (over <= end)[begun])


def by_crashes(name: str, rng: np.random.Generator, mean: float = 4.0) -> CensoredTimes:
    lengths, cuts = law_of(name).rvs((1, 150), random_state=rng)[0], rng.exponential(mean, 150)
    return CensoredTimes(np.minimum(lengths, cuts), lengths <= cuts)


def law_of(name: str) -> Any:
    return FAMILIES[name].law(np.array([KNOWN[name]]))


CUTS = {"end": by_end, "crashes": by_crashes}


def share_held(name: str, cut: str, runs: int) -> np.ndarray[Any, Any]:
    """Return the share of runs whose interval of 95 % holds each true parameter."""
    held = np.zeros(len(KNOWN[name]))
    for seed in range(runs):
        times = CUTS[cut](name, np.random.default_rng([3, seed]))
        found = _fitted(name, times)
        assert found is not None and not times.ended.all()
        intervals = _intervals(name, found, times.values[None], times.ended[None])
        ends = [intervals[one] for one in FAMILIES[name].parameters]
        held += [low <= true <= high for true, (low, high) in zip(KNOWN[name], ends, strict=True)]
    return held / runs


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", KNOWN)
def test_intervals_hold_the_truth(name: str, cut: str) -> None:
    """Of 16 intervals with 95 % fewer than 11 hold with a chance below 1 in 10,000; without what was cut short 0 to 3 do."""
    assert (share_held(name, cut, 16) >= 11 / 16).all()


@pytest.mark.long
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", KNOWN)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, cut: str) -> None:
    """Of 1,000 intervals with 95 %, less than 93 % or more than 97 % hold with a chance of 1 in 250."""
    held = share_held(name, cut, 1000)
    assert (held >= 0.93).all() and (held <= 0.97).all(), held


@pytest.mark.parametrize("name", KNOWN)
def test_the_fit_is_that_of_scipy(name: str) -> None:
    times = by_crashes(name, np.random.default_rng(5))
    found = _fitted(name, times)
    assert found is not None
    data = stats.CensoredData(uncensored=times.values[times.ended], right=times.values[~times.ended])
    if name == "pareto":
        shortest = float(times.values[times.ended].min())
        alpha = found[0, 1]
        at = [stats.pareto(b, scale=shortest) for b in (alpha * 0.99, alpha, alpha * 1.01)]
        logs = [one.logpdf(times.values[times.ended]).sum() + one.logsf(times.values[~times.ended]).sum() for one in at]
        assert logs[1] > max(logs[0], logs[2]) and found[0, 0] == pytest.approx(shortest * alpha / (alpha - 1))
        return
    law = {"exponential": stats.expon, "lognormal": stats.lognorm, "gamma": stats.gamma}[name]
    *shape, _, scale = law.fit(data, floc=0)
    mean = law.mean(*shape, scale=scale)
    assert found[0] == pytest.approx([mean, *shape], rel=2e-3)


def test_the_estimate_is_that_of_kaplan_and_meier() -> None:
    rng = np.random.default_rng(1)
    values, ended = rng.integers(1, 9, 60).astype(float), rng.random(60) < 0.6  # with ties
    ordered, happened, before, after = (one[0] for one in survival(values[None], ended[None]))
    right = stats.ecdf(stats.CensoredData(uncensored=values[ended], right=values[~ended])).sf
    assert [after[ordered == time][happened[ordered == time]][-1] for time in right.quantiles] == pytest.approx(
        right.probabilities.tolist()
    )
    assert before[0] == 1.0 and (before[1:] == after[:-1]).all()
    whole = np.ones(60, dtype=bool)
    assert mean_of(values, whole) == pytest.approx(values.mean())
    long = rng.exponential(3.0, 40000)
    assert mean_of(np.minimum(long, 4.0), long < 4.0) == pytest.approx(3.0, rel=0.03)


def test_the_test_of_groups_is_the_log_rank_test() -> None:
    """p differ from scipy's by the variance of a permutation; equal laws under unequal cuts are told apart as often as 5 %."""
    rng = np.random.default_rng(2)
    for scale in (1.0, 1.3):
        x, y = stats.CensoredData(rng.exponential(1.0, 150)), stats.CensoredData(rng.exponential(scale, 150))
        values = np.concatenate([x._uncensored, y._uncensored])
        p = p_alike(values, np.ones(300, dtype=bool), np.repeat([0, 1], 150))
        assert p == pytest.approx(stats.logrank(x, y).pvalue, abs=0.03)
    refused = 0
    for seed in range(200):
        rng = np.random.default_rng([4, seed])
        values, cuts = rng.gamma(3.0, 1.0, 150), rng.exponential(np.repeat([1.5, 6.0, 6.0], 50))
        refused += p_alike(np.minimum(values, cuts), values <= cuts, np.repeat([0, 1, 2], 50)) < 0.05
    assert refused <= 24  # more than so many with a chance below 1 in 1,000


def test_drawn_times_are_cut_as_the_measured_ones_were() -> None:
    rng = np.random.default_rng(6)
    lengths, cuts = rng.exponential(2.0, 800), rng.exponential(3.0, 800)
    values, ended = np.minimum(lengths, cuts), lengths <= cuts
    drawn, again = cut_again(rng.exponential(2.0, (40, 800)), values, ended, rng)
    assert again.mean() == pytest.approx(ended.mean(), abs=0.02)
    assert drawn.mean() == pytest.approx(values.mean(), rel=0.05)


def test_what_was_cut_short_goes_on_as_the_best_family_says() -> None:
    times = by_crashes("lognormal", np.random.default_rng(8))
    whole = completed(times, 0)
    assert (whole[times.ended] == times.values[times.ended]).all() and (whole[~times.ended] > times.values[~times.ended]).all()
    assert whole.mean() == pytest.approx(2.0, abs=0.45)  # four standard errors
    two = CensoredTimes(np.tile(times.values, 2) * np.repeat([1.0, 5.0], 150), np.tile(times.ended, 2), np.repeat([3, 9], 150))
    both = completed(two, 0)
    assert both[150:].mean() / both[:150].mean() == pytest.approx(5.0, rel=0.2)


def test_the_best_family_is_the_true_one_where_times_are_cut_short() -> None:
    for name in ("lognormal", "gamma"):
        best = candidates(by_crashes(name, np.random.default_rng(11), mean=6.0), 0)[0]
        assert best.model == name and best.p > 0.01
