"""DP-Fed-PNE: what its noise is, and that the optimum's node survives it only because the confidence is widened."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from phased_play import bernoulli, garland, play
from scipy.stats import kstest, laplace

from fedbo.algorithms.bandits.fed_pne import FedPNE
from fedbo.algorithms.bandits.trees.elimination import Elimination
from fedbo.algorithms.bandits.trees.partitions import Partition
from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams

BEST_X = 0.523599  # of Garland, about which it is as smooth as these say
NU, RHO = 1.33, 0.75
ROUNDS, CLIENTS = 10_000, 10


@dataclass(frozen=True, slots=True)
class Unwidened(FedPNE):
    """The same noise, and a coordinator that does not know of it."""

    def rule(self, problem: Problem) -> Elimination:
        return replace(FedPNE.rule(self, problem), epsilon=math.inf)


def lost(algorithm: FedPNE, seeds: int) -> int:
    """In how many of so many runs the optimum's node is eliminated."""
    count = 0
    for seed in range(seeds):
        server = play(algorithm, [garland] * CLIENTS, ROUNDS, seed, means=bernoulli).server
        count += math.floor(BEST_X * 2**server.depth) not in server.nodes
    return count


@pytest.mark.parametrize("seeds", [10, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("epsilon", [pytest.param(10.0, marks=pytest.mark.long), 1.0, 0.1])
@pytest.mark.parametrize("c", [0.1, pytest.param(math.sqrt(0.5), marks=pytest.mark.long)])
def test_the_node_of_the_optimum_survives_the_noise(c: float, epsilon: float, seeds: int) -> None:
    """With c = sqrt(1/2) the theory says that it is lost with probability 2 / M = 0.2 at most, and it bounds generously.

    With c = 0.1, below the theory, the part of the noise in the width is as it was. Allowed is a tenth of the runs.
    """
    assert lost(FedPNE(nu=NU, rho=RHO, c=c, epsilon=epsilon, clip=True), seeds) <= seeds // 10


@pytest.mark.parametrize("seeds", [10, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("epsilon", [pytest.param(1.0, marks=pytest.mark.long), 0.1])
def test_without_a_wider_confidence_it_is_lost(epsilon: float, seeds: int) -> None:
    """The rate that was claimed is missed by far: the node is lost in more than half of the runs."""
    assert lost(Unwidened(nu=NU, rho=RHO, epsilon=epsilon, clip=True), seeds) > seeds / 2


def test_the_noise_of_a_mean_is_laplace_of_the_scale_one_over_epsilon_and_pulls() -> None:
    """Kolmogorov and Smirnov's test on 4,000 draws, at a false-alarm rate of 1e-3."""
    algorithm, problem = entry("dp_fed_pne").make(epsilon=0.5), Problem(1, 4, (0, 1, 2, 3), 0, 1000, pulls=1000)
    assert isinstance(algorithm, FedPNE)
    noise = []
    for seed in range(2000):
        streams = Streams(seed).of(0)
        decision, state = algorithm.ask(algorithm.agent_init(problem, streams), (), streams.at(1))
        assert decision.clip == (0.0, 1.0) and decision.pulls is not None
        payload, state = algorithm.outbox(algorithm.tell(state, decision.x, np.zeros(len(decision.x))), streams.at(1))
        assert payload is not None
        noise.append(payload["means"] * 0.5 * decision.pulls)
    assert kstest(np.concatenate(noise)[:4000], laplace().cdf).pvalue > 1e-3


@pytest.mark.parametrize("n", [1, 3, 12, 40, 200])
def test_a_mean_of_laplace_draws_is_as_near_to_zero_as_the_width_says(n: int) -> None:
    """2 exp(-L) with L = 3 is 0.0996: the tail of 20,000 means is below, by many of its standard errors, which are 0.002."""
    rule = Elimination(Partition(1), 1.0, 0.75, 0.1, 3.0, n, 1000, 1.0)
    means = np.random.default_rng(n).laplace(size=(20_000, n)).mean(axis=1)
    assert (np.abs(means) > rule.noise_width(n)).mean() < 2 * math.exp(-3.0)


def test_the_width_of_the_noise_has_no_jump_and_its_part_stays_below_the_reach() -> None:
    rule = Elimination(Partition(1), 1.3, 0.75, 0.1, 5.0, 20, 1000, 0.3)
    np.testing.assert_allclose(rule.noise_width(5.0 - 1e-9), rule.noise_width(5.0 + 1e-9), rtol=1e-6)
    for depth in range(1, 12):
        assert rule.noise_width(20) / (0.3 * rule.pulls(depth)) <= rule.reach(depth)
        assert float(rule.width(depth, 20)) <= 2 * rule.reach(depth) + 1e-12
        assert rule.pulls(depth) >= replace(rule, epsilon=math.inf).pulls(depth)


def test_what_a_message_gives_away_is_epsilon_for_each_reward() -> None:
    """A reward in [0, 1] moves the mean of t of them by 1 / t, and the noise has 1 / epsilon times that as its scale."""
    algorithm, problem = entry("dp_fed_pne").make(epsilon=0.5), Problem(1, 4, (0, 1, 2, 3), 0, 1000, pulls=1000)
    assert isinstance(algorithm, FedPNE)
    server = algorithm.server_init(problem)
    told = algorithm.disclosure(server, {"phase": np.array([1]), "means": np.zeros(len(server.nodes))})
    assert told is not None and told.numbers == len(server.nodes)
    assert told.sensitivity == 1.0 / server.rule.pulls(server.depth) and told.scale == 2.0 * told.sensitivity
    assert told.epsilon == 0.5
    assert entry("fed_pne").make().disclosure(server, {}) is None
