"""Tables make what they declare once: how often objects are made, and that a changed copy makes its own."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from fedbo.study import settings, tables
from fedbo.study.study import load_study

STUDY = {
    "study": {"name": "kept"},
    "objective": {"name": "gp_family", "agents": 3, "dimensions": 2},
    "budget": {"iterations": 4},
    "algorithm": [{"name": "fts"}, {"name": "ts"}],
}
SWEEP = {"algorithm.fts.every": [1, 2, 4], "timing.latency.mean": [0.1, 0.2]}


def test_each_table_makes_its_object_once_for_all_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def build(declared: Any, *given: Any, **named: Any) -> Any:
        made.append(declared.__name__)
        return settings.build(declared, *given, **named)

    monkeypatch.setattr(tables, "build", build)
    load_study(STUDY)
    alone = len(made)
    study = load_study({**STUDY, "sweep": SWEEP})
    for cell in study.cells():
        for table in cell.study.algorithm:
            cell.study.problem_of(table)
    # Tables of a study without a sweep, and for each cell one of FTS and the tables of [timing].
    assert alone <= 10  # fewer where another study has made those of tables by default
    assert len(made) - alone <= 10 + 6 * 6 + 3
    assert made.count("GPFamily") == 2


def test_a_changed_copy_makes_its_own_object_and_an_equal_table_stays_equal() -> None:
    table = load_study(STUDY).algorithm[0]
    other = load_study(STUDY).algorithm[0]
    assert table.make() is table.make()
    assert table == other
    assert table.model_copy(update={"every": 9}).make().every == 9
    for again in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert again == table
        assert again.make() == table.make()


def test_cells_are_those_of_studies_without_a_sweep() -> None:
    for cell in load_study({**STUDY, "sweep": SWEEP}).cells():
        every, mean = cell.values["algorithm.fts.every"], cell.values["timing.latency.mean"]
        plain = load_study(
            {
                **STUDY,
                "algorithm": [{"name": "fts", "every": every}, {"name": "ts"}],
                "timing": {"latency": {"model": "constant", "mean": mean}},
            }
        )
        assert cell.study.document() == plain.document()
        assert cell.study.digest() == plain.digest()
