"""Origins are a closed set: rows with another one cannot be made, and results are counted by no free text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.actors.evaluation.step import queries_of
from fedbo.actors.task import Task
from fedbo.algorithms.base import ORIGINS, Decision, Problem
from fedbo.algorithms.random import Random
from fedbo.algorithms.returned import asked
from fedbo.algorithms.streams import Streams
from fedbo.analysis.timeline_bars import kind_of
from fedbo.objectives.functions import Quadratic
from fedbo.settings.own_code import ReturnError

STUDY: dict[str, Any] = {
    "study": {"name": "missing"},
    "objective": {"name": "garland", "agents": 3, "scaled": True, "noise": 0.01},
    "agents": {"initial": 0},
    "budget": {"pulls": 400},
    "exchange": {"mode": "first_k", "k": 2, "late": "carry"},
}


def test_an_origin_that_is_none_of_the_known_ones_is_refused_before_the_evaluation() -> None:
    class Chooses(Random):
        origin: Any = "own"

        def ask(self, state: Any, inbox: Any, streams: Any) -> Any:
            return Decision(np.zeros((1, 2)), self.origin), state

    for origin in ORIGINS:
        Chooses.origin = origin
        assert asked(Chooses(), None, (), None, 2)[0].origin == origin
    Chooses.origin = "federated missing 3"
    with pytest.raises(ReturnError, match="a Decision whose origin is 'federated missing 3'; use one of agreed, .*note"):
        asked(Chooses(), None, (), None, 2)
    task = Task(Quadratic(agents=3), Random(), Problem(2, 3, (0, 1, 2), 0, 1000), Streams(4))
    queries = queries_of(task, 0, 1, Decision(np.zeros((2, 2)), "federated", note="missing 3"), 0)
    assert [query.note for query in queries] == ["missing 3"] * 2


def test_what_counts_as_federated_is_named_by_the_closed_set() -> None:
    kinds = {origin: kind_of({"error": None, "phase": "search", "origin": origin}) for origin in ORIGINS}
    assert [origin for origin, kind in kinds.items() if kind == "federated query"] == ["federated"]


@pytest.mark.parametrize("algorithm", [{"name": "fed1_ucb", "arms": 4, "sigma": 0.1, "missing": "mean"}, {"name": "fed_pne"}])
def test_points_chosen_without_some_of_the_others_count_as_federated(algorithm: dict[str, Any], tmp_path: Any) -> None:
    result = fedbo.run({**STUDY, "algorithm": [algorithm]}, out=tmp_path / "run")
    rows = result.observations.to_pylist()
    assert {row["origin"] for row in rows} <= ORIGINS
    lacking = [row for row in rows if row["note"] and "missing" in row["note"]]
    assert lacking and {row["origin"] for row in lacking} == {"federated"}
    (row,) = result.summary()
    assert row.federated == sum(row["origin"] == "federated" for row in rows) / len(rows) >= len(lacking) / len(rows)
