"""Lower bounds of epsilon: they cover, they stay below the ledger, and they exceed it as soon as a mechanism is broken."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedbo.privacy import aggregator
from fedbo_leak.canaries import AuditRow, Guessed, audit, bounded, chance, lines_of, lower_bound, main, private_methods

CENTRAL = ("dp_fts", "dp_fts_de", "dp_fed_prior")
LOCAL = ("dp_fed_pne", "dp_share_best")


def test_all_private_methods_are_audited() -> None:
    assert {*CENTRAL, *LOCAL} <= {*private_methods()}


@pytest.mark.parametrize("name", [*CENTRAL, *LOCAL])
def test_no_lower_bound_exceeds_the_ledger(name: str) -> None:
    """Law: wrong with a probability of at most 5 % for each method, if it is tight, which none is; seed 1."""
    found = audit(name, runs_of=1, agents=48, seed=1)
    assert not found.is_broken and found.ledger > 0 and found.guesses > 0, found


@pytest.mark.long
@pytest.mark.parametrize("name", [*CENTRAL, *LOCAL])
@pytest.mark.parametrize("noise", [0.5, 1.5])
def test_no_lower_bound_exceeds_the_ledger_for_other_noise(name: str, noise: float) -> None:
    """Law: as above, with 10 methods."""
    settings = {"noise_multiplier": noise} if name in CENTRAL else {"epsilon": noise}
    assert not audit(name, runs_of=6, agents=96, seed=2, **settings).is_broken


def test_a_broken_mechanism_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rightly = aggregator.noise_stds
    monkeypatch.setattr(aggregator, "noise_stds", lambda *known: rightly(*known) / 8)
    assert audit("dp_fts", runs_of=2, agents=64, seed=1, share=1.0, noise_multiplier=3.0).is_broken


def test_without_delta_the_bound_is_that_of_clopper_and_pearson() -> None:
    low = stats.beta.ppf(0.05, 80, 100 - 80 + 1)
    assert lower_bound(80, 100, 100, 0.0, 0.05) == pytest.approx(math.log(low / (1 - low)), abs=1e-3)
    assert lower_bound(50, 100, 100, 0.0, 0.05) == 0.0
    assert lower_bound(0, 0, 10, 0.0, 0.05) == 0.0
    assert chance(100, 100, 100, 1.0, 0.5) == 1.0
    assert lower_bound(80, 100, 100, 1e-3, 0.05) < lower_bound(80, 100, 100, 0.0, 0.05)


def test_the_bound_of_randomised_response_covers_and_is_nearly_tight() -> None:
    """Each guess is right with the chance e / (1 + e), so epsilon is 1. Law: binomial, at most 5 % of 200; seed 0."""
    rng, rate = np.random.default_rng(0), 1 / (1 + math.exp(-1.0))
    found = [lower_bound(int(rng.binomial(1000, rate)), 1000, 1000, 0.0, 0.05) for _ in range(200)]
    assert np.mean(np.array(found) > 1.0) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 200)
    assert np.mean(found) > 0.8


def test_guesses_are_those_of_which_one_is_most_certain() -> None:
    scores = np.concatenate([np.full(40, 5.0), np.zeros(240), np.full(40, -5.0)])
    there = np.concatenate([np.ones(40), np.tile([0.0, 1.0], 120), np.zeros(40)])
    row = bounded("made up", Guessed(scores, there), 0.0, 9.0)
    assert (row.guesses, row.right) == (80, 80) and row.lower > 2.5 and not row.is_broken


def test_the_table_names_each_method_and_the_exit_code_says_whether_one_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["dp_share_best", "--runs", "1", "--agents", "24"])
    assert "| `dp_share_best` |" in capsys.readouterr().out
    assert lines_of([AuditRow("dp", 8, 8, 4, 0.0, 0.1, 0.5)])[-1] == "| `dp` | 8 | 8 | 4 | 0 | 0.10 | 0.50 |"
    with pytest.raises(ValueError, match="'fts' promises no differential privacy"):
        audit("fts")
