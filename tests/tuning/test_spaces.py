"""Search spaces as people declare them: dictionaries, ConfigSpace, Ray Tune and Optuna."""

from __future__ import annotations

import math
from typing import Any

import ConfigSpace as CS
import numpy as np
import optuna
import pytest
from ray import tune as ray_tune

import fedbo
from fedbo.objectives.space import from_unit
from fedbo.objectives.typed_function import TypedFunction
from fedbo.objectives.typed_spaces.declared_space import flattened, is_nested, read_space
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.objectives.typed_spaces.typed import Space


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
    assert {parameter.name for parameter in space.parameters if parameter.whole} >= {"n", "m"}
    assert not any(parameter.whole for parameter in space.parameters if parameter.name in ("x", "rate")), "whole bounds, too"


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
        ({"x": ray_tune.randn(0, 1)}, r"space\['x'\]: is a Normal Float of Ray Tune; use uniform, loguniform"),
        ({"x": ray_tune.quniform(0.0, 1.0, 1e-5)}, "use at most 1000 steps"),
        ([1, 2], "must be a dictionary of ranges, or a ConfigSpace.ConfigurationSpace"),
    ],
)
def test_what_cannot_be_taken_over_is_named(space: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        written_space(space)


@pytest.mark.parametrize(
    ("given", "low", "high", "whole", "log"),
    [
        ((1, 3), 1, 3, True, False),
        ((1, 2.9), 1, 2.9, False, False),
        ((0, 0.5), 0, 0.5, False, False),
        ((1.0, 3.0), 1, 3, False, False),
        ((np.int64(1), np.int32(3)), 1, 3, True, False),
        ((1e-12, 1e-2, "log"), 1e-12, 1e-2, False, True),
        ((1, 100, "log"), 1, 100, True, True),
        (fedbo.log(1e-5, 1e-1), 1e-5, 1e-1, False, True),
        (fedbo.log(1, 64), 1, 64, True, True),
        (ray_tune.loguniform(1e-13, 1e-2), 1e-13, 1e-2, False, True),
    ],
)
def test_a_range_is_whole_only_where_both_bounds_are_and_keeps_them(
    given: Any, low: float, high: float, whole: bool, log: bool
) -> None:
    (parameter,) = read({"x": given}).parameters
    assert (parameter.low, parameter.high, parameter.whole, parameter.log) == (low, high, whole, log)


def test_dictionaries_in_a_space_are_flattened_by_dots_and_the_objective_gets_them_nested() -> None:
    space = {"rate": fedbo.log(1e-5, 1e-1), "model": {"depth": (1, 9), "head": {"kind": ["a", "b"]}, "version": 2}}
    seen: list[dict[str, Any]] = []
    federation = TypedFunction(lambda config: seen.append(config) or 0.0, written_space(space))
    assert [one.name for one in federation.parameters] == ["model.depth", "model.head.kind", "rate"]
    nested = {"rate": 1e-3, "model": {"depth": 4, "head": {"kind": "b"}, "version": 2}}
    u = federation.lattice.encode(flattened(nested))
    assert (u == federation.lattice.encode({"rate": 1e-3, "model.depth": 4, "model.head.kind": "b"})).all()
    rng = np.random.default_rng(1)
    federation.objective(0, rng, rng).evaluate(from_unit(federation.parameters, u), rng)
    assert seen == [nested | {"rate": pytest.approx(1e-3)}]


def test_a_flat_name_may_have_dots() -> None:
    assert read({"model.depth": (1, 9)}).decode(np.zeros(1)) == {"model.depth": 1}
    assert not is_nested(written_space({"model.depth": (1, 9)}))


WRONG_VALUES: list[Any] = [
    ("0", "1"), (0, 10**30), (0, math.inf), (math.nan, 1.0), (1.0, 0.0), (1, 1), (-1e308, 1e308), (0.0, 1.0, "log"),
    (-1, 5, "log"), (0.0, 1.0, "lin"), (1,), (), (0, 1, 2, 3), (0, True), (None, 1), [], ["a", "a"], [1, True], [[1], [2]],
    [math.nan, 1], {1, 2}, {}, len, object(), range(3), math.inf, 1 + 2j, np.arange(3), CS.Float("other", (0, 1)),
    CS.ConfigurationSpace({"y": (0.0, 1.0)}), {"grid_search": 5}, {"inner": {}}, (1e-320, 1.0, "log"), b"x",
]  # fmt: skip


@pytest.mark.parametrize("value", WRONG_VALUES, ids=map(str, range(len(WRONG_VALUES))))
def test_a_wrong_parameter_is_one_line_with_its_name_and_a_remedy(value: Any) -> None:
    with pytest.raises(fedbo.errors.ArgumentError, match=r"^space\['x(\.inner)?'\]( = .+)?: .+; .+$") as raised:
        written_space({"x": value, "y": (0.0, 1.0)})
    assert "\n" not in str(raised.value) and "<class" not in str(raised.value)


@pytest.mark.parametrize(
    "space", [None, 5, [1, 2], {}, {"a": 1}, {1: (0, 1)}, {"": (0, 1)}, {"a.b": (0, 1), "c": {"d": (0, 1)}}, "{}"]
)
def test_a_wrong_space_is_one_line(space: Any) -> None:
    with pytest.raises(fedbo.errors.ArgumentError, match="^space( = .+)?: .+$"):
        written_space(space)
