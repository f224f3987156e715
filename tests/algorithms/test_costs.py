"""Choices by cost: the index solves its equation, gradients are slopes, prices are in native units, and studies need costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy

from fedbo.algorithms.base import Array, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.gp import STOP
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import ArgumentError, SettingError
from fedbo.study.document import StudyError
from fedbo.study.study import load_study
from fedbo.surrogates.acquisition import LOWEST, Prediction, gittins_index, improvement_per_cost, log_improvement_share
from fedbo.surrogates.gp import predict
from fedbo.tuning.terms import Terms

CASES = [(0.3, 1.0, 0.1), (-2.0, 0.5, 3.0), (1.0, 1e-3, 1e-6), (0.0, 2.0, 1e-9), (5.0, 0.1, 40.0)]


@pytest.mark.parametrize(("mean", "sd", "cost"), CASES)
def test_the_expected_improvement_over_the_index_is_the_cost(mean: float, sd: float, cost: float) -> None:
    at = Prediction(np.array([mean]), np.array([sd**2]), np.zeros((1, 0)), np.zeros((1, 0)))
    index = float(gittins_index(at, np.log([cost]), np.zeros((1, 0)))[0][0])

    def gain(f: float) -> float:
        return float((f - index) * scipy.stats.norm.pdf(f, mean, sd))

    places = [mean + k * sd for k in range(-8, 9) if mean + k * sd > index]
    improvement, _ = scipy.integrate.quad(gain, index, max(index, mean) + 12.0 * sd, points=places, limit=500)
    assert improvement == pytest.approx(cost, rel=1e-5)


def test_the_index_is_where_the_improvement_is_the_cost_for_all_costs_that_numbers_hold() -> None:
    """To a few roundings, by the closed form; beyond 37 standard deviations above the mean it stays there."""
    log_cost = np.concatenate([np.linspace(-680.0, 18.0, 4001), [1e-9, -1e-9, 0.0]])
    some, none = np.ones_like(log_cost), np.zeros((len(log_cost), 0))
    t = -gittins_index(Prediction(0.0 * some, some, none, none), log_cost, none)[0]
    np.testing.assert_allclose(log_improvement_share(t)[0], log_cost, rtol=1e-12, atol=1e-12)
    ends = np.array([-np.inf, -5000.0, 300.0])
    some, none = np.ones(3), np.zeros((3, 0))
    lowest, low, high = gittins_index(Prediction(0.0 * some, some, none, none), ends, none)[0]
    assert lowest == low == -LOWEST and high == -np.exp(300.0)


def test_gradients_are_the_slopes_of_the_values() -> None:
    rng, step = np.random.default_rng(2), 1e-6
    slopes = rng.standard_normal((3, 4))

    def at(x: Array) -> tuple[Prediction, Array, Array]:
        mean, variance, log_cost = slopes @ x
        n = np.ones(1)
        rows = [one[None, :] for one in slopes]
        return Prediction(mean * n, np.exp(variance) * n, rows[0], np.exp(variance) * rows[1]), log_cost * n, rows[2]

    x = rng.random(4)
    for function in (
        lambda x: gittins_index(*at(x)),
        lambda x: improvement_per_cost(at(x)[0], 0.2, *at(x)[1:]),
    ):
        found = [(function(x + d)[0][0] - function(x - d)[0][0]) / (2 * step) for d in step * np.eye(4)]
        np.testing.assert_allclose(function(x)[1][0], found, rtol=1e-5)


def cost_of_place(x: Array) -> Array:
    return np.where(x[:, 0] < 0.5, 0.1, 10.0)


@pytest.mark.parametrize("cost", ["pbgi", "per_cost"])
def test_of_two_hills_the_one_where_evaluations_are_cheap_is_searched(cost: str) -> None:
    algorithm: Any = entry("gp_ei").make(None, cost=cost, **({"price": 0.05} if cost == "pbgi" else {}))
    state = algorithm.agent_init(Problem(1, 1, (0,), 3, 10), Streams(1, owner=0))
    x = np.linspace(0.02, 0.98, 9)[:, None]  # the middle between two hills is bad
    state = algorithm.tell(state, x, np.abs(x[:, 0] - 0.5) * np.cos(12.0 * np.abs(x[:, 0] - 0.5)))
    state = algorithm.costing(state, cost_of_place)
    assert state.costs.tolist() == cost_of_place(x).tolist()
    decision, _ = algorithm.ask(state, [], Streams(1, owner=0).at(1))
    assert decision.x[0, 0] < 0.5 and decision.origin == "own"


def test_a_decision_that_is_not_worth_its_cost_says_so() -> None:
    notes = []
    for price in (1e-6, 1e6):
        algorithm: Any = entry("gp_ei").make(None, cost="pbgi", price=price)
        state = algorithm.tell(
            algorithm.agent_init(Problem(1, 1, (0,), 3, 10), Streams(1, owner=0)),
            np.array([[0.1], [0.4], [0.8]]),
            np.arange(3.0),
        )
        notes.append(algorithm.ask(algorithm.costing(state, cost_of_place), [], Streams(1, owner=0).at(1))[0].note)
    assert notes == [None, "stop: no evaluation is worth its cost"]


def told(y: Array, price: float, **settings: Any) -> tuple[Any, Any, Any]:
    """Tell an agent values at nine points of a line, where each evaluation costs 1, and ask it."""
    algorithm: Any = entry("gp_ei").make(None, cost="pbgi", price=price, **settings)
    state = algorithm.agent_init(Problem(1, 1, (0,), 3, 10), Streams(1, owner=0))
    state = algorithm.tell(state, np.linspace(0.02, 0.98, len(y))[:, None], y)
    return algorithm, *algorithm.ask(algorithm.costing(state, lambda x: np.ones(len(x))), [], Streams(1, owner=0).at(1))


def native_improvement(algorithm: Any, state: Any) -> float:
    """Integrate the improvement in native units over the largest value, at the best point of a fine grid."""
    seen, x = algorithm.seen(state), np.linspace(0.0, 1.0, 2001)[:, None]
    mean, variance = predict(algorithm.posterior(seen), to_coordinates(x, state.axes or algorithm.coordinates))
    z, weights = np.polynomial.hermite_e.hermegauss(200)
    below = state.y.max() - state.y
    middle, hyper = np.median(below), state.hyper

    def native(value: Array) -> Array:
        """Invert the transform of values, which is the identity but for units above the largest one."""
        moved = value * hyper.scale + hyper.offset
        if algorithm.surrogate == "robust":
            return moved
        inside = np.maximum(1.0 - state.power * moved, 1.0)
        q = np.exp(-moved) if state.power == 0.0 else inside ** (1.0 / state.power)
        return np.asarray(state.y.max() + middle * np.where(moved > 0.0, moved, 1.0 - q))

    values = native(mean[:, None] + np.sqrt(variance)[:, None] * z)
    return float((np.maximum(values - state.y.max(), 0.0) @ weights / weights.sum()).max())


BAD = np.array([0.2, 0.9, 0.7, 0.1, 0.3, -0.4, -1.0, -1.3, -0.9])


@pytest.mark.parametrize("worst", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("surrogate", ["warped", "suited", "robust"])
def test_an_agent_stops_where_no_evaluation_gains_its_price_in_native_units(surrogate: str, worst: float) -> None:
    """By quadrature through the inverse of the transform, to 3 %: very bad values make the two units differ by 1e5."""
    y = BAD - worst * np.array([0, 0, 0, 0, 0, 0, 0, 0.5, 1.0])
    settings = {"surrogate": surrogate, "incumbent": "observed", "clip": 0.0}
    algorithm, _, state = told(y, 1.0, **settings)
    gain = native_improvement(algorithm, state)
    assert told(y, 1.03 * gain, **settings)[1].note == STOP
    assert told(y, 0.97 * gain, **settings)[1].note is None


def test_the_unit_of_the_price_is_that_of_the_values() -> None:
    first = told(BAD, 0.02)[1]
    for scale, shift in ((1e-6, 0.0), (1e6, 5e6)):
        other = told(scale * BAD + shift, scale * 0.02)[1]
        assert other.note == first.note
        np.testing.assert_allclose(other.x, first.x, atol=1e-4)


def test_without_a_transform_the_unit_is_the_standard_deviation() -> None:
    algorithm, _, state = told(BAD, 0.02, surrogate="robust", clip=0.0)
    assert algorithm.unit(state) == pytest.approx(BAD.std())


def study(objective: str, **settings: Any) -> dict[str, Any]:
    return {
        "study": {"name": "costs"},
        "objective": {"name": objective, "agents": 2},
        "budget": {"iterations": 3},
        "algorithm": [{"name": "gp_ei", **settings}],
    }


def test_costs_are_refused_where_there_are_none_and_for_bounds() -> None:
    words = "requires an objective that reports costs, and 'branin' reports none; set cost = \"ignored\""
    with pytest.raises(StudyError, match=words):
        load_study(study("branin", cost="pbgi"))
    load_study(study("quadratic", cost="pbgi"))
    with pytest.raises(SettingError, match='requires expected improvement; use gp_ei, or set cost = "ignored"'):
        entry("gp_ucb").make(None, cost="per_cost")
    with pytest.raises(SettingError, match='stop.*compares Gittins indices; set cost = "pbgi", or false'):
        entry("gp_ei").make(None, cost="per_cost", stop=True)
    with pytest.raises(ArgumentError, match="chooses by costs, which nothing tells here; set cost to 'ignored'"):
        Terms({"name": "gp_ei", "cost": "pbgi"})


@pytest.mark.parametrize(("name", "settings"), [("gp_ei", {"cost": "pbgi"}), ("fed_prior", {"feasibility": True})])
def test_costs_and_shared_feasibility_are_refused_beside_several_metrics(name: str, settings: dict[str, Any]) -> None:
    problem = replace(Problem(2, 2, (0, 1), 3, 5), constraints=1)
    chosen, default = entry(name).make(None, **settings), entry(name).make(None)
    assert next(iter(settings)) in chosen.handles(problem).replace("costs", "cost")  # type: ignore[attr-defined]
    assert default.handles(problem) == ""  # type: ignore[attr-defined]
