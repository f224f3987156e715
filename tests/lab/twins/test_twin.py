"""`fedbo twin`: a run in a known world is predicted from its fit alone, and changes are compared replicate by replicate."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

import fedbo
from fedbo.cli import main
from fedbo.execution.runner import run_study
from fedbo.lab.twins import families
from fedbo.study.study import load_study

ROUNDS: dict[str, Any] = {
    "study": {"name": "rounds", "seed": 5},
    "objective": {"name": "branin", "agents": 5},
    "budget": {"iterations": 30},
    "algorithm": [{"name": "fts", "features": 20, "own": {"surrogate": "features", "features": 20, "refit": 1000}}],
    "timing": {
        "evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 0.7},
        "latency": {"model": "exponential", "mean": 0.1},
    },
    "group": [{"name": "slow", "agents": [4], "speed": {"factors": [2.0]}}],
    "exchange": {"mode": "barrier"},
}
PLACES: dict[str, Any] = {
    "study": {"name": "places", "seed": 6},
    "objective": {"name": "quadratic", "agents": 2},
    "budget": {"iterations": 60},
    "algorithm": [{"name": "random"}],
    "timing": {"evaluation": {"model": "gamma", "mean": 1.0}, "decision": {"coefficient": 0.02, "power": 0.0}},
    "evaluation": {"parallel": 4},
}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the bootstrap: p below 0.05 are as rare where a family is true, and fits are tested elsewhere."""
    monkeypatch.setattr(families, "DRAWS", 99)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("lived")
    for name, study in {"rounds": ROUNDS, "places": PLACES}.items():
        run_study(load_study(study), folder / name)
    return {name: folder / name for name in ("rounds", "places")}


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["twin", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", [pytest.param("rounds", marks=pytest.mark.long), "places"])
def test_a_run_is_predicted_from_its_fit_alone(name: str, lived: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["fact"]: row for row in told(capsys, str(lived[name]), "--replicates", "6")["twin"]["rows"]}
    for fact in ("makespan", "utilisation", "steady"):
        assert abs(rows[fact]["error"]) < 0.1, rows[fact]
    for fact in ("evaluations", "messages", "rounds"):
        assert rows[fact]["twin"] == rows[fact]["recorded"]
    assert rows["order"]["twin"] > 0.7


@pytest.mark.long
def test_what_would_be_different_is_compared(lived: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, str(lived["rounds"]), "--set", "exchange.mode=immediate", "--replicates", "3")
    ratio = {row["fact"]: row for row in found["changed"]["ratios"]}
    assert ratio["makespan"]["ratio"] < 0.9
    found = told(
        capsys, str(lived["places"]), "--set", "cluster.workers=4", "--replicates", "3", "--set",
        "fault=[{kind = 'preemption', rate = 0.01, duration = 1.0}]",
    )  # fmt: skip
    ratio = {row["fact"]: row for row in found["changed"]["ratios"]}
    assert found["changed"]["workers"] == 4 and 1.7 < ratio["makespan"]["ratio"] < 3.0


CLUSTER: dict[str, Any] = {
    "study": {"name": "queue", "seed": 7},
    "objective": {"name": "quadratic", "agents": 4},
    "budget": {"iterations": 20},
    "algorithm": [{"name": "random"}],
    "timing": {"evaluation": {"model": "gamma", "mean": 1.0}},
    "evaluation": {"parallel": 3, "resources": [{"CPU": 2.0}]},
    "cluster": {
        "worker": [
            {"name": "own", "count": 1, "cpus": 4.0},
            {"name": "spot", "count": 2, "speed": 2.0, "startup": 0.2, "cpus": 2.0},
        ]
    },
    "fault": [{"kind": "preemption", "workers": "spot", "rate": 0.05, "duration": 1.0}],
}


@pytest.mark.long
def test_queueing_is_no_decision_and_a_twin_keeps_classes_and_preemptions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_study(load_study(CLUSTER), tmp_path / "run")
    assert main(["fit", str(tmp_path / "run"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "decision" not in found["world"]["timing"] and found["queued"] > 0.3
    assert found["world"]["timing"]["evaluation"]["mean"] == pytest.approx(1.0, rel=0.1)
    assert [one["name"] for one in found["world"]["cluster"]["worker"]] == ["own", "spot"]
    assert found["world"]["fault"] == [{**CLUSTER["fault"][0], "label": "preemption"}]
    rows = {row["fact"]: row for row in told(capsys, str(tmp_path / "run"), "--replicates", "6")["twin"]["rows"]}
    for fact in ("makespan", "utilisation", "steady"):
        assert rows[fact]["low"] * 0.95 < rows[fact]["recorded"] < rows[fact]["high"] * 1.05, rows[fact]


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        pytest.param("objective.agents=9", marks=pytest.mark.long),
        pytest.param("evaluation.parallel=7", marks=pytest.mark.long),
        "cluster.workers=2",
        pytest.param("cluster={worker=[{name='a', cpus=8.0}]}", marks=pytest.mark.long),
        pytest.param("evaluation.prefetch=2", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", ["rounds", pytest.param("places", marks=pytest.mark.long)])
def test_workers_are_never_used_more_than_they_can_be(
    name: str, change: str, lived: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, str(lived[name]), "--set", change, "--replicates", "2")
    for part in ("twin", "changed"):
        assert all(0 < one["utilisation"] <= 1 and 0 < one["steady"] <= 1 for one in found[part]["replicates"])


def test_it_is_printed_and_the_same_again(lived: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["twin", str(lived["places"]), "--replicates", "2", "--set", "cluster.workers=4"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert main(arguments) == 0
    assert first == capsys.readouterr().out
    assert "makespan" in first and "with cluster.workers=4" in first
    assert first.startswith("twin of 'random': 2 replicates, 8 workers\n'random' sent no message\n")


def test_what_has_no_twin_is_one_line(lived: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    varying = {**PLACES, "budget": {"pulls": 40}, "algorithm": [{"name": "fed_pne"}], "evaluation": {}}
    swept = {**PLACES, "budget": {"iterations": 2}, "sweep": {"study.seed": [1, 2]}}
    swept["sweep"] = {"timing.evaluation.mean": [1.0, 2.0]}
    run_study(load_study(varying), tmp_path / "varying")
    run_study(load_study(swept), tmp_path / "swept")
    for arguments, words in {
        (str(tmp_path / "varying"),): "chooses a varying number of points, which a twin does not support",
        (str(tmp_path / "swept"),): "has a sweep; use a run without one",
        (str(lived["places"]), "--algorithm", "ts"): "has no algorithm 'ts'",
        (str(lived["places"]), "--set", "cluster.workers=0"): "must be at least 1",
        (str(lived["places"]), "--set", "worker=8"): "worker",
        **{
            (str(lived["places"]), "--set", change): f"--set {change.partition('=')[0]}: defines the agents' objectives"
            for change in ("objective.agents=9", "objective.name=branin", "objective={name='branin'}", "sweep.study.seed=[1,2]")
        },
        (str(tmp_path),): "is not a finished run",
    }.items():
        assert main(["twin", *arguments]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and words in said


def test_the_first_federated_algorithm_is_rebuilt_and_not_the_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_study(
        load_study({**ROUNDS, "budget": {"iterations": 8}, "algorithm": [{"name": "random"}, *ROUNDS["algorithm"]]}),
        tmp_path / "run",
    )
    found = told(capsys, str(tmp_path / "run"), "--replicates", "2")
    assert found["algorithm"] == "fts" and found["twin"]["replicates"][0]["messages"] > 0


def test_the_functions_answer_as_the_commands_do(
    lived: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["timing.evaluation.mean=2.0"]
    found = fedbo.twin(lived["places"], overrides=changes, replicates=3)
    facts = told(capsys, str(lived["places"]), "--replicates", "3", "--set", *changes)
    assert found.ratios == facts["changed"]["ratios"] and found.words.startswith("twin of 'random': 3 replicates")
    world = fedbo.fit(lived["places"], out=tmp_path / "fit")
    assert (str(found), tomllib.loads(str(world))) == (found.words, world.tables())
    assert main(["fit", str(lived["places"]), "--format", "json", "--dark", "--out", str(tmp_path / "dark")]) == 0
    pages = [imread(tmp_path / folder / "durations.png")[..., :3].mean() for folder in ("fit", "dark")]
    assert pages[0] > 0.8 and pages[1] < 0.2
    assert world.tables() == json.loads(capsys.readouterr().out)["world"]
    assert b"duration of an evaluation, virtual time" in (tmp_path / "fit" / "durations.png").read_bytes()
    with pytest.raises(fedbo.errors.ArgumentError, match="dark = True: is for the figure in the folder out; set out too"):
        fedbo.fit(lived["places"], dark=True)
    assert {"world.toml", "durations.png"} <= {path.name for path in (tmp_path / "fit").iterdir()}
    with pytest.raises(fedbo.errors.ArgumentError, match="replicates = 1: must be a whole number from 2"):
        fedbo.twin(lived["places"], replicates=1)
