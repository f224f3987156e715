"""GP-TS, Fed1-UCB and FN-UCB as studies: through every kind of trouble to the same bytes, and never a pull too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from killing import Forks, begin_or_go_on, tables, write_study

import fedbo

ARMS: dict[str, Any] = {
    "study": {"name": "arms", "seed": 5},
    "objective": {"name": "garland", "agents": 3, "scaled": True, "noise": 0.01},
    "agents": {"initial": 0, "checkpoint": 3},
    "budget": {"pulls": 36},
    "algorithm": [
        {"name": "gp_ts", "arms": 20},
        {"name": "fed1_ucb", "arms": 3, "length": 1.5, "sigma": 0.1},
        {"name": "fn_ucb", "arms": 12, "width": 4, "rise": 20},
    ],
    "timing": {
        "evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.5},
        "latency": {"model": "exponential", "mean": 0.1},
    },
    "exchange": {"mode": "deadline", "length": 4.0, "late": "carry"},
    "recovery": {"events": 40},
}
TROUBLE = [
    {"kind": "crash", "rate": 0.01, "state": "lost", "restart": 1.0},
    {"kind": "loss"},
    {"kind": "duplication"},
    {"kind": "reordering"},
]


@pytest.mark.long
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(forks: Forks, tmp_path: Path) -> None:
    study = write_study({**ARMS, "fault": TROUBLE}, tmp_path / "study.toml")
    assert forks("run", study, tmp_path / "alone").code == 0
    kills, directory = 0, tmp_path / "killed"
    for before in (40, 45, None):
        end = begin_or_go_on(forks, study, directory, before=before)
        kills += end.killed
    assert kills == 2 and end.code == 0
    assert tables(directory) == tables(tmp_path / "alone")


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({"mode": "immediate"}, marks=pytest.mark.long),
        pytest.param({"mode": "barrier"}, marks=pytest.mark.long),
        {"mode": "first_k", "k": 2, "late": "carry"},
    ],
)
def test_trouble_costs_no_agent_a_pull_and_gives_it_none(mode: dict[str, Any], tmp_path: Path) -> None:
    result = fedbo.run({**ARMS, "exchange": mode, "fault": TROUBLE[1:]}, out=tmp_path / "run")
    rows = result.observations.to_pandas()
    assert (rows.groupby(["algorithm", "agent"]).pulls.sum() == 36).all()
    assert set(rows.groupby(["algorithm", "agent"]).groups) == {
        (name, agent) for name in ("gp_ts", "fed1_ucb", "fn_ucb") for agent in range(3)
    }
    assert set(rows[rows.algorithm == "fn_ucb"].origin) == {"own", "federated"}
