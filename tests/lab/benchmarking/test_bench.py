"""Benchmarks: the tasks of a folder or a suite, run once, gone on with, and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

import fedbo
from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.lab.benchmarking import benchmark
from fedbo.lab.benchmarking.benchmark import BenchmarkRequest, benchmark_sources, run_benchmark
from fedbo.study.document import StudyError

STUDY = """
[study]
name = "any"
seed = 7
replicates = 2
[objective]
name = "branin"
agents = 2
spread = {spread}
[budget]
iterations = 2
[[algorithm]]
name = "random"
label = "Alone"
[[algorithm]]
name = "random"
label = "Other"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "suite"
    made.mkdir()
    for spread in (0.1, 0.4):
        (made / f"spread-{spread}.toml").write_text(STUDY.format(spread=spread), encoding="utf-8")
    return made


def silent(line: str) -> None:
    """Say nothing."""


def test_a_folder_is_run_compared_and_not_run_again(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "out"
    command = ["bench", str(folder), "--to", str(to), "--quiet"]
    assert main(command) == OK
    shown = capsys.readouterr().out
    assert "spread-0.1 (value)" in shown and "Mean ranks over 2 tasks" in shown and f"report: {to / 'report.html'}" in shown
    names = {path.name for path in (to / "tables").iterdir()}
    assert {"scores.csv", "ranks.tex", "pairs.csv", "finals.tex", "evaluations_to_level.csv"} <= names
    assert (to / "benchmark.png").stat().st_size > 5000
    before = {path: path.stat().st_mtime_ns for path in (to / "runs").rglob("*.parquet")}
    assert len(before) == 4
    monkeypatch.setattr(benchmark, "optional", lambda name: None)  # no second report, which is most of the time
    assert main([*command, "--format", "json"]) == OK
    facts = json.loads(capsys.readouterr().out)
    assert [table["name"] for table in facts["tables"]][:3] == ["finals", "ranks", "pairs"]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_methods_are_those_of_a_file_or_bare(folder: Path) -> None:
    (source, _) = benchmark_sources(str(folder))
    assert source.name == "spread-0.1"
    assert source.algorithms(["Alone", "ts", "fts/faithful"]) == [
        {"name": "random", "label": "Alone"},
        {"name": "ts", "label": "ts"},
        {"name": "fts", "label": "fts/faithful", "preset": "faithful"},
    ]


def test_a_method_that_sends_once_sends_again_where_there_are_no_rounds() -> None:
    (source, *_) = benchmark_sources("tuning")
    assert source.algorithms(["dp_share_best", "gp_ei", "share_best/faithful"]) == [
        {"name": "dp_share_best", "label": "dp_share_best", "every": 1},
        {"name": "gp_ei", "label": "gp_ei"},
        {"name": "share_best", "label": "share_best/faithful", "preset": "faithful"},
    ]
    rounds = replace(source, tables={**source.tables, "exchange": {"mode": "barrier"}})
    assert rounds.algorithms(["dp_share_best"]) == [{"name": "dp_share_best", "label": "dp_share_best"}]


def test_a_quick_benchmark_is_small(folder: Path, tmp_path: Path) -> None:
    path = folder / "spread-0.1.toml"
    path.write_text(path.read_text().replace("iterations = 2", "iterations = 50").replace("replicates = 2", "replicates = 9"))
    made = run_benchmark(BenchmarkRequest(str(folder), tmp_path / "out", quick=True, seed=3), silent, lambda: None)
    study = made.results[0].study
    assert (study.study.replicates, study.budget.iterations, study.study.seed, study.study.name) == (3, 12, 3, "spread-0.1")


class Task:
    """A task as the catalogue of suites has it."""

    def __init__(self, name: str, missing: bool = False) -> None:
        self.name, self.missing, self.optional = name, missing, missing

    def tables(self) -> dict[str, object]:
        """Give the tables of its study."""
        name = "landmine" if self.missing else "branin"
        return {"objective": {"name": name, "agents": 2}, "agents": {"initial": 1}, "budget": {"iterations": 1}}


class Suite:
    """A suite of two tasks, one of which needs data."""

    version = 1
    tasks = (Task("here"), Task("gone", missing=True))


def test_what_a_suite_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(benchmark, "SUITES", {"small": Suite})
    monkeypatch.setenv("FEDBO_DATA", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    request = BenchmarkRequest("small", tmp_path / "out", ["random", "ts"], replicates=2)
    made = run_benchmark(request, silent, lambda: None)
    (line,) = made.left_out
    assert line.startswith("gone: ") and "landmine" in line
    assert [result.study.study.name for result in made.results] == ["here"]
    with pytest.raises(StudyError, match=r"suite small 1, here: has no algorithms; add some"):
        run_benchmark(BenchmarkRequest("small", tmp_path / "out"), silent, lambda: None)


def test_wrong_inputs_are_said_before_anything_runs(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    to = ["--to", str(tmp_path / "out")]
    for arguments, words in (
        (["nosuch"], "no suite 'nosuch'"),
        (["no/such"], "no/such: is not a folder"),
        ([str(tmp_path / "empty")], "contains no study"),
        ([str(folder), "--algorithms", "Alone,ftz"], "spread-0.1.toml: [[algorithm]] 2 name = 'ftz'"),
        ([str(folder), "--replicates", "0"], "--replicates"),
    ):
        assert main(["bench", *arguments, *to]) == WRONG_INPUT
        assert words in capsys.readouterr().err.splitlines()[0]
    assert not (tmp_path / "out").exists()


def test_the_function_answers_with_the_paired_tests(folder: Path, tmp_path: Path) -> None:
    made = fedbo.bench(folder, out=tmp_path / "out", overrides=["hosting.workers=0"], dark=True)
    assert imread(made.paths[1])[..., :3].mean() < 0.2  # a dark page
    assert made.overview is not None and [(pair.one, pair.other, pair.tied) for pair in made.overview.pairs] == [
        ("Alone", "Other", 2)
    ]
    assert [path.exists() for path in made.paths] == [True] * 3 and len(made.results) == 2
    with pytest.raises(fedbo.errors.ArgumentError, match="must be two or more names"):
        fedbo.bench(folder, algorithms=["random"])
