"""Spaces that run out: no configuration twice, an end when all were evaluated, and repeats for noisy objectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import catalogue
from fedbo.algorithms.random import Random
from fedbo.algorithms.streams import Streams
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.tuning.tune import tuning_study

NAMES = ("ts", "gp_ei", "gp_ucb", "fts", "random")
SMALL: dict[str, Any] = {"n": (1, 3), "kind": ["a", "b"]}


def worth(configuration: dict[str, Any]) -> float:
    return float(configuration["n"]) + (configuration["kind"] == "b")


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_asks_every_configuration_once_and_then_none(name: str, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    for restart in range(3):  # a kill in between changes nothing
        with fedbo.Agent(tmp_path / "a", SMALL, fedbo.Terms(name)) as agent:
            for one in agent.ask(2) if restart < 2 else agent.ask(9):
                seen.append(one.configuration)
                agent.tell(one.token, worth(one.configuration))
            if restart == 2:
                assert agent.exhausted and agent.ask() == []
                assert agent.best() == ({"kind": "b", "n": 3}, 4.0)
    assert len(seen) == 6 == len({tuple(one.items()) for one in seen})
    with fedbo.Agent(tmp_path / "b", SMALL, fedbo.Terms(name, repeats=True)) as agent:
        for _ in range(8):
            (one,) = agent.ask()
            agent.tell(one.token, worth(one.configuration))


def test_failed_and_added_configurations_count_and_withdrawn_ones_do_not(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SMALL, fedbo.Terms("ts")) as agent:
        agent.add({"n": 1, "kind": "a"}, 1.0)
        first, second = agent.ask(2)
        agent.tell(first.token, None)
        agent.withdraw(second.token)
        rest = [one.configuration for one in agent.ask(9)]
    assert {"n": 1, "kind": "a"} not in rest and first.configuration not in rest and second.configuration in rest
    assert len(rest) == 4


@pytest.mark.parametrize("name", ["ts", "gp_ei", "gp_ucb", "fts"])
def test_what_repeats_gives_way_to_the_best_of_what_is_left(name: str) -> None:
    """By the acquisition: the value grows with n, so 8 of 10 known points leave the larger of the two others."""
    space = read_space(written_space({"n": (1, 10)}))
    algorithm: Any = catalogue()[name].make(None)
    problem = Problem(1, 1, (0,), 3, 10, 0, lattice=space)
    state = algorithm.agent_init(problem, Streams(1).of(0).at(0))
    known = [n for n in range(1, 11) if n not in (2, 9)]
    x = np.array([space.encode({"n": n}) for n in known])
    state = algorithm.tell(state, x, np.array([float(n) for n in known]))
    decision, state = algorithm.ask(state, (), Streams(1).of(0).at(9))
    assert [space.decode(u)["n"] for u in decision.x] == [9] and decision.origin == "own"
    for n in (9, 2):
        state = algorithm.tell(state, space.encode({"n": n})[None, :], np.array([float(n)]))
    decision, _ = algorithm.ask(state, (), Streams(1).of(0).at(11))
    assert decision.origin == "own", "with all of them known it chooses freely"


def test_random_search_draws_without_replacement_from_a_small_space_alone() -> None:
    space, algorithm = read_space(written_space(SMALL)), Random(queries=2)
    every = space.every()
    assert every is not None
    state = algorithm.agent_init(Problem(2, 1, (0,), 3, 10, 0, lattice=space), Streams(1).of(0).at(0))
    state = algorithm.tell(state, every[:1], np.zeros(1))  # as an initial point, an enqueued one, or one of a `start`
    state = algorithm.pending(state, every[1:2])
    found = []
    for step in range(1, 3):
        decision, state = algorithm.ask(state, (), Streams(1).of(0).at(step))
        found += list(map(tuple, decision.x))
        state = algorithm.tell(state, decision.x, np.zeros(2))
    assert sorted(found) == sorted(map(tuple, every[2:]))
    state = algorithm.tell(state, every[1:2], np.zeros(1))
    decision, _ = algorithm.ask(state, (), Streams(1).of(0).at(3))
    assert {*map(tuple, decision.x)} <= {*map(tuple, every)}, "when all are known, some again"
    wide = algorithm.agent_init(Problem(2, 1, (0,), 3, 10, 0), Streams(1).of(0).at(0))
    streams = Streams(1).of(0).at(1)
    (x, *_), after = algorithm.ask(algorithm.tell(algorithm.pending(wide, every), every, every[:, 0]), (), streams)
    assert np.array_equal(x, streams.rng("random search").random((2, 2))) and after == wide, "nothing is kept"


def test_initial_points_are_different_configurations() -> None:
    space = read_space(written_space(SMALL))
    every = space.every()
    assert every is not None and len(every) == 6
    spread = space.spread(np.zeros((6, 2)), np.random.default_rng(1))
    assert len(np.unique(spread, axis=0)) == 6
    assert len(space.spread(np.zeros((8, 2)), np.random.default_rng(1))) == 8
    assert read_space(written_space({"x": (0.0, 1.0), "n": (1, 2)})).every() is None
    assert read_space(written_space({"n": (1, 5000)})).every() is None


@pytest.mark.parametrize(
    ("options", "initial", "iterations"),
    [
        ({}, 3, 3),
        ({"iterations": 2}, 3, 2),
        ({"initial": 9}, 5, 1),
        ({"repeats": True}, 3, 20),
        ({"algorithm": "random"}, 3, 3),
    ],
)
def test_a_tuning_is_no_longer_than_its_space(options: Any, initial: int, iterations: int) -> None:
    study = tuning_study(worth, SMALL, 2, options)
    assert (study.agents.initial, study.budget.iterations) == (initial, iterations)
