"""The digits: a fair split, and a landscape that is worth searching."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_digits

from fedbo.algorithms.streams import Streams
from fedbo.objectives.classifiers.digits import Digits, DigitsAgent, partition_digits, split_digits
from fedbo.objectives.classifiers.partitions import OF_EACH, PARTITIONS
from fedbo.objectives.space import from_unit

LABEL = load_digits().target


def holder(federation: Digits, agent: int, seed: int = 0) -> DigitsAgent:
    return federation.objective(agent, Streams(seed).rng("world"), Streams(seed, owner=agent).rng("own"))


@settings(max_examples=10)
@given(agents=st.integers(1, 100), alpha=st.sampled_from([0.01, 0.1, 0.3, 10.0, 1e6]), seed=st.integers(0, 2**32))
def test_every_image_has_one_holder_and_every_agent_enough(agents: int, alpha: float, seed: int) -> None:
    rows = split_digits(agents, alpha, seed)
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(1797))
    sizes = [len(own) for own in rows]
    assert max(sizes) - min(sizes) <= 1
    for own in rows:
        assert np.sum(np.bincount(LABEL[own], minlength=10) >= OF_EACH) >= 2


def test_a_small_alpha_skews_the_labels_and_a_large_one_does_not() -> None:
    def largest_share(alpha: float) -> float:
        return float(np.mean([np.bincount(LABEL[own]).max() / len(own) for own in split_digits(30, alpha, 1)]))

    assert largest_share(0.1) > 0.5 > largest_share(0.3) > 0.3 > largest_share(1e6)


def test_both_halves_of_every_split_have_two_classes_also_with_many_wrong_labels() -> None:
    federation = Digits(agents=100, alpha=0.01, mislabelled=0.9)
    for agent in range(100):
        one = holder(federation, agent)
        for half in one.splits:
            assert len(set(half.given)) >= 2 and len(set(one.label[half.validate])) >= 2
            assert sorted([*half.train, *half.validate]) == list(range(len(one.label)))


def test_wrong_labels_are_exchanged_so_the_share_of_each_class_stays() -> None:
    one = holder(Digits(mislabelled=0.3), 0)
    for half in one.splits:
        true = one.label[half.train]
        assert np.array_equal(np.sort(true), np.sort(half.given))
        assert 0.1 < np.mean(true != half.given) <= 0.3 + 1.0 / len(true)
    clean = holder(Digits(mislabelled=0.0), 0)
    assert all(np.array_equal(clean.label[half.train], half.given) for half in clean.splits)


@pytest.mark.long
def test_the_landscape_has_a_small_good_region_that_differs_between_agents() -> None:
    """Fixed seed: 8 agents, a 9 x 9 grid; loose bounds round what was measured over 30 agents."""
    federation = Digits()
    axis = np.linspace(0.0, 1.0, 9)
    points = from_unit(federation.parameters, [[c, gamma] for c in axis for gamma in axis])
    rng = Streams(0).rng("none")
    error = np.array([[-holder(federation, agent).evaluate(x, rng) for x in points] for agent in range(8)])
    best, median = error.min(axis=1), np.median(error, axis=1)
    assert np.all(median - best > 0.05) and np.median(median - best) > 0.1
    assert np.median(np.mean(error < best[:, None] + 0.02, axis=1)) < 0.15
    assert len({tuple(points[i]) for i in error.argmin(axis=1)}) >= 4
    assert np.corrcoef(error)[np.triu_indices(8, 1)].mean() > 0.4


@pytest.mark.parametrize(
    ("setting", "value"),
    [("agents", 101), ("alpha", 0.0), ("alpha", float("nan")), ("mislabelled", 1.0), ("contrast", -1.0), ("splits", 0)],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be in .*, not {value}"):
        Digits(**{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("partition", sorted({*PARTITIONS} - {"dirichlet"}))
@settings(max_examples=15)
@given(agents=st.integers(5, 100), alpha=st.sampled_from([0.01, 0.3, 1e6]), seed=st.integers(0, 2**32))
def test_every_partition_gives_each_image_one_holder_and_every_agent_two_classes(
    partition: str, agents: int, alpha: float, seed: int
) -> None:
    rows = partition_digits(partition, agents, 2 if partition == "classes" else alpha, seed)
    assert len(rows) == agents
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(1797))
    for own in rows:
        assert np.sum(np.bincount(LABEL[own]) >= 2) >= 2


def test_partitions_are_skewed_in_what_they_say_and_in_nothing_else() -> None:
    """Chi-square of each agent's classes, 30 agents, seed 3: a false alarm of all 30 tests below 1e-4."""
    rows = partition_digits("iid", 30, 0.3, 3)
    assert {len(own) for own in rows} == {59, 60}
    common = np.bincount(LABEL) / 1797
    for own in (*rows, *(part for part in partition_digits("quantity", 30, 0.3, 3) if len(part) >= 60)):
        assert stats.chisquare(np.bincount(LABEL[own], minlength=10), common * len(own)).pvalue > 1e-6
    sizes = [len(own) for own in partition_digits("quantity", 30, 0.3, 3)]
    assert min(sizes) >= 12 and max(sizes) > 5 * min(sizes)
    assert np.ptp([len(own) for own in partition_digits("quantity", 30, 1e6, 3)]) <= 2
    for classes in (2, 3, 10):
        known = [set(LABEL[own]) for own in partition_digits("classes", 30, classes, 3)]
        assert {len(own) for own in known} == {classes}
        holders = [sum(digit in own for own in known) for digit in range(10)]
        assert max(holders) - min(holders) <= 1


@pytest.mark.parametrize("partition", PARTITIONS)
def test_agents_of_every_partition_can_be_judged(partition: str) -> None:
    federation = Digits(agents=100, partition=partition, alpha=0.05, mislabelled=0.5)
    for agent in range(0, 100, 9):
        one = holder(federation, agent)
        for half in one.splits:
            assert len(set(half.given)) >= 2 and len(half.validate) >= 4
        assert -1.0 <= one.evaluate(np.array([1.0, 0.1]), np.random.default_rng(0)) <= 0.0


def test_classes_that_nobody_would_have_are_refused() -> None:
    with pytest.raises(ValueError, match="4 agents do not cover all 10 classes; increase it"):
        Digits(agents=4, partition="classes")
