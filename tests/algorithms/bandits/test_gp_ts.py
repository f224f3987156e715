"""GP-TS: the constants of the paper, points in flight, and that it learns."""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.bandits.arms import correlations, deviations, draw, draw_independent, grid
from fedbo.algorithms.bandits.gp_ts import GPTS
from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.testing.lockstep import Lockstep, noisy


def _bump(x: np.ndarray, agent: int) -> np.ndarray:
    return np.asarray(np.exp(-0.5 * ((x[:, 0] - 0.63) / 0.15) ** 2))


def test_lambda_and_v_are_those_of_the_paper() -> None:
    algorithm = GPTS(arms=20, norm=2.0, deviation=0.3, delta=0.05)
    state = algorithm.agent_init(Problem(1, 1, (0,), 0, 50, pulls=400), Streams(0))
    assert state.regulariser == 1.0 + 2.0 / 400.0
    played = [3, 3, 17, 5]
    for arm in played:
        state = algorithm.tell(state, grid(1, 20)[[arm]], np.array([0.4]))
    gram = correlations("se", 0.2, grid(1, 20))[np.ix_(played, played)]
    gain = 0.5 * np.linalg.slogdet(np.eye(4) + gram / state.regulariser)[1]
    assert algorithm.scale(state.posterior) == pytest.approx(2.0 + 0.3 * sqrt(2.0 * (gain + 1.0 + log(2.0 / 0.05))))


def test_without_a_budget_of_pulls_the_decisions_are_the_horizon() -> None:
    assert GPTS(arms=5).agent_init(Problem(1, 1, (0,), 0, 50), Streams(0)).regulariser == 1.0 + 2.0 / 50.0


def test_the_preset_has_the_independent_draws_of_the_other_code() -> None:
    algorithm = entry("gp_ts").make("dai2023", arms=30)
    assert isinstance(algorithm, GPTS)
    state = algorithm.agent_init(Problem(1, 1, (0,), 0, 50), Streams(0))
    # lambda nu = 0.01 is the variance of a first draw, and there is no v_t.
    np.testing.assert_allclose(algorithm.scale(state.posterior) * deviations(state.posterior), 0.1)
    assert state.regulariser == 0.1


@pytest.mark.parametrize(("draws", "sample"), [("joint", draw), ("diagonal", draw_independent)])
def test_a_decision_is_the_arm_at_which_the_declared_draw_is_largest(draws: str, sample: Any) -> None:
    algorithm = GPTS(arms=25, draws=draws)
    state = algorithm.agent_init(Problem(2, 1, (0,), 0, 50), Streams(1))
    for step in range(1, 6):
        streams = Streams(1).at(step)
        values = sample(state.posterior, streams.rng("arms drawn"), algorithm.scale(state.posterior))
        decision, state = algorithm.ask(state, (), streams)
        np.testing.assert_array_equal(decision.x[0], state.arms[np.argmax(values)])
        state = algorithm.tell(state, decision.x, np.array([float(step)]))


def test_points_in_flight_may_come_back_in_any_order() -> None:
    algorithm, streams = GPTS(arms=25), Streams(1)
    state = algorithm.agent_init(Problem(2, 1, (0,), 0, 50), streams)
    asked = []
    for step in range(1, 7):
        decision, state = algorithm.ask(state, (), streams.at(step))
        asked.append(decision.x)
    x = np.concatenate(asked)
    y = np.arange(6.0)
    together, apart = algorithm.tell(state, x, y), state
    for place in (5, 2, 0, 4, 1, 3):
        apart = algorithm.tell(apart, x[[place]], y[[place]])
    np.testing.assert_allclose(together.posterior.mean, apart.posterior.mean, atol=1e-12)
    np.testing.assert_allclose(deviations(together.posterior), deviations(apart.posterior), atol=1e-12)


@pytest.mark.parametrize("given", [{"kernel": "matern52"}, {"draws": "diagonal", "regulariser": 0.1, "multiplier": 0.3}])
def test_it_finds_a_bump_under_noise(given: dict[str, object]) -> None:
    """Uniform play loses 0.63 a round; a third of that over the last 100 of 400 rounds is no question of luck (seed 0)."""
    problem = Problem(1, 1, (0,), 0, 400, pulls=400)
    run = Lockstep(GPTS(arms=40, norm=0.5, **given), problem, noisy(_bump, 0.1)).run()  # type: ignore[arg-type]
    late = np.concatenate([decisions[0].x for decisions in run.decisions[-100:]])
    assert np.mean(1.0 - _bump(late, 0)) < 0.21
    assert all(len(decisions[0].x) == 1 for decisions in run.decisions)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"arms": 0}, "arms must be at least 1, not 0"),
        ({"kernel": "rbf"}, "no kernel 'rbf'"),
        ({"draws": "independent"}, "no draws 'independent'"),
        ({"regulariser": 0.0}, "regulariser must be above 0, not 0.0"),
        ({"norm": -1.0}, "norm must be at least 0, not -1.0"),
        ({"delta": 1.0}, r"delta must be in \(0, 1\), not 1.0"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GPTS(**given)  # type: ignore[arg-type]
