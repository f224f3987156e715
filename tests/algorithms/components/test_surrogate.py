"""The agent's own model: learned coordinates, what suits few and many inputs, and states that stay plain data."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.coordinates import COORDINATES, from_coordinates, to_coordinates
from fedbo.algorithms.components.surrogate import KEPT, LocalState, Surrogate
from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed
from fedbo.surrogates.posterior import factorise


def told(name: str, dim: int, n: int, function: Any, **settings: Any) -> tuple[Any, LocalState]:
    algorithm: Any = entry(name).make(**settings)
    state = algorithm.agent_init(Problem(dim, 1, [0], n, 10, 0), Streams(3, owner=0))
    x = np.random.default_rng(dim).random((n, dim))
    return algorithm, algorithm.tell(state, x, function(x))


def decades(x: np.ndarray) -> np.ndarray:
    """The first input spans four decades on a linear axis, the others none."""
    return -((np.log10(1e-4 + x[:, 0]) + 2.0) ** 2) - 0.3 * ((x[:, 1:] - 0.4) ** 2).sum(axis=1)


def bowl(x: np.ndarray) -> np.ndarray:
    return -((x - np.array([0.31, 0.77])) ** 2).sum(axis=1) - 0.1 * (1.0 - np.cos(6.0 * x[:, 0] - 1.86))


@pytest.mark.parametrize("names", [("plain", "arcsine", "stretched"), ("stretched",) * 3, "learned"])
def test_coordinates_of_each_input_lead_back(names: Any) -> None:
    x = np.random.default_rng(0).random((20, 3))
    u = to_coordinates(x, names)
    np.testing.assert_allclose(from_coordinates(u, names), x, atol=1e-12)
    for k, name in enumerate(names if isinstance(names, tuple) else ("plain",) * 3):
        np.testing.assert_array_equal(u[:, k], to_coordinates(x, name)[:, k])


def test_learned_coordinates_begin_with_arcsine_in_two_inputs_and_plain_in_three() -> None:
    x = np.random.default_rng(0).random((5, 3))
    assert (to_coordinates(x, "learned") == x).all()
    assert (to_coordinates(x[:, :2], "learned") == to_coordinates(x[:, :2], "arcsine")).all()


def test_an_input_that_spans_decades_on_a_linear_axis_is_stretched_and_the_others_are_left() -> None:
    algorithm, state = told("gp_ei", 4, 40, decades)
    for step in range(1, 6):  # some inputs are tried in each fit
        state = algorithm.fit(changed(state, fitted=0), Streams(3, owner=0).at(step))
    assert state.axes is not None
    assert state.axes[0] != "plain"
    assert state.axes[1:].count("plain") >= 2
    assert set(state.axes) <= set(COORDINATES)


def test_smooth_functions_keep_the_coordinates_to_begin_with() -> None:
    algorithm, state = told("gp_ei", 3, 30, lambda x: np.sin(3.0 * x).sum(axis=1))
    for step in range(1, 4):
        state = algorithm.fit(changed(state, fitted=0), Streams(3, owner=0).at(step))
    assert state.axes == ("plain",) * 3


@pytest.mark.parametrize("name", ["ts", "gp_ei"])
def test_a_decision_lies_in_the_cube_and_a_state_stays_plain_data(name: str) -> None:
    algorithm, state = told(name, 3, 15, decades)
    for step in range(1, 8):
        decision, state = algorithm.ask(pickle.loads(pickle.dumps(state)), (), Streams(3, owner=0).at(step))
        assert ((decision.x >= 0.0) & (decision.x <= 1.0)).all()
        state = algorithm.tell(state, decision.x, decades(decision.x))


def test_the_suited_surrogate_is_warped_in_three_inputs() -> None:
    decisions = []
    for surrogate in ("suited", "warped"):
        algorithm, state = told("ts", 3, 12, lambda x: -np.exp(3.0 * x).sum(axis=1), surrogate=surrogate)
        decisions.append(algorithm.ask(state, (), Streams(3, owner=0).at(1))[0].x)
    assert (decisions[0] == decisions[1]).all()


@pytest.mark.long
def test_in_two_inputs_the_suited_surrogate_solves_what_robust_leaves_at_its_noise() -> None:
    """The floor under the noise of "robust" stops it at some thousandths of the range; six paired searches of 40 points."""
    left: dict[str, list[float]] = {"suited": [], "robust": []}
    for surrogate, seed in itertools.product(left, range(6)):
        algorithm, state = told("ts", 2, 5, bowl, surrogate=surrogate)
        for step in range(1, 36):
            decision, state = algorithm.ask(state, (), Streams(seed, owner=0).at(step))
            state = algorithm.tell(state, decision.x, bowl(decision.x))
        left[surrogate].append(-float(state.y.max()))
    assert np.median(left["suited"]) < 0.1 * np.median(left["robust"])


def test_a_trust_region_keeps_a_draw_of_many_inputs_near_the_best_point() -> None:
    """After so many failures the region is small; over the whole cube the draw is largest far away."""
    x = np.random.default_rng(1).random((30, 8))
    y = np.concatenate([[2.0], np.random.default_rng(2).uniform(-1.0, 1.0, 29)])  # the first is the best
    far = []
    for region in ("trust", "cube"):
        algorithm: Any = entry("ts").make(region=region, beta=3.0)
        state = algorithm.tell(algorithm.agent_init(Problem(8, 1, [0], 30, 9, 0), Streams(1, owner=0)), x, y)
        decision, _ = algorithm.ask(state, (), Streams(1, owner=0).at(1))
        far.append(float(np.abs(decision.x[0] - x[0]).max()))
    assert far[0] < 0.25 < far[1]


def noisy_bowl(x: np.ndarray) -> np.ndarray:
    return bowl(x) + 0.05 * np.random.default_rng(7).standard_normal(len(x))


def fits(monkeypatch: pytest.MonkeyPatch, name: str, until: int, odd: int = 0, **settings: Any) -> tuple[list[int], list[int]]:
    """The numbers of observations at which an agent chose transformations, and at which it only climbed on."""
    whole, quick = list[int](), list[int]()
    choose, climb = Surrogate._warped, Surrogate._warped_along
    monkeypatch.setattr(
        Surrogate, "_warped", lambda self, state, *more: whole.append(len(state.u)) or choose(self, state, *more)
    )
    monkeypatch.setattr(
        Surrogate, "_warped_along", lambda self, state, *more: quick.append(len(state.u)) or climb(self, state, *more)
    )
    algorithm, state = told(name, 2, until, noisy_bowl, **settings)
    x, y = np.random.default_rng(2).random((until, 2)), state.y.copy()
    if odd:
        y[odd:] += 40.0
    state = algorithm.agent_init(Problem(2, 1, [0], until, 10, 0), Streams(3, owner=0))
    for n in range(until):
        state = algorithm.fit(algorithm.tell(state, x[n : n + 1], y[n : n + 1]), Streams(3, owner=0).at(n))
    return whole, quick


def test_transformations_are_chosen_ever_more_seldom_and_hyperparameters_follow_each_observation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, quick = fits(monkeypatch, "gp_ei", 60)
    assert whole[:20] == list(range(1, 21))
    apart = np.diff([n for n in whole if n >= 20])
    assert apart.min() >= 1
    assert 2 <= apart[-2:].min()
    assert sorted(whole + quick)[:49] == list(range(1, 50))
    assert np.diff(sorted(whole + quick)[49:]).max() == 2


def test_values_far_from_their_predictions_hasten_the_next_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = fits(monkeypatch, "gp_ei", 60)[0]
    monkeypatch.undo()
    at = next(n for n in range(40, 60) if n not in usual and n - 1 not in usual)
    hastened = fits(monkeypatch, "gp_ei", at, odd=at - 1)[0]
    assert hastened[:-1] == [n for n in usual if n < at]
    assert hastened[-1] == at


def test_every_method_keeps_its_own_least_distance_between_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, quick = fits(monkeypatch, "ts", 40)
    assert whole == [1, 6, 11, 16, 21, 26, 31, 36]
    assert quick == []


@pytest.mark.parametrize("name", ["gp_ei", "ts", "fed_prior", "trust_best"])
def test_a_decision_by_thousands_of_observations_takes_as_much_as_by_hundreds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost is what is factorised: no matrix has more rows than `KEPT` and those under way."""
    sizes = list[int]()

    def watched(covariance: Any, *more: Any) -> Any:
        sizes.append(len(covariance))
        return factorise(covariance, *more)

    for module in ("fedbo.surrogates.posterior", "fedbo.algorithms.learned_prior.learned_prior"):
        monkeypatch.setattr(f"{module}.factorise", watched)
    algorithm = entry(name).make()
    state = algorithm.agent_init(Problem(2, 1, [0], 2000, 10, 0), Streams(3, owner=0))
    x = np.random.default_rng(2).random((2000, 2))
    state = algorithm.tell(state, x, noisy_bowl(x))
    state = algorithm.pending(state, np.array([[0.1, 0.2], [0.3, 0.9]]))
    decision, _ = algorithm.ask(state, (), Streams(3, owner=0).at(1))
    assert decision.x.shape == (1, 2)
    assert max(sizes, default=0) <= KEPT + 2
    assert np.abs(decision.x - [0.31, 0.77]).max() < 0.25  # and it still knows where the values are large
