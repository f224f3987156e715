"""Runs that have ended and are extended: what they give, which can be, and what is said of those that cannot."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.actors.storage.sealed import DamagedError
from fedbo.algorithms.base import Anytime
from fedbo.algorithms.catalog import algorithms
from fedbo.algorithms.random import Random
from fedbo.cli import main
from fedbo.execution.extension import why_not_extended
from fedbo.execution.runner import resume_study
from fedbo.settings.errors import SettingError
from fedbo.study.document import StudyError
from fedbo.study.paths import DirectoryError
from fedbo.study.study import load_study
from fedbo.study.tables import AlgorithmTable
from tests.random_studies.carrying_out import tables

STUDY: dict[str, Any] = {
    "study": {"name": "short", "seed": 4},
    "objective": {"name": "branin", "agents": 3},
    "agents": {"initial": 2},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "random"}],
    "timing": {"evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.5}},
    "exchange": {"mode": "barrier"},
}


def declared(name: str) -> str | None:
    """Say what an algorithm declares to use T for; None where it does not take a budget of iterations."""
    try:
        (table,) = load_study({**STUDY, "algorithm": [{"name": name}]}).algorithm
    except (StudyError, SettingError):
        return None
    algorithm = table.make()
    assert isinstance(algorithm, Anytime), f"{name} does not say what it uses T for"
    return algorithm.horizon_use


def test_every_algorithm_says_what_it_uses_the_budget_for() -> None:
    uses = {name: declared(name) for name in algorithms()}
    assert {name for name, use in uses.items() if use} == {
        *("admm_allocation", "admm_consensus", "gp_ts", "pooled", "t_hoo"),
    }
    assert {name for name, use in uses.items() if use is None} == {
        *("a_blin", "d_blin", "dp_fed_pne", "fed1_ucb", "fed_pne"),  # whose budgets count evaluations
    }


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_runs_of_methods_without_a_horizon_are_extended_to_those_that_had_more_iterations(every: bool, tmp_path: Path) -> None:
    """They also begin alike: all steps but the last of the first agent to end are those of the shorter run."""
    classes = {entry.settings: name for name, entry in algorithms().items() if declared(name) == ""}
    small = {name: {"features": 20} if "features" in algorithms()[name].free() else {} for name in classes.values()}
    listed: list[dict[str, Any]] = [{"name": name} | settings for name, settings in small.items()]
    listed += [{"name": "gp_ts", "regulariser": 1.0}]
    assert len(listed) == 13
    listed = listed if every else [table for table in listed if table["name"] in ("fts_uniform", "hct", "random", "gp_ts")]
    study = {**STUDY, "timing": {}, "algorithm": listed}
    before = fedbo.run(study, out=tmp_path / "run").observations.to_pylist()
    fedbo.run(study, out=tmp_path / "at once", overrides=["budget.iterations=3"])
    extended = fedbo.resume(tmp_path / "run", overrides=["budget.iterations=3"])
    assert tables(tmp_path / "run") == tables(tmp_path / "at once")
    assert (tmp_path / "run" / "study.toml").read_bytes() == (tmp_path / "at once" / "study.toml").read_bytes()
    first = [row for row in extended.observations.to_pylist() if row["step"] < 3]
    assert len(before) >= 6 * len(listed) and repr(first) == repr(before)
    assert extended.manifest["status"] == "complete" and len(extended.manifest["extended"]) == 1


@pytest.mark.parametrize("algorithm", ["t_hoo", "gp_ts", "pooled"])
def test_a_method_that_uses_its_horizon_is_refused_with_the_reason(algorithm: str, tmp_path: Path) -> None:
    fedbo.run({**STUDY, "algorithm": [{"name": algorithm}]}, out=tmp_path / "run")
    kept = tables(tmp_path / "run")
    with pytest.raises(
        StudyError, match=f"budget.iterations: '{algorithm}' uses the budget from its first decision: it .*run the study again"
    ):
        fedbo.resume(tmp_path / "run", overrides=["budget.iterations=3"])
    assert tables(tmp_path / "run") == kept


def test_a_method_that_declares_nothing_is_taken_to_use_its_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    table = AlgorithmTable(name="random")
    assert not why_not_extended(table)
    monkeypatch.delattr(Random, "horizon_use")
    assert "'random' does not declare whether it uses the budget; add horizon_use to its class" in why_not_extended(table)


@pytest.mark.usefixtures("undrawn")
def test_replicates_and_algorithms_are_added_and_what_was_run_is_not_run_again(tmp_path: Path) -> None:
    run, more = tmp_path / "run", [{"name": "hct"}, {"name": "random", "label": "again"}]
    fedbo.run(STUDY, out=run)
    fedbo.resume(run, overrides=["study.replicates=2"], algorithms=more[:1])
    assert main(["resume", str(run), "--algorithm", '{name = "random", label = "again"}', "--quiet"]) == 0
    whole = {**STUDY, "study": {**STUDY["study"], "replicates": 2}, "algorithm": [*STUDY["algorithm"], *more]}
    result = fedbo.run(whole, out=tmp_path / "at once")
    assert tables(run) == tables(tmp_path / "at once")
    extended = fedbo.Result.open(run)
    assert extended.manifest["complete_runs"] == result.manifest["complete_runs"]
    assert extended.manifest["best_values"] == result.manifest["best_values"]
    paired = {
        (row["replicate"], row["agent"], row["query"], str(row["x"]))
        for row in extended.observations.to_pylist()
        if row["phase"] == "initial" and row["algorithm"] != "hct"  # which takes no initial points
    }
    assert len(paired) == 2 * 3 * 2  # common random numbers


def test_rows_that_an_extension_keeps_and_that_are_lost_are_refused_with_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the copy the extended run would end "complete" with the new replicates alone."""
    run = tmp_path / "run"
    fedbo.run(STUDY, out=run)
    with monkeypatch.context() as patched:
        patched.setattr("fedbo.execution.runner.carry_out", lambda *arguments: None)
        resume_study(run, ["study.replicates=2"])
    copy = run / "parts" / "kept" / "observations.parquet"
    copy.unlink()
    with pytest.raises(DamagedError, match=r"it is missing.*restore it: cp .*observations.parquet") as refused:
        fedbo.resume(run)
    subprocess.run(str(refused.value).partition("restore it: ")[2], shell=True, check=True)
    fedbo.resume(run)
    fedbo.run({**STUDY, "study": {**STUDY["study"], "replicates": 2}}, out=tmp_path / "whole")
    assert tables(run) == tables(tmp_path / "whole")


def test_a_run_that_is_kept_beside_one_without_a_row_has_the_same_bytes(tmp_path: Path) -> None:
    """No evaluation ends in time, so that the schema of the table is that of the rows that are kept."""
    study = {**STUDY, "budget": {"iterations": 2, "time": 0.1}}
    fedbo.run(study, out=tmp_path / "run")
    fedbo.resume(tmp_path / "run", overrides=["study.replicates=2"])
    assert not len(fedbo.run(study, out=tmp_path / "at once", overrides=["study.replicates=2"]).observations)
    assert tables(tmp_path / "run") == tables(tmp_path / "at once")


@dataclass(frozen=True)
class Costly:
    """A file in which a costly function counts its evaluations."""

    path: Path

    @property
    def count(self) -> int:
        return len(self.path.read_text()) if self.path.exists() else 0


@pytest.fixture
def costly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Costly:
    calls = tmp_path / "calls"
    (tmp_path / "costly.py").write_text(
        f"def f(x):\n    with open({str(calls)!r}, 'a') as file:\n        file.write('.')\n    return float(x[0])\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    return Costly(calls)


def test_what_was_evaluated_is_looked_up(costly: Costly, tmp_path: Path) -> None:
    objective = {"name": "python_function", "function": "costly:f", "agents": 3, "low": [0.0], "high": [1.0]}
    fedbo.run({**STUDY, "objective": objective}, out=tmp_path / "run")
    made = costly.count
    fedbo.resume(tmp_path / "run", overrides=["budget.iterations=5"])
    assert (made, costly.count) == (3 * 4, 3 * 7)


@pytest.mark.parametrize(
    ("budget", "change"),
    [
        ({"time": 2.5}, "budget.time=6"),
        pytest.param({"evaluations": 8}, "budget.evaluations=11", marks=pytest.mark.long),
        pytest.param({"target": 30.0}, "budget.target=0.5", marks=pytest.mark.long),
        pytest.param({"cost": 2.5}, "budget.cost=4.0", marks=pytest.mark.long),
    ],
)
def test_other_ends_of_a_run_are_put_off(budget: dict[str, float], change: str, tmp_path: Path) -> None:
    """Also for methods that use T, which stays what it was."""
    study = {**STUDY, "budget": {"iterations": 5} | budget, "algorithm": [{"name": "gp_ts"}, {"name": "random"}]}
    before = len(fedbo.run(study, out=tmp_path / "run").observations)
    fedbo.run(study, out=tmp_path / "at once", overrides=[change])
    assert len(fedbo.resume(tmp_path / "run", overrides=[change]).observations) > before
    assert tables(tmp_path / "run") == tables(tmp_path / "at once")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that has ended, which nothing changes."""
    directory = tmp_path_factory.mktemp("ended") / "run"
    fedbo.run({**STUDY, "budget": {"iterations": 2, "time": 9.0}, "sweep": {"network.retry": [1.0, 2.0]}}, out=directory)
    return directory


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], "has ended; show it: fedbo show .*; or extend it, for example with overrides="),
        (
            ["budget.iterations=1"],
            "overrides: budget.iterations=1: would have ended the run earlier, which had 2; set a larger value",
        ),
        (
            ["budget.time=3.0"],
            "overrides: budget.time=3.0: would have ended the run earlier, which had 9.0; set a larger value",
        ),
        (
            ["budget.evaluations=50"],
            "overrides: budget.evaluations=50: would have ended the run earlier, which had none",
        ),
        (
            ["study.seed=5"],
            "overrides: study.seed=5: cannot change after the start of the run; run the study in a new directory",
        ),
        (
            ["exchange.mode=immediate"],
            "overrides: exchange: cannot change after the start of the run; you can change",
        ),
        (["budget.pulls=9"], "iterations"),
        (["budget.iterations=0"], "overrides: \\[budget\\] iterations = 0: must be"),
        (
            ["algorithm.random.label=b"],
            "overrides: algorithm.random: has already run with its settings; add another algorithm with another label",
        ),
    ],
)
def test_what_is_no_extension_is_refused_in_one_line(changes: list[str], words: str, ended: Path) -> None:
    kept = tables(ended)
    with pytest.raises((DirectoryError, StudyError), match=words) as refusal:
        fedbo.resume(ended, overrides=changes)
    assert "\n" not in str(refusal.value)
    assert tables(ended) == kept and not (ended / "parts").exists()


def test_fewer_replicates_and_a_second_algorithm_with_one_label_are_refused(tmp_path: Path) -> None:
    fedbo.run(STUDY, out=tmp_path / "run", overrides=["study.replicates=2"])
    with pytest.raises(StudyError, match="overrides: study.replicates=1: is fewer than the 2 of the run; set more"):
        fedbo.resume(tmp_path / "run", overrides=["study.replicates=1"])
    with pytest.raises(StudyError, match="label"):
        fedbo.resume(tmp_path / "run", algorithms=[{"name": "random"}])


def test_a_swept_budget_is_not_extended(tmp_path: Path) -> None:
    fedbo.run({**STUDY, "sweep": {"budget.iterations": [1, 2]}}, out=tmp_path / "run")
    with pytest.raises(
        StudyError, match="overrides: budget.iterations: is swept, so each cell has its own value; run the larger values as a"
    ):
        fedbo.resume(tmp_path / "run", overrides=["budget.iterations=5"])


def test_a_run_that_has_not_ended_is_to_end_before_it_is_extended(tmp_path: Path) -> None:
    fedbo.run(STUDY, out=tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    from fedbo.analysis.manifest import read_manifest, write_manifest

    assert manifest["status"] == "complete"
    write_manifest(tmp_path / "run", {**read_manifest(tmp_path / "run"), "status": "interrupted"})
    with pytest.raises(DirectoryError, match="has not ended; resume it before you extend it: fedbo resume"):
        resume_study(tmp_path / "run", added=[{"name": "ts"}])
