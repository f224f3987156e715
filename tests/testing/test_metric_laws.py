"""The law of metrics finds each wrong column, and random studies draw tables that the checks accept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.execution.runner import run_study
from fedbo.study.study import load_study
from fedbo_hunt.surroundings import Draws
from tests.random_studies.laws.metrics import metrics
from tests.random_studies.metrics import add_metrics
from tests.random_studies.run_tables import RunTables, runs_of

Row = dict[str, Any]
CHANGES: dict[str, Callable[[Row], Row]] = {
    "a wrong limit": lambda row: {**row, "feasible": not row["feasible"]},
    "a wrong number": lambda row: {**row, "metric.f2": row["metric.f2"] + 1.0},
    "a number from nowhere": lambda row: {**row, "metrics": None},
    "a wrong sign": lambda row: {**row, "metric.f1": row["value"]},
    "no column of an objective": lambda row: {name: value for name, value in row.items() if name != "metric.f2"},
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> RunTables:
    """Run a study with two objectives and a limit that some points break."""
    document = {
        "study": {"name": "laws"},
        "objective": {"name": "bnh", "agents": 2},
        "budget": {"iterations": 6},
        "algorithm": [{"name": "random"}],
        "metric": [
            {"name": "f1", "mode": "min", "reference": 140.0},
            {"name": "f2", "mode": "min", "reference": 50.0},
            {"name": "g1", "at_most": 12.0},
        ],
    }
    study = load_study(document)
    result = run_study(study, tmp_path_factory.mktemp("laws") / "run")
    (found,) = runs_of(study, result.directory)
    return found


def test_the_law_holds(tables: RunTables) -> None:
    """Of a run as it was."""
    assert list(metrics(tables)) == []
    assert {row["feasible"] for row in tables.rows} == {True, False}


@pytest.mark.parametrize("change", CHANGES)
def test_the_law_finds_a_change_of_one_row(change: str, tables: RunTables) -> None:
    """Whichever it is."""
    rows = [CHANGES[change](dict(tables.rows[0])), *tables.rows[1:]]
    assert list(metrics(replace(tables, rows=rows))) != []


def test_columns_without_metrics_break_it(tables: RunTables) -> None:
    """A study that names none has none."""
    job = replace(tables.job, task=replace(tables.task, goals=None))
    assert list(metrics(replace(tables, job=job))) != []


def test_drawn_tables_are_accepted(tmp_path: Path) -> None:
    """Nearly always: limits, objectives, and those of a group."""
    accepted = set[str]()
    for seed in range(12):
        draws = Draws(np.random.default_rng(seed))
        document: dict[str, Any] = {
            "study": {"name": "drawn"},
            "budget": {"iterations": 1},
            "algorithm": [{"name": "random"}],
            "evaluation": {},
            "group": [{"name": "others", "agents": [1]}],
        }
        add_metrics(draws, document, 2)
        document["evaluation"].pop("infeasible", None)  # which random search does not need
        try:
            study = load_study(document)
        except ValueError:
            continue
        accepted |= {name for table in study.metric for name in ("mode", "at_most", "at_least") if getattr(table, name)}
        accepted |= {f"group {key}" for key in ("at_most", "at_least", "weights") if getattr(study.group[0], key)}
    assert accepted >= {"mode", "at_most", "at_least", "group at_most", "group at_least"}
