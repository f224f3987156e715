"""What several runs cost together: composed as the releases of one run, and never below what one of them costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedbo.privacy.summary import BY, epsilon_together, ledgers

Row = dict[str, Any]


def whole(charged: dict[int, float]) -> Row:
    return {"share": 1.0, "sampling": "poisson", "population": 0, "charged": list(charged), "norms": list(charged.values())}


def sampled(share: float, charged: dict[int, float]) -> Row:
    return {**whole(charged), "share": share}


def delta_of(mu: float, epsilon: float) -> float:
    """Compute delta of one Gaussian mechanism at `epsilon` (Balle and Wang 2018, theorem 8)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


@given(
    st.lists(st.dictionaries(st.integers(0, 3), st.floats(0.05, 1.0), min_size=1), min_size=1, max_size=12),
    st.sampled_from([1e-2, 1e-5]),
)
@settings(max_examples=40)
def test_releases_charged_in_full_are_one_gaussian_mechanism(charges: list[dict[int, float]], delta: float) -> None:
    found = epsilon_together([whole(charged) for charged in charges], (delta,), 4)
    for agent in range(4):
        mu = math.sqrt(sum(charged.get(agent, 0.0) ** 2 for charged in charges))
        epsilon = found[agent, 0]
        assert epsilon == 0.0 if mu == 0 else delta_of(mu, epsilon) <= delta * (1 + 1e-6)
        assert epsilon == 0.0 or delta_of(mu, epsilon * 0.999) > delta


@pytest.mark.long
def test_sampled_and_full_releases_of_several_runs_compose_as_by_another_accountant() -> None:
    rows = [sampled(0.3, {0: 0.5, 1: 0.5})] * 6 + [sampled(0.5, {0: 0.4})] * 4 + [whole({0: 0.3, 2: 0.2})] * 2
    found = epsilon_together(rows, (1e-3, 1e-5), 4)
    accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL, value_discretization_interval=1e-4)
    accountant.compose(PoissonSampledDpEvent(0.3, GaussianDpEvent(2.0)), 6)
    accountant.compose(PoissonSampledDpEvent(0.5, GaussianDpEvent(2.5)), 4)
    accountant.compose(GaussianDpEvent(1 / 0.3), 2)
    for column, delta in enumerate((1e-3, 1e-5)):
        assert found[0, column] == pytest.approx(accountant.get_epsilon(delta), rel=0.01)
    assert (found[0] > found[1]).all() and (found[0] > found[2]).all() and (found[3] == 0).all()


def test_two_runs_cost_more_than_one_and_less_than_their_sum() -> None:
    run = [sampled(0.3, {0: 0.5, 1: 0.2})] * 8
    one, two = epsilon_together(run, (1e-3,), 2), epsilon_together(run + run, (1e-3,), 2)
    assert (one < two).all() and (two < 2 * one).all()
    fixed = [{**row, "sampling": "fixed", "population": 6} for row in run]
    assert (epsilon_together(fixed, (1e-3,), 2) >= one).all(), "only Rényi divergences are known there"
    assert np.isinf(epsilon_together([*run, whole({0: math.inf})], (1e-3,), 2)[0, 0])


def test_the_releases_of_an_algorithm_are_means_over_replicates_of_those_that_were_made() -> None:
    """Two replicates of one and two releases, one of which was refused; noise of norm 2 in 4 numbers of deviation 1."""

    def row(replicate: int, arrived: list[int], signal: float, clipped: int, refused: str = "") -> Row:
        spent = {by: [float(len(arrived)), 9.0] for by in BY}
        of_run = {"cell": 0, "algorithm": "dp", "replicate": replicate, "refused": refused}
        return {**of_run, "arrived": arrived, "signal": signal, "clipped": clipped, "noise": [1.0], "numbers": 4, **spent}

    rows = [row(0, [0, 1], 6.0, 1), row(1, [], 0.0, 0, "the budget"), row(1, [0, 1, 2, 3], 2.0, 2)]
    ledger = ledgers(pa.Table.from_pylist(rows), 0)["dp"]
    assert (ledger.arrived, ledger.signal, ledger.clipped) == ([3.0], [2.0], [0.5])
    assert all(spent == [4.0] for spent in ledger.epsilon.values())
