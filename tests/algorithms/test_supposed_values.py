"""What a method makes of points that failed: supposed values where failures cluster, none where they look like chance."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Avoiding, Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.components.failures import REACHES, supposed_values
from fedbo.algorithms.streams import Streams

# What these send is where they would look next, which failures may change.
PROPOSING = {"admm_consensus", "admm_allocation"}
SENDING = [
    name
    for name in algorithms()
    if isinstance(made := entry(name).make(), Avoiding)
    and name not in PROPOSING
    and made.upload(Problem(2, 3, (0, 1, 2), 4, 10, agent=1)) is not None
]


def by_hand(u: Array, y: Array, failed: Array) -> list[float] | None:
    """Compute the same one pair at a time."""
    points, bad = [*u, *failed], [0] * len(u) + [1] * len(failed)
    n, best, found = len(points), -math.inf, None
    for reach in (None, *REACHES):
        total, likeness = 0.0, [[0.0] * n for _ in range(n)]
        for i in range(n):
            others = [j for j in range(n) if j != i]
            rate = (sum(bad[j] for j in others) + 0.5) / n
            for j in others if reach is not None else ():
                likeness[i][j] = math.exp(-(math.dist(points[i], points[j]) ** 2) / (2 * len(points[i]) * reach**2))
            p = (rate + sum(likeness[i][j] * bad[j] for j in others)) / (1 + sum(likeness[i][j] for j in others))
            total += math.log(p if bad[i] else 1 - p)
        if total > best:
            best, found = total, None if reach is None else likeness
    if found is None:
        return None
    values = []
    for i in range(len(u), n):
        good = [found[i][j] for j in range(len(u))]
        share = (1 + sum(found[i][len(u) :])) / (1 + sum(found[i]))
        mean = sum(w * v for w, v in zip(good, y, strict=True)) / sum(good)
        values.append(share * min(y) + (1 - share) * mean)
    return values


@pytest.mark.parametrize("seed", range(6))
def test_supposed_values_are_those_computed_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, y = rng.random((14, 1 + seed % 3)), rng.standard_normal(14)
    fails = points[:, 0] > 0.6 if seed % 2 else rng.random(14) < 0.3
    fails[:2] = False, True
    found, expected = (
        supposed_values(points[~fails], y[~fails], points[fails]),
        by_hand(points[~fails], y[~fails], points[fails]),
    )
    assert (found is None) == (expected is None)
    if found is not None:
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_region_of_failures_counts_as_bad_and_failures_by_chance_as_nothing() -> None:
    """40 points in two inputs, 100 draws of each kind: 99 regions are recognised, and 68 draws of chance at these seeds."""
    regions = chances = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        points = rng.random((40, 2))
        y = points.sum(axis=1)
        region, chance = points[:, 0] > 0.6, rng.random(40) < 0.3
        values = supposed_values(points[~region], y[~region], points[region])
        regions += values is not None and float(np.median(values)) < float(np.median(y))
        chances += supposed_values(points[~chance], y[~chance], points[chance]) is None
    assert regions >= 95 and chances >= 50


@pytest.mark.parametrize("name", SENDING)
def test_no_message_holds_anything_of_a_failure(name: str) -> None:
    method, streams, rng = entry(name).make(), Streams(3).of(1), np.random.default_rng(2)
    problem = replace(Problem(2, 3, (0, 1, 2), 4, 10), agent=1)
    state = method.agent_init(problem, streams.at(0))
    x = rng.random((6, 2))
    state = method.tell(state, x, -((x - 0.4) ** 2).sum(axis=1))
    assert isinstance(method, Avoiding)
    knowing = method.avoiding(state, rng.random((5, 2)))
    plain, other = (method.outbox(each, streams.at(5))[0] for each in (state, knowing))
    assert plain is not None and other is not None and {*plain} == {*other}
    assert all(plain[key].tobytes() == other[key].tobytes() for key in plain)


@pytest.mark.parametrize("name", ["gp_ei", "ts", "fed_prior", "share_best"])
def test_where_all_has_failed_decisions_differ_and_keep_away(name: str) -> None:
    method, streams, rng = entry(name).make(), Streams(3).of(1), np.random.default_rng(2)
    state = method.agent_init(replace(Problem(2, 3, (0, 1, 2), 4, 30), agent=1), streams.at(0))
    failed = rng.random((3, 2)) * 0.4
    assert isinstance(method, Avoiding)
    for step in range(1, 21):
        decision, state = method.ask(method.avoiding(state, failed), (), streams.at(step))
        assert np.abs(failed - decision.x).max(axis=1).min() > 0.02
        failed = np.concatenate([failed, decision.x])
