"""The door under attack: what it claims holds, and no planted fault goes unseen; `benchmarks/audit.py` is the full attack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from auditing import DELTA, FAULTY, SOUND, Case, audit, lower_bound

from fedbo.privacy.gaussian import gaussian_epsilon

# How much of the trials is enough here.
SHARE = {
    "whole": 0.5,
    "sampled, alone": 0.2,
    "sampled, one of 4": 0.2,
    "sampled, 12 releases": 0.1,
    "noise not over q": 0.3,
    "clipping skipped": 0.3,
    "sender counted twice": 0.3,
    "metrics clipped one by one": 0.3,
    "noise halved": 1.0,
    "worth not applied": 0.3,
    "one noise for two blocks": 0.2,
    "one noise for two releases": 0.2,
    "count without noise": 0.2,
    "no noise on nobody": 0.7,
    "everybody let in": 0.2,
}

# Left to the long tests: those whose faults others resemble, and that take the most trials.
LATER = {
    *("no noise on nobody", "one noise for two releases", "count without noise", "sampled, 12 releases"),
    *("whole, of two releases", "whole, stale", "sampled, one of 4"),
    *("everybody let in", "worth not applied", "metrics clipped one by one", "one noise for two blocks"),
}


def _some(cases: Sequence[Case]) -> list[Any]:
    return [pytest.param(one, marks=[pytest.mark.long] * (one.name in LATER), id=one.name) for one in cases]


@pytest.mark.parametrize("case", _some(SOUND))
def test_no_attack_finds_more_than_is_claimed(case: Case) -> None:
    """Clopper-Pearson at 99 % for each case; seed 1, at most 1600 trials in each world. A false alarm in at most 1 of 100."""
    verdict = audit(case, times=SHARE.get(case.name, 0.2))
    assert 0 < verdict.claimed < 4
    assert not verdict.broken, verdict


@pytest.mark.parametrize("case", _some([case for case in FAULTY if case.name != "weights not as charged"]))
def test_an_attack_finds_what_is_wrong(case: Case) -> None:
    """Seed 1, the same attack: with the fault planted it finds more than the ledger claims."""
    verdict = audit(case, times=SHARE.get(case.name, 0.5))
    assert verdict.broken, verdict


@pytest.mark.parametrize("mu", [1.0, *(pytest.param(mu, marks=pytest.mark.long) for mu in (0.5, 2.0))])
def test_the_bound_is_below_the_truth_and_not_far_below(mu: float) -> None:
    """N(0, 1) against N(mu, 1), whose epsilon is known; 20 bounds from 2000 draws, seed 2. Errors at 1 %: 4 or more in 5e-5."""
    rng, true = np.random.default_rng(2), float(gaussian_epsilon(np.array([mu]), DELTA)[0])
    found = np.array([lower_bound(rng.standard_normal(2000) + mu, rng.standard_normal(2000), DELTA, 0.99) for _ in range(20)])
    assert (found > true).sum() < 4
    assert np.median(found) > 0.3 * true
    assert lower_bound(rng.standard_normal(2000), rng.standard_normal(2000), DELTA, 0.99) == 0.0
