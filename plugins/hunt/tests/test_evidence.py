"""The sequential test: its level under true claims, its bound, and what it is by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from fedbo_hunt.claims import lower_bound, p_value, wealth

LOOKS = 60
NULLS = {
    "coin": lambda rng, n: rng.choice((-0.5, 0.5), size=(n, LOOKS)),
    "rare loss": lambda rng, n: np.where(rng.random((n, LOOKS)) < 0.1, -0.9, 0.1),
    "rare gain": lambda rng, n: np.where(rng.random((n, LOOKS)) < 0.1, 0.9, -0.1),
    "uniform": lambda rng, n: rng.uniform(-1, 1, size=(n, LOOKS)),
}


@pytest.mark.parametrize("law", NULLS)
def test_at_most_five_in_a_hundred_true_claims_are_ever_refuted(law: str) -> None:
    # 2,000 sequences, looked at after each of 60 values. At exactly 5 % more than 132 are refuted with probability 0.001.
    assert binom.sf(132, 2000, 0.05) < 1e-3
    values = NULLS[law](np.random.default_rng(7), 2000)
    assert sum(p_value(row, 1.0) <= 0.05 for row in values) <= 132


def test_the_wealth_is_the_mean_over_bets_of_what_each_has_won() -> None:
    values = [0.5, -0.25, 0.5]
    by_hand = [np.mean([np.prod([1 + b * v for v in values[:n]]) for b in np.arange(1, 20) / 20]) for n in (1, 2, 3)]
    assert wealth(values, 1.0) == pytest.approx(by_hand)
    assert p_value(values, 1.0) == pytest.approx(min(1.0, 1 / max(by_hand)))
    assert p_value([], 1.0) == 1.0
    assert p_value([0.9] * 40 + [-1.1], 1.0) == 1.0
    assert lower_bound([0.9] * 40 + [-1.1], 1.0) == -np.inf


def test_a_bet_of_known_law_neither_wins_nor_loses_on_average() -> None:
    # All sequences of four fair coins, each equally likely: the mean wealth is 1 at any time.
    coins = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    assert np.mean([wealth(row, 1.0) for row in coins], axis=0) == pytest.approx(np.ones(4))


def test_the_bound_covers_and_is_where_the_test_begins_to_refute() -> None:
    rng = np.random.default_rng(3)
    values = rng.uniform(-0.4, 0.8, size=(200, 40))
    lows = np.array([lower_bound(row, 1.0) for row in values])
    assert (lows <= 0.2).sum() >= 185  # at 95 %: at least 185 of 200 with probability 0.93, and the seed is fixed
    assert lows.mean() > 0.0
    row = values[0]
    assert wealth(row, 1.0, lows[0] - 1e-6).max() >= 20 > wealth(row, 1.0, lows[0] + 1e-6).max()


def test_a_claim_that_always_fails_is_refuted_after_a_few_replicates() -> None:
    assert p_value([0.5] * 10, 0.5) < 0.02
    assert p_value([0.5] * 3, 0.5) > 0.05
