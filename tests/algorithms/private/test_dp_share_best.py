"""Private votes: what a vote tells of an agent, under attack; that the ledger charges it; and that votes are used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from auditing import lower_bound

from fedbo.algorithms.base import Array, Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.surrogate import Surrogate
from fedbo.algorithms.learned_prior.prior_space import common_points
from fedbo.algorithms.private import dp_share_best
from fedbo.algorithms.private.dp_share_best import DPShareBest, vote
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.privacy.ledger import accounted, local_entry, table_of
from fedbo.testing.lockstep import Lockstep, noisy

N, TRIALS = 12, 3000
PROBLEM = Problem(2, N, tuple(range(N)), 1, 4, history=8)
QUICK = Surrogate(surrogate="fixed")
POINTS = common_points(25, 2, None)
PLACES = np.random.default_rng(3).random((8, 2))


def method(**settings: Any) -> DPShareBest:
    made = entry("dp_share_best").make(own=QUICK, points=25, **settings)
    assert isinstance(made, DPShareBest)
    return made


def bowl(x: Array, best: float) -> Array:
    return np.asarray(-((x - best) ** 2).sum(axis=1))


def votes(made: DPShareBest, best: float, trials: int = TRIALS) -> Array:
    """Give many votes `(trials,)` of an agent whose evaluations of an earlier task have their optimum at `best`."""
    problem = replace(PROBLEM, agent=0, history_x=PLACES, history_y=bowl(PLACES, best))
    found = []
    for seed in range(trials):
        streams = Streams(seed, owner=0)
        found.append(made.outbox(made.agent_init(problem, streams), streams)[0]["vote"][0])
    return np.array(found, dtype=np.float64)


def told(made: DPShareBest, seen: Array) -> Array:
    """Give what tells most of a world: 1 for the likely points of the first, -1 for those of the second."""
    few = max(1, round(made.likely * len(POINTS)))
    near, far = (np.argsort(-bowl(POINTS, best))[:few] for best in (0.1, 0.9))
    return np.isin(seen, near).astype(np.float64) - np.isin(seen, far)


@pytest.mark.parametrize(("epsilon", "trials"), [pytest.param(0.5, TRIALS, marks=pytest.mark.long), (2.0, TRIALS // 2)])
def test_no_attack_on_votes_finds_more_than_their_epsilon(epsilon: float, trials: int) -> None:
    """All evaluations of the agent differ; the bound is wrong in 1 of 100, and comes near to the claim."""
    made = method(epsilon=epsilon, likely=0.4)
    found = lower_bound(told(made, votes(made, 0.1, trials)), told(made, votes(made, 0.9, trials)), 0.0, 0.99)
    assert 0.3 * epsilon < found <= epsilon


@pytest.mark.long
def test_an_attack_finds_a_vote_that_is_drawn_by_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    made = method(epsilon=1.0, likely=0.4)
    monkeypatch.setattr(dp_share_best, "vote", lambda ranked, likely, epsilon, rng: vote(ranked, likely, 2.5 * epsilon, rng))
    assert lower_bound(told(made, votes(made, 0.1)), told(made, votes(made, 0.9)), 0.0, 0.99) > 1.0


@pytest.mark.parametrize(
    ("size", "likely", "epsilon"),
    [(9, 8, 2.0), *(pytest.param(*one, marks=pytest.mark.long) for one in ((9, 1, 0.3), (2, 1, 1.0), (100, 10, 800.0)))],
)
def test_each_of_the_likely_points_is_chosen_exp_epsilon_times_as_often_as_each_other(
    size: int, likely: int, epsilon: float
) -> None:
    """20,000 draws of seed 5, six standard deviations: a false alarm in 2e-9."""
    rng, order = np.random.default_rng(5), np.random.default_rng(6).permutation(size)
    drawn = np.array([vote(order, likely, epsilon, rng) for _ in range(20_000)])
    others = (size - likely) * np.exp(-epsilon)
    share = likely / (likely + others)
    assert np.isin(drawn, order[:likely]).mean() == pytest.approx(share, abs=6 * np.sqrt(share * (1 - share) / 20_000) + 1e-12)
    counts = np.bincount(drawn, minlength=size)[order[:likely]] / len(drawn)
    assert np.abs(counts - share / likely).max() < 6 * np.sqrt(share / likely / 20_000)


def test_who_knows_nothing_votes_all_the_same_and_a_repeated_vote_is_the_same() -> None:
    made = method()
    empty = made.agent_init(replace(PROBLEM, agent=0), Streams(1, owner=0))
    first, again = (made.outbox(empty, Streams(1, owner=0))[0]["vote"] for _ in range(2))
    assert first.tolist() == again.tolist()
    knowing = made.agent_init(replace(PROBLEM, agent=0, history_x=PLACES, history_y=np.full(8, 3.0)), Streams(1, owner=0))
    assert sorted(made._ranked(knowing, Streams(1, owner=0))) == list(range(25))


def test_several_votes_of_an_agent_add_up_in_the_ledger_and_means_of_evaluations_do_not() -> None:
    made, server = method(epsilon=0.75), method().server_init(PROBLEM)
    told_of = made.disclosure(server, {})
    entries = [local_entry(agent, number, told_of, float(number)) for number, agent in enumerate((0, 1, 0))]
    releases, spent = accounted(table_of(entries, (0, "dp_share_best", 0)), (1e-3,), N)
    assert [row["epsilon"] for row in releases.to_pylist()] == [[0.75], [0.75], [1.5]]
    assert [row["epsilon"] for row in spent.to_pylist()][:3] == [[1.5], [0.75], [0.0]]
    means = [local_entry(0, number, told_of._replace(mechanism="laplace"), 0.0) for number in range(2)]
    assert accounted(table_of(means, (0, "dp_fed_pne", 0)), (1e-3,), N)[0].to_pylist()[-1]["epsilon"] == [0.75]


def test_a_damaged_vote_counts_for_the_nearest_number() -> None:
    made = method()
    server = made.server_init(PROBLEM)
    assert made.broadcast(server, [0], np.ones(N), Streams(1, owner=COORDINATOR))[0] == {}
    made.receive(server, Inbound(0, 0, 0.0, {"vote": np.array([7.2])}), 0.0)
    made.receive(server, Inbound(1, 0, 0.0, {"vote": np.array([-1e300])}), 0.0)
    assert server.votes.tolist()[:3] == [7, 0, -1]


def regret(name: str, epsilon: float, seed: int) -> float:
    """Give the mean regret after two decisions, the first of which are of the portfolio."""
    run = Lockstep(
        entry(name).make(own=QUICK, points=25, epsilon=epsilon),
        PROBLEM,
        noisy(lambda x, agent: bowl(x, 0.8)),
        seed,
        [(PLACES, bowl(PLACES, 0.8))] * N,
    )
    run.begin()
    run.exchange()
    run.run(2)
    return float(np.mean([-max(float(y.max()) for _, y in observed[1:]) for observed in run.observed]))


def test_votes_lead_all_agents_to_where_most_expect_their_optimum_and_random_ones_do_not() -> None:
    """Six seeds; the difference is more than ten times its standard error."""
    apart = [regret("dp_share_best_noise", 4.0, seed) - regret("dp_share_best", 4.0, seed) for seed in range(6)]
    assert np.mean(apart) > 0.02
