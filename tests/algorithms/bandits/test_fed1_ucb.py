"""Fed1-UCB against a plain implementation of its own, its survival rate, the cut at T, and what trouble does to it."""

from __future__ import annotations

from math import ceil, log, sqrt

import numpy as np
import pytest

from fedbo.algorithms.bandits.arms import grid, nearest
from fedbo.algorithms.bandits.fed1_ucb import Fed1UCB
from fedbo.algorithms.base import Decision, Problem
from fedbo.algorithms.streams import Streams
from fedbo.testing.lockstep import Evaluate, Lockstep, noisy, pulls

# The demonstration of the authors: ten arms, and five agents each of which sees two arms much better than they are for all.
GLOBAL = np.array([0.7, 0.71, 0.72, 0.73, 0.74, 0.75, 0.76, 0.765, 0.77, 0.79])
LOCAL = GLOBAL * (0.2 + 4.0 * (np.eye(10) + np.eye(10)[::-1])[:5])


def lockstep(algorithm: Fed1UCB, evaluate: Evaluate, agents: int, rounds: int, seed: int = 0) -> Lockstep:
    return Lockstep(algorithm, Problem(1, agents, tuple(range(agents)), 0, rounds, pulls=rounds), evaluate, seed)


def tabled(decision: Decision, streams: Streams) -> np.ndarray:
    """Every agent's draws of an arm's phase are fixed by their numbers, so that another implementation can have the same."""
    arms = nearest(grid(1, 10), decision.x)
    drawn = zip(arms, pulls(decision), strict=True)
    return np.array([phase_mean(streams.step, streams.owner, arm, times) for arm, times in drawn])


def phase_mean(phase: int, agent: int, arm: int, pulls: int) -> float:
    rng = np.random.default_rng([phase, agent, arm])
    return float(LOCAL[agent, arm] + 0.5 / sqrt(pulls) * rng.standard_normal())


def plainly(rounds: int) -> tuple[list[list[int]], int]:
    """Fed1-UCB as one loop over all agents, as the paper tells it: the active arms of every phase, and the messages."""
    length, total, n, spent, active, history = ceil(10 * log(rounds)), np.zeros((5, 10)), 0, 0, list(range(10)), []
    while len(active) > 1 and spent + len(active) * length <= rounds:
        history.append(active)
        for arm in active:
            for agent in range(5):
                total[agent, arm] += length * phase_mean(len(history), agent, arm, length)
        n, spent = n + length, spent + len(active) * length
        means = {arm: total[:, arm].mean() / n for arm in active}
        bound = sqrt(4 * 0.5**2 * log(rounds) / (5 * n))
        active = [arm for arm in active if means[arm] + bound >= max(means.values()) - bound]
    return [*history, active], 5 * len(history)


@pytest.mark.parametrize(("rounds", "decided"), [(20_000, False), (1_000_000, True)])
def test_the_demonstration_of_the_authors_goes_as_in_a_plain_loop(rounds: int, decided: bool) -> None:
    run = lockstep(Fed1UCB(arms=10), tabled, 5, rounds).run()
    phases, messages = plainly(rounds)
    asked = [sorted(nearest(run.states[0].x, decisions[0].x).tolist()) for decisions in run.decisions]
    if decided:
        assert asked == phases and phases[-1] == [9]
        assert sum(map(len, run.sent)) == messages, "with one arm left nobody speaks"
    else:  # the last phase is cut
        assert asked[:-1] == phases[:-1] and set(asked[-1]) < set(phases[-1]) < set(range(10))
    assert (run.spent == rounds).all()


def test_the_best_arm_survives() -> None:
    """An arm's mean leaves its bound with probability 2 T^-2 at most, for each of 10 arms and at most 4 phases: 40 runs raise
    a false alarm with probability 2e-4 at most; seeds 0 to 39."""

    def values(x: np.ndarray, agent: int) -> np.ndarray:
        return np.asarray(x[:, 0] + 0.6 * (agent - 2.0) * (x[:, 0] - 0.5))  # the mean over the agents is x itself

    left = []
    for seed in range(40):
        run = lockstep(Fed1UCB(arms=10, sigma=0.3), noisy(values, 0.3), 5, 4000, seed).run()
        assert run.server.active[-1]
        left.append(run.server.active.sum())
    assert np.mean(left) <= 2.0, "nearly all others are gone"


@pytest.mark.parametrize(("arms", "rounds"), [(10, 7), (10, 1), (10, 1234), (3, 5000), (1, 50)])
def test_every_agent_makes_exactly_its_pulls(arms: int, rounds: int) -> None:
    run = lockstep(Fed1UCB(arms=arms), noisy(lambda x, agent: x[:, 0], 0.1), 2, rounds).run()
    assert (run.spent == rounds).all()
    assert run.step <= run.algorithm.phases(run.problem)  # type: ignore[attr-defined]


def test_an_agent_without_answer_goes_on_with_its_arms_and_is_believed_for_all_its_pulls() -> None:
    run = lockstep(Fed1UCB(arms=4, sigma=0.2), noisy(lambda x, agent: 0.5 * x[:, 0], 0.2), 2, 4000)
    run.act()
    run.exchange(deaf=[1])
    run.act()
    run.exchange()
    phase = ceil(10 * log(4000))
    dropped = ~run.server.active
    assert dropped.any() and (run.server.pulls[1] == 2 * phase).all()
    assert (run.server.pulls[0][run.server.active] == 2 * phase).all()
    run.run()
    assert run.server.active.tolist() == [False, False, False, True] and (run.spent == 4000).all()


def test_nothing_is_dropped_before_all_are_heard_unless_that_is_wished() -> None:
    def values(x: np.ndarray, agent: int) -> np.ndarray:
        return np.asarray(x[:, 0] if agent else 1.0 - x[:, 0])

    for missing in ("wait", "mean"):
        run = lockstep(Fed1UCB(arms=4, sigma=0.1, missing=missing), noisy(values), 2, 4000)
        run.act()
        run.exchange(mute=[0])
        assert run.server.active.all() == (missing == "wait")
        run.act()
        assert {one.origin for one in run.decisions[-1].values()} == {"federated"}
        assert {one.note for one in run.decisions[-1].values()} == {None if missing == "wait" else "1 missing"}


def test_bounds_of_unequal_pulls_are_those_of_a_mean_of_means() -> None:
    algorithm = Fed1UCB(sigma=0.3, constant=6.0)
    mean, pulls = np.array([[0.5, 0.2, 0.0], [0.5, 0.4, 0.0]]), np.array([[100, 100, 50], [40, 200, 0]])
    bound = np.sqrt(6 * 0.09 * log(1000) * (1 / pulls[0, :2] + 1 / pulls[1, :2]) / 4)
    kept = algorithm.kept(mean, pulls, 1000)
    assert kept.tolist() == [True, 0.3 + bound[1] >= 0.5 - bound[0], True]
    assert algorithm.kept(mean, 20 * pulls, 1000).tolist() == [True, False, True]


def test_it_has_to_know_how_many_evaluations_there_are() -> None:
    with pytest.raises(ValueError, match="set \\[budget\\] pulls instead of iterations"):
        Fed1UCB().upload(Problem(1, 2, (0, 1), 0, 50))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arms": 0}, "arms must be at least 1, not 0"),
        ({"sigma": 0.0}, "sigma must be above 0 and finite, not 0.0"),
        ({"missing": "men"}, "no missing 'men'; did you mean 'mean'"),
    ],
)
def test_settings_that_make_no_sense_are_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Fed1UCB(**given)  # type: ignore[arg-type]
