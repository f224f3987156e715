"""Search spaces as people declare them: dictionaries, ConfigSpace, Ray Tune and Optuna."""

from __future__ import annotations

from typing import Any

import ConfigSpace as CS
import numpy as np
import optuna
import pytest
from ray import tune as ray_tune

from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.tuning.spaces import written_space


def read(space: Any) -> Space:
    return read_space(written_space(space))


def values(space: Space, name: str) -> set[Any]:
    """List what a parameter can be, from the corners and from many points between."""
    d = len(space.parameters)
    points = np.vstack([np.zeros(d), np.ones(d), np.random.default_rng(1).random((400, d))])
    return {space.decode(u)[name] for u in points}


def test_a_dictionary_of_ranges_and_choices_is_a_space() -> None:
    space = read(
        {"x": (0.0, 2.0), "n": (1, 4), "kind": ["a", "b"], "version": 3, "rate": CS.Float("rate", (1e-3, 1), log=True)}
    )
    assert values(space, "n") == {1, 2, 3, 4}
    assert values(space, "kind") == {"a", "b"}
    assert values(space, "version") == {3}
    assert {p.name: p.log for p in space.parameters}["rate"]
    assert space.decode(space.encode({"x": 0.5, "n": 2, "kind": "b", "version": 3, "rate": 1.0}))["x"] == 0.5


def test_what_ray_tune_declares_means_the_same_here() -> None:
    space = read(
        {
            "x": ray_tune.uniform(-1, 1),
            "rate": ray_tune.loguniform(1e-4, 1e-1),
            "n": ray_tune.randint(0, 5),
            "m": ray_tune.lograndint(1, 100),
            "q": ray_tune.quniform(0.0, 1.0, 0.25),
            "even": ray_tune.qrandint(2, 8, 2),
            "kind": ray_tune.choice(["a", "b"]),
            "grid": ray_tune.grid_search([1, 2]),
            "fixed": 7,
        }
    )
    assert values(space, "n") == {0, 1, 2, 3, 4}, "the upper bound of randint is not among them"
    assert max(values(space, "m")) == 99
    assert values(space, "q") == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert values(space, "even") == {2, 4, 6, 8}
    assert values(space, "grid") == {1, 2}
    logs = {parameter.name: parameter.log for parameter in space.parameters}
    assert logs["rate"] and logs["m"] and not logs["x"]


def test_what_optuna_declares_means_the_same_here() -> None:
    space = read(
        {
            "x": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
            "s": optuna.distributions.FloatDistribution(0.0, 1.0, step=0.5),
            "n": optuna.distributions.IntDistribution(1, 3),
            "m": optuna.distributions.IntDistribution(0, 9, step=3),
            "kind": optuna.distributions.CategoricalDistribution(["a", None, True]),
            "one": optuna.distributions.IntDistribution(4, 4),
        }
    )
    assert values(space, "s") == {0.0, 0.5, 1.0}
    assert values(space, "n") == {1, 2, 3}
    assert values(space, "m") == {0, 3, 6, 9}
    assert values(space, "kind") == {"a", None, True}
    assert values(space, "one") == {4}


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"x": ray_tune.randn(0, 1)}, "parameter x: is a Normal Float of Ray Tune; uniform, loguniform"),
        ({"x": ray_tune.quniform(0.0, 1.0, 1e-5)}, "at most 1000 would do"),
        ([1, 2], "give a ConfigSpace.ConfigurationSpace or a dictionary of ranges"),
    ],
)
def test_what_cannot_be_taken_over_is_named(space: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        written_space(space)
