"""The table of how to do thirty things: its rows run from top to bottom, as they stand, in an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pages
import pytest

import fedbo
from fedbo.cli import main

(GRID,) = [grid for grid in pages.grids("docs/questions.md") if grid.rows[0][0] == "how do I …"]
TASKS = [(task, " ".join(re.findall(r"`([^`]+)`", code))) for task, code in GRID.rows[1:]]


def test_there_are_thirty_tasks_with_one_command_each() -> None:
    assert len(TASKS) == 30 and all(code for _, code in TASKS)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_session", "undrawn")
def test_every_row_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {"__name__": "__main__", "fedbo": fedbo}
    for task, code in TASKS:
        if code.startswith("fedbo "):
            assert main(shlex.split(code)[1:]) == 0, task
        else:
            exec(compile(code, task, "exec"), known)
    assert (tmp_path / "trials.csv").is_file() and (tmp_path / "runs" / "fork").is_dir()
