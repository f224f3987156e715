"""Typed spaces: to the unit cube and back, conditions and forbidden clauses, compared with ConfigSpace's own rules."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import ConfigSpace as CS
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.objectives.base import Parameter
from fedbo.objectives.space import from_unit, to_unit
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.typed import Space


def mixed(forbidden: bool = True) -> CS.ConfigurationSpace:
    """One of everything: a condition within a condition, two joined, on a constant, and forbidden clauses of every kind."""
    space = CS.ConfigurationSpace(seed=3)
    kernel = CS.Categorical("kernel", ["rbf", "poly", "linear", None])
    degree = CS.Integer("degree", (2, 5))
    coef0 = CS.Float("coef0", (-1.0, 1.0), default=0.25)
    depth = CS.Integer("depth", (1, 1000), log=True)
    size = CS.OrdinalHyperparameter("size", ["s", "m", "l"])
    rate = CS.Float("rate", (1e-6, 10.0), log=True)
    extra = CS.Float("extra", (0.0, 1.0))
    low, high = CS.Integer("low", (0, 6)), CS.Integer("high", (0, 6), default=6)
    space.add(kernel, degree, coef0, depth, size, rate, extra, low, high, CS.Constant("version", 7))
    space.add(CS.EqualsCondition(degree, kernel, "poly"))
    space.add(CS.AndConjunction(CS.InCondition(coef0, kernel, ["poly", "rbf"]), CS.GreaterThanCondition(coef0, size, "s")))
    space.add(CS.OrConjunction(CS.GreaterThanCondition(extra, rate, 0.1), CS.EqualsCondition(extra, degree, 3)))
    if forbidden:
        space.add(CS.ForbiddenGreaterThanRelation(low, high))
        space.add(
            CS.ForbiddenAndConjunction(CS.ForbiddenEqualsClause(kernel, "linear"), CS.ForbiddenInClause(size, ["s", "l"]))
        )
    return space


def read(space: CS.ConfigurationSpace) -> Space:
    return read_space(json.dumps(space.to_serialized_dict()))


unit = st.floats(0.0, 1.0)
DECLARED = mixed()
SPACE = read(DECLARED)


@given(st.lists(unit, min_size=9, max_size=9))
@settings(max_examples=50)
def test_whatever_point_is_taken_its_configuration_is_legal_and_comes_back_to_the_bit(u: list[float]) -> None:
    declared, space, point = DECLARED, SPACE, np.array(u)
    configuration = space.decode(point)
    CS.Configuration(declared, values=configuration).check_valid_configuration()  # ConfigSpace's own word
    assert space.decode(space.encode(configuration)) == configuration
    projected = space.project(point[None, :])
    assert np.array_equal(space.project(projected), projected)
    assert space.decode(projected[0]) == configuration


def test_configurations_of_configspace_come_back_and_are_allowed() -> None:
    declared, space = DECLARED, SPACE
    for sample in declared.sample_configuration(60):
        given_values = dict(sample)
        found = space.decode(space.encode(given_values))
        assert set(found) == set(given_values)
        for name, value in found.items():
            assert (
                value == pytest.approx(given_values[name], rel=1e-12)
                if isinstance(value, float)
                else value == given_values[name]
            )


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6), unit, st.booleans())
@settings(max_examples=100)
def test_a_number_that_came_from_the_cube_returns_to_itself(low: float, width: float, u: float, log: bool) -> None:
    low = abs(low) + 1e-9 if log else low
    if not low < low + width:
        return
    space = Space((Parameter("x", low, low + width, log),), (None,), (low,))
    value = space.decode(np.array([u]))
    assert space.decode(space.encode(value)) == value


@pytest.mark.parametrize(
    ("low", "high", "log"), [(-3, 7, False), (0, 1, False), (1, 2000, True), (5, 6, True), (1, 10**6, True)]
)
def test_every_whole_number_has_its_cell(low: int, high: int, log: bool) -> None:
    parameter = (Parameter("n", low, high, log, whole=True),)
    numbers = np.unique(np.concatenate([np.arange(low, min(high, low + 3000) + 1), np.linspace(low, high, 50).round()]))[
        :, None
    ]
    middles = to_unit(parameter, numbers)
    assert np.array_equal(from_unit(parameter, middles), numbers)
    assert (np.diff(middles[:, 0]) > 0).all()
    assert from_unit(parameter, [[0.0], [1.0]]).tolist() == [[low], [high]]
    if not log:  # equal cells
        shares = np.bincount((from_unit(parameter, (np.arange(11000)[:, None] + 0.5) / 11000)[:, 0] - low).astype(int))
        assert np.ptp(shares) <= 1


def test_a_log_integer_changes_halfway_between_its_numbers() -> None:
    parameter = (Parameter("n", 1, 100, True, whole=True),)
    edge = np.log(2.5 / 0.5) / np.log(100.5 / 0.5)
    assert from_unit(parameter, [[edge - 1e-9], [edge + 1e-9]]).tolist() == [[2.0], [3.0]]


def test_what_is_inactive_stands_at_its_default_and_is_no_part_of_the_configuration() -> None:
    space = read(mixed(forbidden=False))
    names = [parameter.name for parameter in space.parameters]
    u = np.full(len(names), 0.9)
    u[names.index("kernel")] = 0.6  # linear: neither degree nor coef0
    point = space.project(u[None, :])[0]
    assert not {"degree", "coef0"} & set(space.decode(u))
    assert point[names.index("coef0")] == 0.625
    assert from_unit(space.parameters, point)[names.index("degree")] == space.defaults[names.index("degree")]


def test_a_forbidden_point_goes_to_the_nearest_allowed_one() -> None:
    declared = CS.ConfigurationSpace({"low": (0, 6), "high": (0, 6), "x": (0.0, 1.0)}, seed=1)
    declared["high"].default_value = 6
    declared.add(CS.ForbiddenGreaterThanRelation(declared["low"], declared["high"]))
    declared.add(
        CS.ForbiddenAndConjunction(CS.ForbiddenEqualsClause(declared["low"], 3), CS.ForbiddenEqualsClause(declared["high"], 3))
    )
    space = read(declared)
    names = [parameter.name for parameter in space.parameters]
    a, b = names.index("low"), names.index("high")
    allowed = [(i, j) for i, j in itertools.product(range(7), repeat=2) if i <= j and (i, j) != (3, 3)]
    for i, j in itertools.product(range(7), repeat=2):
        u = np.full(3, 0.3)
        u[[a, b]] = (i + 0.5) / 7, (j + 0.5) / 7
        found = space.decode(u)
        got = (found["low"], found["high"])
        assert got in allowed
        nearest = min((p - i) ** 2 + (q - j) ** 2 for p, q in allowed)
        assert (got[0] - i) ** 2 + (got[1] - j) ** 2 == nearest
        assert found["x"] == 0.3


def test_a_space_pickles_and_stands_in_a_checkpoint() -> None:
    space = read(mixed())
    assert pickle.loads(pickle.dumps(space)) == space
    assert unpack(pack(space)) == space


def clause(over: str) -> str:
    declared = CS.ConfigurationSpace({"x": (0.0, 1.0), "n": (0, 100_000)}, seed=1)
    declared.add(CS.ForbiddenEqualsClause(declared[over], 1))
    return json.dumps(declared.to_serialized_dict())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "write a ConfigSpace.ConfigurationSpace as JSON"),
        ("{}", "is not a space in the format of ConfigSpace"),
        ('{"hyperparameters": 3}', "is not a space in the format of ConfigSpace"),
        (clause("x"), "forbidden clauses over real numbers"),
        (clause("n"), "use a coarser ordinal"),
        (
            json.dumps(CS.ConfigurationSpace({"a": 1}).to_serialized_dict()),
            "has no parameter with more than one value; add one",
        ),
        (
            json.dumps(
                CS.ConfigurationSpace(space={"z": CS.Float("z", (-1, 1), distribution=CS.Normal(0, 1))}).to_serialized_dict()
            ),
            "parameter z: is a normal_float; use a uniform",
        ),
    ],
)
def test_a_space_that_cannot_be_tuned_is_refused_with_what_would_do(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_space(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": "tanh"}, r"kernel = 'tanh': is not one of"),
        ({"deep": 3}, "deep: is not a parameter of the space"),
        ({"degree": 3}, "degree: is not active in this configuration"),
        ({"depth": 1.5}, r"depth = 1.5: must be a whole number in \[1, 1000\]"),
        ({"low": 5, "high": 2}, "is forbidden"),
        ({"depth": None}, "depth: is missing"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    space = SPACE
    right = {"kernel": "rbf", "depth": 4, "size": "s", "rate": 1e-3, "low": 0, "high": 3, "version": 7}
    wrong = {name: value for name, value in (right | change).items() if value is not None}
    assert space.decode(space.encode(right)) == right | {"rate": pytest.approx(1e-3, rel=1e-12)}
    with pytest.raises(ValueError, match=words):
        space.encode(wrong)
