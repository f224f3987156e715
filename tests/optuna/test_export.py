"""Runs as studies of Optuna."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from synthetic_run import document, write_run

from fedbo.analysis.result import Result
from fedbo.cli import OK, WRONG_INPUT, main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", document(agents=3, iterations=3), troubled=True)


def test_each_agent_is_a_study(capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    assert main(["export", str(run), "--to", "optuna", "--algorithm", "Together", "--out", str(path)]) == OK
    assert capsys.readouterr().out.startswith(f"{path}: 3 studies")
    storage = JournalStorage(JournalFileBackend(str(path)))
    names = optuna.get_all_study_names(storage)
    assert names == [f"synthetic, Together, replicate 0, agent {agent}" for agent in range(3)]
    result = Result.open(run)
    rows = [
        row
        for row in result.observations.to_pylist()
        if (row["algorithm"], row["replicate"], row["agent"]) == ("Together", 0, 1)
    ]
    study = optuna.load_study(study_name=names[1], storage=storage)
    good = [row for row in rows if row["error"] is None]
    assert study.direction.name == "MINIMIZE" and len(study.trials) == len(rows)
    assert study.best_value == pytest.approx(min(-row["value"] for row in good))
    assert len(study.get_trials(states=(TrialState.FAIL,))) == len(rows) - len(good)
    best = max(good, key=lambda row: row["value"])
    assert study.best_params == pytest.approx({"C": best["x"][0], "gamma": best["x"][1]})
    assert study.best_trial.user_attrs["origin"] == best["origin"]


def test_wrong_inputs_are_one_line_each(capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for arguments in (
        ["--to", "excel"],
        ["--to", "optuna", "--algorithm", "Alon"],
        ["--to", "optuna", "--replicate", "9"],
        ["--to", "optuna", "--out", str(tmp_path / "there")],
    ):
        assert main(["export", str(run), *arguments]) == WRONG_INPUT
        assert len(capsys.readouterr().err.splitlines()) == 1
