"""Commands on a run with two objectives and a bound."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import fedbo
from fedbo.analysis.result import Result
from fedbo.cli import OK, WRONG_INPUT, main

STUDY = """
study = { name = "both", seed = 3 }
objective = { name = "bnh", agents = 2 }
budget = { iterations = 2 }
exchange = { mode = "immediate" }
hosting = { kind = "inline", workers = 0 }
algorithm = [{ name = "ts" }, { name = "fts" }]
metric = [
    { name = "f1", mode = "min", reference = 140.0 },
    { name = "f2", mode = "min", reference = 50.0 },
    { name = "g1", at_most = 25.0 },
]
"""
SWITCH = ["--algorithm", "fts"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("metrics") / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def run(study: Path) -> Path:
    """Carry out the study, and extend it by an iteration."""
    folder = study.parent / "run"
    fedbo.run(study, out=folder)
    fedbo.resume(folder, overrides=["budget.iterations=3"])
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert main([str(word) for word in arguments]) == OK
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_an_extended_run_equals_one_with_the_larger_budget(study: Path, run: Path) -> None:
    assert main(["run", str(study), "--set", "budget.iterations=3", "--out", str(study.parent / "long"), "-q"]) == OK
    found, long = Result.open(run), Result.open(study.parent / "long")
    assert found.observations.equals(long.observations)
    assert [row.final for row in found.summary()] == [row.final for row in long.summary()]


def test_real_time_in_one_process_is_refused(capsys: pytest.CaptureFixture[str], study: Path, tmp_path: Path) -> None:
    assert main(["run", str(study), "--set", "timing.clock=wall", "--out", str(tmp_path / "run")]) == WRONG_INPUT
    said = capsys.readouterr().err
    assert "clock = 'wall': requires one process per agent or host; set [hosting] kind to dedicated or packed" in said


@pytest.mark.usefixtures("undrawn")
def test_progress_shows_no_best_value_of_one_of_several_objectives(
    capsys: pytest.CaptureFixture[str], study: Path, tmp_path: Path
) -> None:
    assert main(["run", str(study), "--out", str(tmp_path / "run")]) == OK
    said = capsys.readouterr().err
    assert "ts: 100%" in said
    assert "best f1" not in said


def test_tables_and_files_show_all_metrics(capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path) -> None:
    assert "best hypervolume" in printed(capsys, "show", run)
    assert "f1, f2, g1" in printed(capsys, "show", run, "--best")
    page, journal = tmp_path / "report.html", tmp_path / "optuna.journal"
    printed(capsys, "report", run, "--out", page)
    assert "hypervolume" in page.read_text()
    printed(capsys, "export", run, "--out", journal)
    created = json.loads(journal.read_text().splitlines()[0])
    assert created["directions"] == [1, 1]


@pytest.mark.long
def test_a_fork_a_twin_and_the_causes_of_a_run_follow_the_hypervolume(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    changed = ["--at", "2", "--set", "budget.iterations=4", "--out", tmp_path / "fork", "-q"]
    assert "best hypervolume" in printed(capsys, "fork", run, *changed)
    assert re.search(r"evaluations 12 12 ", printed(capsys, "twin", run, *SWITCH, "--replicates", "2"))
    said = printed(capsys, "why", run, *SWITCH, "--rows", "2", "--out", tmp_path / "why", "-q")
    mean = re.search(r"mean ([\d.e+]+),", said)
    assert mean is not None and float(mean[1]) > 140.0  # no value of f1, which is at most that here
    assert main(["why", str(run), *SWITCH, "--end", "regret > 0.1", "--out", str(tmp_path / "no")]) == WRONG_INPUT
    assert "use best in place of regret" in capsys.readouterr().err


def test_worth_compares_the_hypervolume_and_names_the_objective_of_the_possible_gain(
    capsys: pytest.CaptureFixture[str], study: Path, tmp_path: Path
) -> None:
    said = printed(capsys, "worth", study, "--set", "budget.iterations=1", "--points", "16", "--out", tmp_path / "worth", "-q")
    assert "best hypervolume" in said
    assert re.search(r"Mean f1, without limits and other objectives, of a random point: \d", said)


def test_regret_on_the_mean_is_refused_for_other_goals_than_one_objective(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    for asked in (
        ["show", str(run), "--regret"],
        ["plot", str(run), "--kind", "regret", "--out", str(tmp_path / "regret.png")],
    ):
        capsys.readouterr()
        assert main(asked) == WRONG_INPUT
        assert "with limits or several objectives, there is no regret on the mean of all agents" in capsys.readouterr().err
