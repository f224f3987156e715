"""Processes of the command line that are killed with kill -9: the study goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.execution.replay import replay
from tests.sites.direct import sites_document
from tests.sites.processes import OBJECTIVE, Processes
from tests.sites.test_remote_sites import decisions


def document(iterations: int, agents: int) -> dict[str, Any]:
    box = {"low": [0.0, 0.0], "high": [1.0, 1.0]}
    budget = {"iterations": iterations}
    return sites_document(box, agents, exchange={"mode": "barrier"}, budget=budget, recovery={"seconds": 0.5})


def expected(iterations: int, agents: int) -> list[tuple[Any, ...]]:
    """Make the decisions of the study in virtual time, with the same function."""
    here = {key: value for key, value in document(iterations, agents).items() if key not in ("sites", "timing", "recovery")}
    function = {"name": "python_function", "function": f"{OBJECTIVE}:bowl", "agents": agents}
    return decisions(fedbo.run({**here, "objective": {**function, "low": [0.0, 0.0], "high": [1.0, 1.0]}}))


SOME, MANY = pytest.param(2, 12, 2, marks=pytest.mark.long), pytest.param(200, 250, 5, marks=pytest.mark.long)


@pytest.mark.parametrize(("kills", "iterations", "agents"), [SOME, MANY])
def test_killed_processes_go_on_where_they_were(
    tmp_path: Path, monkeypatch: Any, kills: int, iterations: int, agents: int
) -> None:
    monkeypatch.chdir(tmp_path)
    processes = Processes(document(iterations, agents), tmp_path, seconds=0.1)
    try:
        processes.kill_some(kills, 5)
    finally:
        processes.wait(1800.0)
    assert sum(processes.killed) == kills
    result = fedbo.Result.open(processes.run)
    assert decisions(result) == expected(iterations, agents)
    assert len(result.reports) == agents * (iterations + 1)
    assert replay(processes.run, verify=True).same
    assert np.isfinite(result.observations["value"].to_numpy()).all()
