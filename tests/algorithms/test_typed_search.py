"""Algorithms in typed spaces and with points under way: what they ask can be evaluated, and acquisitions are compared there."""

from __future__ import annotations

import itertools
import json
from typing import Any

import ConfigSpace as CS
import numpy as np
import pytest

from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.algorithms.base import Avoiding, Overlapping, Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.inner_search import maximise_draw
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.components.typed_coordinates import embedded, restored
from fedbo.algorithms.streams import Streams
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.surrogates.draws import Draw, value
from fedbo.surrogates.features import draw_features

# The methods of ADMM ask for their own iterates, and leave it to the objective to round them.
AVOIDING = [name for name in algorithms() if isinstance(entry(name).make(None), Avoiding) and "admm" not in name]
OVERLAPPING = [name for name in algorithms() if isinstance(entry(name).make(None), Overlapping)]


def space(**parameters: Any) -> Space:
    return read_space(json.dumps(CS.ConfigurationSpace(parameters, seed=0).to_serialized_dict()))


def drawn(dim: int, seed: int) -> Draw:
    rng = np.random.default_rng(seed)
    return Draw(draw_features(rng, dim, 100, 0.3), rng.standard_normal(100))


@pytest.mark.parametrize("seed", range(5))
def test_among_whole_numbers_and_categories_the_very_best_point_is_found(seed: int) -> None:
    typed = space(n=(1, 12), kind=["a", "b", "c"], m=(1, 9))
    draw = drawn(3, seed)
    own = LocalState(np.empty((0, 3)), np.empty(0), lattice=typed)
    every = to_coordinates(np.array(list(itertools.product(*(typed.centres(axis) for axis in range(3))))), "arcsine")
    u = maximise_draw(draw, own, "arcsine", Streams(seed))
    assert value(draw, u[None, :])[0] == pytest.approx(value(draw, every).max(), abs=1e-12)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_with_real_numbers_beside_them_nothing_on_a_fine_grid_is_better(seed: int) -> None:
    typed = space(n=(1, 4000), x=(0.0, 1.0))
    draw = drawn(2, seed)
    names = [parameter.name for parameter in typed.parameters]
    own = LocalState(np.empty((0, 2)), np.empty(0), lattice=typed)
    u = maximise_draw(draw, own, "plain", Streams(seed))
    assert np.array_equal(typed.project(u[None, :])[0], u)
    grid = np.stack(np.meshgrid(typed.centres(names.index("n"))[::20], np.linspace(0, 1, 300)), -1).reshape(-1, 2)
    grid = grid if names[0] == "n" else grid[:, ::-1]
    assert value(draw, u[None, :])[0] >= value(draw, grid).max() - 1e-9


def told(name: str, typed: Space | None, n: int, dim: int = 2) -> tuple[Any, Any, Streams]:
    """Give an algorithm with the state of an agent that has seen `n` points."""
    algorithm, streams = entry(name).make(None), Streams(3)
    problem = Problem(dim, 2, (0, 1), 3, 10, agent=0, rounds=False, lattice=typed)
    x = np.random.default_rng(1).random((n, dim))
    x = typed.project(x) if typed else x
    state = algorithm.tell(algorithm.agent_init(problem, streams), x, -((x - 0.4) ** 2).sum(axis=1))
    return algorithm, state, streams


@pytest.mark.parametrize("name", ["ts", "fts", "gp_ei", "gp_ucb", "pooled", "fed_prior_alone"])
def test_what_is_asked_in_a_typed_space_can_be_evaluated(name: str) -> None:
    typed = space(n=(1, 50), kind=["a", "b", "c"])
    algorithm, state, streams = told(name, typed, 6)
    for step in range(1, 4):
        state = unpack(pack(state))  # the space travels with the state
        decision, state = algorithm.ask(state, (), streams.at(step))
        assert np.array_equal(typed.project(decision.x), decision.x)
        state = algorithm.tell(state, decision.x, -((decision.x - 0.4) ** 2).sum(axis=1))


@pytest.mark.parametrize("name", ["ts", *(pytest.param(name, marks=pytest.mark.long) for name in ("gp_ei", "gp_ucb"))])
def test_a_whole_number_is_optimised_correctly_on_a_known_function(name: str) -> None:
    typed = space(n=CS.Integer("n", (1, 10_000), log=True), k=(1, 8))
    names = [parameter.name for parameter in typed.parameters]
    algorithm, state, streams = told(name, typed, 0)
    best: dict[str, Any] = {}
    top = -np.inf
    for step in range(1, 41):
        decision, state = algorithm.ask(state, (), streams.at(step))
        found = typed.decode(decision.x[0])
        worth = -((np.log(found["n"] / 37)) ** 2) - 0.3 * (found["k"] - 6) ** 2
        if worth > top:
            best, top = found, worth
        state = algorithm.tell(state, decision.x, np.array([worth]))
    assert set(best) == set(names)
    assert best["k"] == 6
    assert 33 <= best["n"] <= 41


@pytest.mark.parametrize("name", OVERLAPPING)
def test_points_under_way_are_not_asked_again(name: str) -> None:
    algorithm, state, streams = told(name, None, 8)
    asked = np.empty((0, 2))
    for step in range(1, 5):
        state = algorithm.pending(state, asked)
        decision, state = algorithm.ask(state, (), streams.at(step))
        if len(asked):
            assert np.abs(asked - decision.x).max(axis=1).min() > 1e-6
        asked = np.concatenate([asked, decision.x])
    state = algorithm.tell(algorithm.pending(state, asked[:0]), asked, -((asked - 0.4) ** 2).sum(axis=1))
    decision, _ = algorithm.ask(state, (), streams.at(9))
    assert decision.x.shape == (1, 2)


@pytest.mark.parametrize("name", ["gp_ei", "gp_ucb"])
def test_without_word_of_points_under_way_the_same_one_is_asked_again(name: str) -> None:
    algorithm, state, streams = told(name, None, 8)
    first, state = algorithm.ask(state, (), streams.at(1))
    again, _ = algorithm.ask(state, (), streams.at(2))
    assert np.abs(first.x - again.x).max() < 1e-3
    other, _ = algorithm.ask(algorithm.pending(state, first.x), (), streams.at(2))
    assert np.abs(first.x - other.x).max() > 1e-3


def test_those_that_can_decide_with_points_under_way_are_known() -> None:
    assert {"ts", "fts", "gp_ei", "gp_ucb", "random", "share_best"} <= set(OVERLAPPING)
    assert not {"admm_consensus", "pooled", "gp_ts"} & set(OVERLAPPING)


def conditional(**defaults: Any) -> Space:
    """Give a space of two kinds of model, of which each has its own number, and a category of four."""
    made = CS.ConfigurationSpace(seed=0)
    kind, shape = CS.Categorical("kind", ["a", "b"]), CS.Categorical("shape", ["p", "q", "r", "s"])
    own = [CS.Float(name, (0.0, 1.0), default=defaults.get(name, 0.5)) for name in ("of a", "of b")]
    made.add(kind, shape, *own)
    made.add([CS.EqualsCondition(own[0], kind, "a"), CS.EqualsCondition(own[1], kind, "b")])
    return read_space(json.dumps(made.to_serialized_dict()))


def test_no_category_is_nearer_to_another_by_its_place_in_the_list() -> None:
    typed = space(kind=["a", "b", "c", "d", "e"], x=(0.0, 1.0))
    axes = ("plain",) * 2
    x = np.column_stack([typed.centres(0), np.full(5, 0.3)])
    u = embedded(x, axes, typed)
    apart = np.linalg.norm(u[:, None] - u[None, :], axis=-1)
    np.testing.assert_allclose(apart, 1.0 - np.eye(5), atol=1e-12)
    np.testing.assert_allclose(typed.project(restored(u, axes, typed)), typed.project(x), atol=1e-12)


@pytest.mark.parametrize(
    ("choices", "ordered"), [([16, 32, 64], True), ([3, 1, 2], False), ([True, False], False), (["a", "b", "c"], False)]
)
def test_choices_that_are_numbers_in_order_keep_it_and_others_have_none(choices: list[Any], ordered: bool) -> None:
    assert space(kind=choices).unordered == (() if ordered else (0,))
    assert space(kind=CS.OrdinalHyperparameter("kind", choices)).unordered == ()


@pytest.mark.parametrize(
    "name", ["ts", "fed_prior_alone", *(pytest.param(name, marks=pytest.mark.long) for name in ("gp_ei", "gp_ucb"))]
)
def test_where_an_inactive_parameter_stands_changes_no_decision(name: str) -> None:
    """Two spaces differ in the defaults of conditional parameters alone: what is asked differs nowhere else."""
    asked = []
    for defaults in ({}, {"of a": 0.9, "of b": 0.05}):
        typed = conditional(**defaults)
        algorithm, streams = entry(name).make(None), Streams(3)
        state = algorithm.agent_init(Problem(4, 1, (0,), 6, 8, agent=0, lattice=typed), streams)
        x = typed.project(np.random.default_rng(1).random((6, 4)))
        said = []
        for step in range(1, 9):
            y = [
                {"a": -abs(c.get("of a", 0) - 0.3), "b": 0.4 - abs(c.get("of b", 0) - 0.8)}[c["kind"]]
                for c in map(typed.decode, x)
            ]
            state = algorithm.tell(state, x, np.array(y))
            decision, state = algorithm.ask(state, (), streams.at(step))
            x = typed.project(decision.x)
            said.append(typed.decode(x[0]))
        asked.append(said)
    for one, other in zip(*asked, strict=True):
        assert one.keys() == other.keys()
        assert all(one[key] == pytest.approx(other[key]) for key in one)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_a_shuffled_category_and_what_depends_on_it_are_found(seed: int) -> None:
    """Five kinds, each with its own best x, and a shape: 40 points find the best of 20 cells, and x there to a hundredth.

    Of 20 searches by uniform points none comes as near.
    """
    typed = space(kind=list("abcde"), shape=list("pqrs"), x=(0.0, 1.0))
    best = dict(zip("abcde", (0.9, 0.2, 0.7, 0.05, 0.45), strict=True))

    def worth(c: dict[str, Any]) -> float:
        return -4.0 * (c["x"] - best[c["kind"]]) ** 2 - 0.3 * abs("bdeac".index(c["kind"])) - 0.3 * "qspr".index(c["shape"])

    algorithm, streams = entry("gp_ei").make(None), Streams(seed)
    state = algorithm.agent_init(Problem(3, 1, (0,), 6, 34, agent=0, lattice=typed), streams)
    x = typed.project(streams.rng("initial points").random((6, 3)))
    for step in range(1, 36):
        state = algorithm.tell(state, x, np.array([worth(typed.decode(point)) for point in x]))
        decision, state = algorithm.ask(state, (), streams.at(step))
        x = typed.project(decision.x)
    assert state.y.max() > -4e-4


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize("name", AVOIDING)
def test_points_that_failed_as_if_by_chance_are_not_asked_again_in_a_typed_space(name: str, seed: int) -> None:
    typed = space(n=(1, 50), kind=["a", "b", "c"])
    algorithm, state, streams = told(name, typed, 8)
    failed = typed.project(np.random.default_rng(seed).random((2, 2)))  # among eight points that did not fail: by chance
    for step in range(1, 4):
        decision, state = algorithm.ask(algorithm.avoiding(state, failed), (), streams.at(step))
        assert np.array_equal(typed.project(decision.x), decision.x)
        assert np.abs(failed - decision.x).max(axis=1).min() > 1e-6
        failed = np.concatenate([failed, decision.x])
