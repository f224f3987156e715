"""Origins are a closed set: rows with another one cannot be made, and results are counted by no free text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.actors.evaluation.batches import Made
from fedbo.actors.storage.rows import checked
from fedbo.algorithms.base import ORIGINS, Decision
from fedbo.papers.statements import FEDERATED_ORIGINS
from fedbo.plots.timeline import _kind

STUDY: dict[str, Any] = {
    "study": {"name": "missing"},
    "objective": {"name": "garland", "agents": 3, "scaled": True, "noise": 0.01},
    "agents": {"initial": 0},
    "budget": {"pulls": 400},
    "exchange": {"mode": "first_k", "k": 2, "late": "carry"},
}


def test_an_origin_that_is_none_of_the_known_ones_is_refused_where_the_row_is_made() -> None:
    for origin in ORIGINS:
        assert checked(origin) == origin
    made, points = Made(np.zeros(2), np.zeros(2)), np.zeros((2, 1))
    wrong: Any = "federated missing 3"
    with pytest.raises(ValueError, match="origin 'federated missing 3' of a decision is unknown; take one of agreed, .*note"):
        made.batch((0, "search", 1), Decision(points, wrong), points, 0)
    assert made.batch((0, "search", 1), Decision(points, "federated", note="missing 3"), points, 0).row(1).note == "missing 3"


def test_what_counts_as_federated_is_named_by_the_closed_set() -> None:
    assert set(FEDERATED_ORIGINS) <= ORIGINS
    kinds = {origin: _kind({"error": None, "phase": "search", "origin": origin}) for origin in ORIGINS}
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
