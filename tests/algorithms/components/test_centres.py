"""Robust centres against brute force, against SciPy, up to their breakdown points, and in the methods that have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedbo.algorithms.bandits.trees.elimination_phases import MissingPolicy
from fedbo.algorithms.base import Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.centres import RULES, Aggregation, bounded_products
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.testing.algorithm_contract import check_algorithm

ROBUST = [Aggregation("median"), Aggregation("trimmed_mean", trim=0.3), Aggregation("median_of_means", groups=7)]
robust = pytest.mark.parametrize("aggregation", ROBUST, ids=lambda one: one.rule)


def repeated(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.repeat(values, counts, axis=0)


@pytest.mark.parametrize("seed", range(20))
def test_whole_weights_count_as_so_many_agents(seed: int) -> None:
    """The weighted median is NumPy's of the repeated values; the trimmed mean SciPy's where nobody is cut in part."""
    rng = np.random.default_rng(seed)
    values, counts = rng.integers(0, 6, (8, 3)).astype(float) + 0.01 * seed, rng.integers(0, 4, 8)
    counts[0] += counts.sum() % 2 + 1
    every = repeated(values, counts)
    weights = counts.astype(float)
    assert np.allclose(Aggregation("mean").of(values, weights), every.mean(axis=0))
    assert np.allclose(Aggregation("median").of(values, weights), np.median(every, axis=0))
    for cut in range((len(every) - 1) // 2 + 1):
        share = cut / len(every)
        expected = stats.trim_mean(every, share + 1e-9, axis=0)
        assert np.allclose(Aggregation("trimmed_mean", trim=share).of(values, weights), expected)


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 9, 40])
def test_a_median_of_means_is_the_median_of_the_means_of_its_groups(groups: int) -> None:
    values = np.random.default_rng(groups).standard_normal((9, 4))
    means = [[values[n] for n in range(9) if n % groups == g] for g in range(min(groups, 9))]
    expected = np.median([np.mean(one, axis=0) for one in means], axis=0)
    got = Aggregation("median_of_means", groups=groups).of(values, np.ones(9))
    if 9 % min(groups, 9) == 0:  # groups of one size have one weight
        assert np.allclose(got, expected)
    assert (got >= np.min([np.mean(one, axis=0) for one in means], axis=0)).all()


@pytest.mark.parametrize("rule", RULES)
def test_who_has_no_weight_in_a_column_may_have_said_anything_there(rule: str) -> None:
    rng = np.random.default_rng(1)
    values, aggregation = rng.standard_normal((6, 3)), Aggregation(rule, groups=6)
    weights = np.ones((6, 3))
    weights[2, 0] = weights[4, 1] = 0.0
    spoilt = values.copy()
    spoilt[2, 0], spoilt[4, 1] = np.nan, 1e300
    got = aggregation.of(spoilt, weights)
    assert np.array_equal(got, aggregation.of(values, weights))
    kept = [np.delete(values[:, 0], 2), np.delete(values[:, 1], 4), values[:, 2]]
    alone = [aggregation.of(column[:, None], np.ones(len(column)))[0] for column in kept]
    assert np.allclose(got, alone)


@robust
def test_liars_below_the_breakdown_point_cannot_leave_the_honest_range_and_more_can(aggregation: Aggregation) -> None:
    """Of 21 agents 10, 6 and 3 may lie: less than half, less than `trim`, and less than half of the 7 groups."""
    honest = np.random.default_rng(3).standard_normal((21, 5))
    most = {"median": 10, "trimmed_mean": 6, "median_of_means": 3}[aggregation.rule]
    for size in (1e3, 1e9, -1e9):
        for liars in (most, most + 1):
            values = honest.copy()
            values[:liars] = size
            got = aggregation.of(values, np.ones(21))
            outside = (got < honest.min(axis=0)) | (got > honest.max(axis=0))
            assert outside.all() if liars > most else not outside.any(), (size, liars)
    assert (np.abs(Aggregation().of(np.where(np.arange(21)[:, None] == 0, 1e9, honest), np.ones(21))) > 1e7).all()


@robust
def test_a_centre_of_vectors_that_agree_is_what_they_agree_on(aggregation: Aggregation) -> None:
    values = np.tile(np.array([1.5, -2.0]), (12, 1))
    weights = np.random.default_rng(2).random(12)
    assert np.allclose(aggregation.of(values, weights), [1.5, -2.0])


@robust
def test_a_centre_scatters_as_its_widening_says(aggregation: Aggregation) -> None:
    """Over 4,000 draws of 35 normal numbers: the standard deviation is known to 1.1 % (one sigma), the median's law to 3 %."""
    draws = np.random.default_rng(4).standard_normal((35, 4000))
    ratio = float(aggregation.of(draws, np.ones(35)).std() * np.sqrt(35))
    if aggregation.rule == "trimmed_mean":
        assert 1.0 < ratio < aggregation.widening
    else:
        assert abs(ratio / aggregation.widening - 1.0) < 0.07


@robust
def test_liars_add_no_more_to_the_spread_than_the_honest(aggregation: Aggregation) -> None:
    honest = np.random.default_rng(5).standard_normal((21, 6))
    values = honest.copy()
    values[:3] = 1e8
    centre = aggregation.of(values, np.ones(21))
    squares = bounded_products(values - centre, np.ones(21))
    furthest = np.linalg.norm(honest - centre, axis=1).max()
    assert np.trace(squares) <= 21 * furthest**2
    assert np.allclose(squares, squares.T) and np.linalg.eigvalsh(squares).min() > -1e-9


LIARS = 3


@robust
def test_fts_follows_a_robust_centre_of_what_others_have_sent(aggregation: Aggregation) -> None:
    """Two of twelve messages lie: what is followed lies among the honest ones."""
    made = entry("fts").make(aggregation=aggregation, features=8)
    omega = np.random.default_rng(8).standard_normal((13, 8))
    honest = omega[2:12].copy()
    omega[:2] = 1e6
    followed = made._function(omega, np.where(np.arange(13) < 12, 1 / 12, 0.0), Streams(3, owner=12))[0]
    assert (followed <= honest.max(axis=0)).all() and (followed >= honest.min(axis=0)).all()


@pytest.mark.parametrize(("name", "settings"), [("fts", {"query": "draw"}), ("fts", {"relay": "one"}), ("dp_fts_de", {})])
def test_where_there_is_nothing_but_a_sum_or_one_message_a_robust_centre_is_refused(name: str, settings: Any) -> None:
    with pytest.raises(SettingError, match='aggregation must have rule = "mean".*, not median; '):
        entry(name).make(**settings, aggregation=Aggregation("median"))
    entry(name).make(**settings, aggregation=Aggregation("mean"))


@robust
def test_liars_move_a_learned_prior_no_further_than_the_honest_do(aggregation: Aggregation) -> None:
    made = entry("fed_prior").make(points=9, aggregation=aggregation)
    rng = np.random.default_rng(6)
    m = int(made.download(Problem(2, 21, range(21), 2, 5))["mean"].shape[0])
    honest = rng.standard_normal((21, m))
    answers, means = [], []
    plain = entry("fed_prior").make(points=9)
    for lie in (0.0, 1e5):
        state = made.server_init(Problem(2, 21, range(21), 2, 5))
        for agent in range(21):
            values = 0.7 * (honest[agent] + (lie if agent < LIARS else 0.0))
            payload = {"values": values, "certainty": np.full(m, 0.7), "stretch": np.array([0.5])}
            state = made.receive(state, Inbound(agent, 0, 0.0, payload), 0.0)
        answers.append(made.broadcast(state, [20], np.ones(21), Streams(1, owner=-2))[0][20])
        means.append(plain.broadcast(state, [20], np.ones(21), Streams(1, owner=-2))[0][20]["mean"])
    assert (np.abs(answers[1]["mean"]) <= np.abs(honest).max()).all()
    lengths = [np.linalg.norm(answer["directions"]) for answer in answers]
    assert lengths[1] < 3 * lengths[0]
    # A loud agent is limited before the mean is taken, so that lies move it by the size of the honest values alone.
    assert (means[1] > means[0] + 0.3).all(), "the mean itself is moved"


@robust
def test_liars_cannot_have_the_best_arm_dropped(aggregation: Aggregation) -> None:
    """Of 21 agents three invert their means of 6 arms; the mean drops the best arm then, and a robust centre keeps it."""
    means = np.tile(np.linspace(0.0, 1.0, 6), (21, 1)) + 0.01 * np.random.default_rng(7).standard_normal((21, 6))
    pulls = np.full((21, 6), 1000)
    lied = means.copy()
    lied[:LIARS] = -20.0 * means[:LIARS]
    made = {rule.rule: entry("fed1_ucb").make(arms=6, aggregation=rule) for rule in (Aggregation(), aggregation)}
    assert made[aggregation.rule].kept(means, pulls, 1000)[-1] and made["mean"].kept(means, pulls, 1000)[-1]
    assert made[aggregation.rule].kept(lied, pulls, 1000)[-1] and not made["mean"].kept(lied, pulls, 1000)[-1]


@robust
@pytest.mark.parametrize("policy", ["flag", "wait"])
def test_clients_that_lie_move_no_mean_of_a_node_out_of_the_honest_range(aggregation: Aggregation, policy: str) -> None:
    means = np.random.default_rng(9).random((21, 4))
    means[5, 1] = means[7, 1] = np.nan
    means[:, 3] = np.nan
    missing = MissingPolicy(policy, 0.1, aggregation)
    centre, count = missing.mean(means)
    assert np.isnan(centre[3]) and count[3] == 0 and np.allclose(count[0], 21 / aggregation.widening**2)
    means[:LIARS, :3] = 50.0
    lied, _ = missing.mean(means)
    assert (lied[:3] <= np.nanmax(means[LIARS:, :3], axis=0)).all() and missing.bias(count, 21) == 0.1


AVERAGING = ["fts", "fed_prior", "fed1_ucb", "fed_pne"]
TRIED = [
    pytest.param(
        name, one, marks=[] if one.rule == "median" and name != "fed_prior" else pytest.mark.long, id=f"{name} {one.rule}"
    )
    for name in AVERAGING
    for one in ROBUST
]


@pytest.mark.parametrize(("name", "aggregation"), TRIED)
def test_a_method_with_a_robust_centre_keeps_to_the_contract(name: str, aggregation: Aggregation) -> None:
    check_algorithm(entry(name).make(aggregation=aggregation))
