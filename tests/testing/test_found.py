"""Small studies that random ones led to, each of which broke a promise before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedbo
from tests.random_studies.invariants import violations

ALWAYS_FAILING = {
    "name": "python_function",
    "function": "tests.random_studies.functions:always_failing",
    "low": [0.0],
    "high": [1.0],
}


def study(**tables: Any) -> dict[str, Any]:
    return {"study": {"name": "found", "seed": 1}, "budget": {"pulls": 20}, **tables}


def test_a_client_all_of_whose_nodes_failed_says_so_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    """Nothing was told where every evaluation failed, so that no means were sent, or those of the phase before."""
    failing = study(objective={**ALWAYS_FAILING, "agents": 2}, algorithm=[{"name": "dp_fed_pne"}])
    result = fedbo.run(failing, out=tmp_path / "run")
    assert violations(result.study, result.directory) == []


def test_where_agents_wait_for_one_that_is_lost_for_good_the_run_ends_and_names_both(tmp_path: Path) -> None:
    lost = study(
        objective={"name": "quadratic", "agents": 3},
        algorithm=[{"name": "fed_pne", "missing": "wait"}],
        fault=[{"kind": "crash", "agents": [2], "at": 0.5}],
    )
    with pytest.raises(
        fedbo.errors.RunError, match="agents 0, 1 wait for an answer .* because agents 2 will never return; .*restart"
    ):
        fedbo.run(lost, out=tmp_path / "run")


def test_without_rounds_nobody_is_passed_over_who_may_wait_for_an_answer() -> None:
    selected = study(
        objective={"name": "quadratic", "agents": 3},
        algorithm=[{"name": "fed_pne"}],
        exchange={"mode": "immediate", "selection": {"who": "poisson", "share": 0.5}},
    )
    with pytest.raises(fedbo.errors.StudyError, match="selection.who = 'poisson': 'fed_pne' may wait for an answer"):
        fedbo.load_study(selected)


def test_an_evaluation_that_is_cut_off_after_a_pause_counts_once(tmp_path: Path) -> None:
    """The law of budgets counted its last row again where it reached no further rung."""
    paused = {
        "study": {"name": "found", "seed": 3},
        "objective": {"name": "learning_curves", "agents": 1, "epochs": 9},
        "agents": {"initial": 4},
        "budget": {"pulls": 6},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": {"model": "constant", "mean": 1.5}},
        "evaluation": {"time_limit": 0.66},
        "stopping": {"kind": "asha", "reduction": 3, "variant": "promote", "checkpoint": 0.1},
    }
    with pytest.warns(fedbo.errors.EvaluationWarning, match="time_limit"):
        result = fedbo.run(paused, out=tmp_path / "run")
    assert any(row["rungs"] is None and row["error"] for row in result.observations.to_pylist())
    assert violations(result.study, result.directory) == []
