"""Points that failed, in studies and by ask/tell: none is asked twice, and agents turn to where evaluations succeed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fedbo
from fedbo.actors.evaluation.failed_points import keeps_points, other_than, takes_worst
from fedbo.algorithms.base import Decision, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.objectives.typed_function import giving
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.study.study import load_study

SPACE: dict[str, Any] = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
DECISIONS = 16
PROBLEM = Problem(2, 1, (0,), 3, 5)


def slope(config: dict[str, Any]) -> float:
    """Fails in half of the square, towards which it rises."""
    if config["x"] + config["y"] > 1:
        raise ValueError("diverged")
    return float(config["x"] + config["y"] - (config["x"] - 0.4) ** 2)


def study_of(algorithm: dict[str, Any], **tables: Any) -> Any:
    objective = {"name": "typed_function", "function": "given:half", "space": written_space(SPACE), "agents": 2}
    document = {"study": {"name": "half", "seed": 4}, "objective": objective, "algorithm": [algorithm], **tables}
    return load_study({"agents": {"initial": 4}, "budget": {"iterations": DECISIONS}, **document})


@pytest.fixture(autouse=True)
def given_slope() -> Iterator[None]:
    with giving("given:half", slope):
        yield


@pytest.mark.parametrize(
    ("name", "parallel"),
    [("gp_ei", 3), ("fts", 1), *(pytest.param(*one, marks=pytest.mark.long) for one in (("gp_ei", 1), ("fts", 3)))],
)
def test_a_study_asks_no_failed_point_again_and_fails_less_than_uniform_points(
    name: str, parallel: int, tmp_path: Path
) -> None:
    """Of 32 uniform decisions 16 would fail; 24 or more would with probability .004."""
    result = fedbo.run(study_of({"name": name}, evaluation={"parallel": parallel}), out=tmp_path / "run")
    rows = [row for row in result.observations.to_pylist() if row["error"]]
    points = [(row["agent"], *row["u"]) for row in rows]
    assert len(points) == len(set(points)), "a failed point is asked again"
    assert sum(row["step"] > 0 for row in rows) < 24


def test_a_dropped_failure_teaches_nothing(tmp_path: Path) -> None:
    result = fedbo.run(study_of({"name": "gp_ei"}, evaluation={"failure": "drop"}), out=tmp_path / "run")
    points = [(row["agent"], *row["u"]) for row in result.observations.to_pylist() if row["error"]]
    assert len(points) > len(set(points))


def test_a_hidden_method_is_told_nothing_and_bandits_the_worst_value() -> None:
    told = {name: takes_worst(entry(name).make()) for name in ("gp_ei", "dp_fed_prior", "fed_pne", "dp_fed_pne", "hct")}
    assert told == {"gp_ei": False, "dp_fed_prior": False, "fed_pne": True, "dp_fed_pne": False, "hct": True}
    assert keeps_points(entry("ts").make()) and not keeps_points(entry("hct").make())


def test_only_a_point_that_failed_is_replaced_and_what_was_agreed_on_stays() -> None:
    failed, streams = np.array([[0.2, 0.3], [0.5, 0.5]]), Streams(1).of(0)
    other = Decision(np.array([[0.2, 0.4]]), "own")
    assert other_than(failed, other, PROBLEM, streams) is other
    agreed = Decision(failed[:1], "agreed")
    assert other_than(failed, agreed, PROBLEM, streams) is agreed
    replaced = other_than(failed, Decision(failed[:1].copy(), "own"), PROBLEM, streams)
    assert replaced.origin == "random" and not (replaced.x == failed).all(axis=1).any()
    assert_array_equal(replaced.x, other_than(failed, Decision(failed[:1].copy(), "own"), PROBLEM, streams).x)


@pytest.mark.parametrize("name", ["gp_ei", pytest.param("fed_prior", marks=pytest.mark.long)])
def test_ask_and_tell_learn_from_failures(name: str, tmp_path: Path) -> None:
    lost = []
    for _ in range(2):  # opened again, the agent resumes from its log
        with fedbo.Agent(tmp_path, SPACE, fedbo.Terms(name, seed=2)) as agent:
            for _ in range(12):
                (one,) = agent.ask()
                try:
                    agent.tell(one.token, slope(one.configuration))
                except ValueError:
                    agent.tell(one.token, None)
                    lost.append(json.dumps(one.configuration))
    assert len(lost) == len(set(lost)) and len(lost) < 18


def test_what_is_withdrawn_is_no_failure(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, {"n": (1, 3)}, fedbo.Terms("ts", seed=2, initial=1)) as agent:
        first, second = agent.ask(2)
        agent.tell(first.token, 1.0)
        assert agent.withdraw(second.token) and not agent.withdraw(second.token)
        assert not len(agent._log.failed) and agent.pending() == []
        with pytest.raises(ValueError, match="is not a token of this agent"):
            agent.withdraw("elsewhere")
