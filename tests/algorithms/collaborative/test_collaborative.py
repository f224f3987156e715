"""What all methods of collaborative Bayesian optimisation do: they use answers, and ask for points that can be evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_typed_search

from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.components.collaborative import Collaborative, in_cells
from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.testing.lockstep import Lockstep

FOUND = [name for name, found in algorithms().items() if issubclass(found.settings, Collaborative)]
NAMES = [name for name in FOUND if not name.endswith(("_noise", "_uniform", "_alone"))]  # controls gain nothing


def test_all_of_them_are_here() -> None:
    assert set(NAMES) == {"dp_share_best", "share_best", "trust_best"}


@pytest.mark.parametrize("name", [*NAMES, "share_best:box", "share_best:coarse", "trust_best:coarse"])
def test_with_answers_too_what_is_asked_in_a_typed_space_can_be_evaluated_and_is_new(name: str) -> None:
    typed = test_typed_search.space(n=(1, 50), kind=["a", "b", "c"])
    name, _, how = name.partition(":")
    settings: Any = {"": {}, "box": {"form": "box"}, "coarse": {"cells": 3}}[how]
    problem = Problem(2, 3, (0, 1, 2), 3, 8, lattice=typed)
    algorithm = entry(name).make(None, **settings)
    run = Lockstep(algorithm, problem, lambda decision, streams: -((decision.x - 0.2 * streams.owner) ** 2).sum(axis=1), 4)
    run.begin()
    run.exchange()
    run.run(8)
    for decisions in run.decisions:
        for decision in decisions.values():
            assert np.array_equal(typed.project(decision.x), decision.x)
    assert any(decision.origin == "federated" for decisions in run.decisions for decision in decisions.values())
    for agent in range(3):
        own = [decisions[agent] for decisions in run.decisions]
        led = [decision.x.tobytes() for decision in own if decision.origin != "random"]
        assert len(set(led)) == len(led)


@pytest.mark.parametrize("name", ["share_best", "trust_best"])
def test_with_cells_a_message_is_the_middle_of_the_cell_of_the_best_point(name: str) -> None:
    points = np.random.default_rng(0).random((2, 5, 2))

    def sent(cells: int) -> list[Any]:
        made = entry(name).make(None, cells=cells)
        run = Lockstep(made, Problem(2, 2, (0, 1), 0, 1), lambda decision, streams: decision.x.sum(axis=1), 0)
        run.states = [made.tell(state, x, x.sum(axis=1)) for state, x in zip(run.states, points, strict=True)]
        run.exchange()
        return [run.sent[-1][agent]["x"] for agent in range(2)]

    best = [x[x.sum(axis=1).argmax()] for x in points]
    np.testing.assert_allclose(sent(0), best, rtol=1e-12)
    np.testing.assert_allclose(sent(8), [(np.floor(8 * x) + 0.5) / 8 for x in best], rtol=1e-12)
    assert in_cells(np.array([0.0, 1.0]), 4).tolist() == [0.125, 0.875]
    exact, coarse = entry(name).make(), entry(name).make("coarse")
    assert (revealed_by(exact), revealed_by(coarse)) == (Reveals.OBSERVATIONS, Reveals.COMPUTABLE)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dp_share_best"])
def test_agents_that_begin_with_nothing_gain_from_those_who_know_the_same_function(name: str) -> None:
    """The first decision of agents without observations, after messages about an earlier task of 30 points on one bowl."""
    rng, problem = np.random.default_rng(2), Problem(2, 4, (0, 1, 2, 3), 0, 3, history=30)
    histories = [(x, -((x - 0.35) ** 2).sum(axis=1)) for x in (rng.random((30, 2)) for _ in range(4))]
    run = Lockstep(entry(name).make(None), problem, lambda decision, _: -((decision.x - 0.35) ** 2).sum(axis=1), 4, histories)
    run.begin()
    run.exchange()
    run.run(1)
    assert max(float(np.abs(decision.x - 0.35).max()) for decision in run.decisions[0].values()) < 0.25
