"""Directories of runs: those that are given by default, and when none is made."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedbo.execution.directory import new_directory, new_folder
from fedbo.execution.requirements import require_objective
from fedbo.execution.runner import run_study
from fedbo.objectives.datasets.data import DataMissingError
from fedbo.study.study import Study, load_study


def study() -> Study:
    return load_study(
        {
            "study": {"name": "often", "seed": 1},
            "objective": {"name": "quadratic", "agents": 2},
            "budget": {"iterations": 1},
            "algorithm": [{"name": "random"}],
        }
    )


def test_runs_of_one_name_that_begin_within_a_second_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = [new_directory(study(), None) for _ in range(3)]
    assert len(set(made)) == 3 and all(path.parent == tmp_path / "runs" for path in made)


def test_runs_of_one_name_that_begin_at_once_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    many = 8
    together, begun = threading.Barrier(many), study()

    def begin(number: int) -> Path:
        together.wait(120)
        return new_directory(begun, None)

    with ThreadPoolExecutor(many) as pool:
        made = [*pool.map(begin, range(many))]
    assert len(set(made)) == many


@pytest.mark.long
def test_a_folder_that_several_create_at_once_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Before, one thread in twenty-four took the folder that another had just created for a file.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for attempt in range(100):
            (folder := tmp_path / str(attempt)).mkdir()
            monkeypatch.chdir(folder)
            with ThreadPoolExecutor(8) as pool:
                assert len({*pool.map(new_folder, ["often"] * 8)}) == 8
    finally:
        sys.setswitchinterval(before)


def test_a_study_whose_second_objective_lacks_its_data_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDBO_DATA", str(tmp_path))
    study = load_study(
        {
            "study": {"name": "lacking"},
            "objective": {"name": "quadratic", "agents": 2},
            "budget": {"iterations": 1},
            "algorithm": [{"name": "random"}],
            "sweep": {"objective": [{"name": "quadratic"}, {"name": "vaccine"}]},
            "hosting": {"kind": "inline", "workers": 0},
        }
    )
    with pytest.raises(DataMissingError, match="'covid' is not on this machine"):
        run_study(study, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_objective_that_turns_is_built_from_draws_that_differ() -> None:
    tables = {"budget": {"iterations": 1}, "algorithm": [{"name": "random"}]}
    study = load_study({"study": {"name": "turned"}, "objective": {"name": "branin", "family": "rotation"}, **tables})
    require_objective(study.cells()[0].study)
