"""Directories that runs are given by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbo.execution.directory import new_directory
from fedbo.study.study import load_study


def test_runs_of_one_name_that_begin_within_a_second_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = load_study(
        {
            "study": {"name": "often", "seed": 1},
            "objective": {"name": "quadratic", "agents": 2},
            "budget": {"iterations": 1},
            "algorithm": [{"name": "random"}],
        }
    )
    made = [new_directory(study, None) for _ in range(3)]
    assert len(set(made)) == 3 and all(path.parent == tmp_path / "runs" for path in made)
