"""Three numbers of the table by hand, from lock-step runs and NumPy alone: points that are said, values, the best point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.learned_prior.prior_space import common_points
from fedbo.objectives.catalog import catalogue
from fedbo.surrogates.features import phi
from fedbo.testing.lockstep import Lockstep, noisy
from fedbo_leak.attacks import best_point, observations
from fedbo_leak.lockstep import values_of, watch_lockstep
from fedbo_leak.measuring import CHEAP, LeakRow, measure
from fedbo_leak.readings import COORDINATOR

AGENTS, SEEDS, STEPS = 3, 2, 6
GP = catalogue()["gp_family"](agents=AGENTS, likeness=0.5)
PROBLEM = Problem(2, AGENTS, tuple(range(AGENTS)), 3, STEPS)


def attacked(name: str, target: str, attack: str) -> LeakRow:
    made = entry(name).make()
    heard = [watch_lockstep(made, PROBLEM, values_of(GP, seed), seed, GP) for seed in range(SEEDS)]
    (row,) = (one for one in measure(name, heard, (COORDINATOR,), CHEAP) if (one.target, one.attack) == (target, attack))
    return row


def by_hand(name: str) -> list[tuple[Lockstep, int, Array, Array, list[Any]]]:
    """Return each agent of each run: its points, its values and its messages."""
    found = []
    for seed in range(SEEDS):
        run = Lockstep(entry(name).make(), PROBLEM, noisy(values_of(GP, seed)), seed)
        run.begin()
        run.exchange()
        run.run(STEPS)
        for agent in range(AGENTS):
            x, y = (np.concatenate([told[place] for told in run.observed[agent]]) for place in (0, 1))
            found.append((run, agent, x, y, [sent[agent] for sent in run.sent if agent in sent]))
    return found


def test_the_share_of_points_that_trust_best_says() -> None:
    shares = []
    for _, _, x, _, messages in by_hand("trust_best"):
        said = np.array([message["x"] for message in messages])
        shares.append(np.mean([np.sqrt(((said - point) ** 2).mean(axis=1)).min() <= 0.02 for point in x]))
    row = attacked("trust_best", observations.POINTS, "said")
    assert row.value == pytest.approx(np.mean(shares), abs=1e-12) and 0.1 < row.value < 0.9


def test_the_variance_of_values_that_draws_explain() -> None:
    cube, shares = np.random.default_rng(0).random((4096, 2)), []
    for run, agent, x, y, messages in by_hand("fts"):
        features, own = run.states[agent].features, run.algorithm.own.coordinates  # type: ignore[attr-defined]
        omega = np.array([message["omega"] for message in messages])[len(messages) // 2 :]
        scale = np.std(omega @ phi(features, to_coordinates(cube, own)).T, axis=1)
        function = np.mean(omega @ phi(features, to_coordinates(x, own)).T / scale[:, None], axis=0)
        shares.append(max(0.0, np.corrcoef(function, y)[0, 1]) ** 2)
    row = attacked("fts", observations.VALUES, "mean function")
    assert row.value == pytest.approx(np.mean(shares), abs=0.01) and row.value > 0.5


def test_the_best_point_is_where_the_newest_message_of_a_learned_prior_is_largest() -> None:
    """A design point is nearest; the attack goes on between them, so both are equal up to half a cell of the design."""
    gaps = []
    for run, _, x, y, messages in by_hand("fed_prior"):
        design = common_points(run.algorithm.points, 2, None)  # type: ignore[attr-defined]
        guess = design[int(np.argmax(messages[-1]["values"]))]
        gaps.append(np.sqrt(np.mean((guess - x[int(y.argmax())]) ** 2)))
    row = attacked("fed_prior", best_point.BEST, "newest summit")
    assert row.value == pytest.approx(np.mean(gaps), abs=0.05) and row.value < 0.5 * row.guess
