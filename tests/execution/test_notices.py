"""Callbacks of any study: told of everything once; one that fails disturbs nothing, and none changes a bit."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.callbacks import RayMetrics
from fedbo.cli import main
from fedbo.execution.jobs import runs
from fedbo.execution.monitor import RunMonitor
from fedbo.execution.notices import ClosedRound, Evaluation, LoggedEvent
from fedbo.objectives.outcome import Outcome
from tests.random_studies.carrying_out import tables
from tests.random_studies.studies import draw_study

STUDY: dict[str, Any] = {
    "study": {"name": "told", "replicates": 2},
    "objective": {"name": "branin", "agents": 3},
    "budget": {"iterations": 3},
    "algorithm": [{"name": "fts", "every": 1, "p": 1.0, "features": 10, "own": {"features": 10}}, {"name": "random"}],
    "exchange": {"mode": "first_k", "k": 2},
    "timing": {"evaluation": {"model": "lognormal"}},
    "recovery": {"events": 7},
}


class Seen:
    """A callback that keeps everything."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        self.events: list[LoggedEvent] = []
        self.rounds: list[ClosedRound] = []
        self.ends = 0

    def on_evaluation(self, evaluation: Evaluation) -> bool:
        self.evaluations.append(evaluation)
        return True  # which ends a study in real time, and no other

    def on_event(self, event: LoggedEvent) -> None:
        self.events.append(event)

    def on_round(self, closed: ClosedRound) -> None:
        self.rounds.append(closed)

    def on_end(self) -> None:
        self.ends += 1


def check_all_was_told(seen: Seen, result: fedbo.Result) -> None:
    """Each row of the tables once, those of a run in their order."""
    assert sorted(seen.events, key=repr) == sorted((LoggedEvent(**row) for row in result.events.to_pylist()), key=repr)
    for key in {event[:3] for event in seen.events}:
        numbers = [event.sequence for event in seen.events if event[:3] == key]
        assert numbers == sorted(numbers)
    rows = result.observations.to_pylist()
    expected = [
        (RunKey(r["cell"], r["algorithm"], r["replicate"]), r["agent"], r["started"], r["finished"], r["error"]) for r in rows
    ]
    told = [(each.run, each.agent, each.started, each.finished, each.error) for each in seen.evaluations]
    assert sorted(map(str, told)) == sorted(map(str, expected))
    assert len({(each.run, each.agent, each.number) for each in seen.evaluations}) == len(rows)
    closed = [event for event in seen.events if event.kind == "round"]
    assert [(each.run, each.number, each.bytes_down) for each in seen.rounds] == [(e[:3], e.round, e.bytes) for e in closed]
    assert seen.ends == 1


def test_every_row_of_the_tables_is_told_once_and_changes_no_bit(tmp_path: Path) -> None:
    seen, values = Seen(), list[Evaluation]()
    result = fedbo.run(STUDY, out=tmp_path / "told", callbacks=[seen, values.append])
    check_all_was_told(seen, result)
    assert values == seen.evaluations and sum(len(each.arrived) for each in seen.rounds) > 0
    assert all(set(each.configuration) == {"x1", "x2"} and isinstance(each.value, float) for each in values)
    fedbo.run(STUDY, out=tmp_path / "untold")
    assert tables(tmp_path / "told") == tables(tmp_path / "untold")


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(300, 360))])
def test_random_studies_are_told_whole_and_unchanged(seed: int, tmp_path: Path) -> None:
    _, study = draw_study(seed)

    def run(name: str, *callbacks: Any) -> fedbo.Result | None:
        try:
            return fedbo.run(study, out=tmp_path / name, callbacks=callbacks)
        except fedbo.errors.RunError:
            return None

    seen = Seen()
    untold, told = run("untold"), run("told", failing_later(), seen)
    assert tables(tmp_path / "untold") == tables(tmp_path / "told")
    assert (untold is None) == (told is None)
    if told is not None:
        check_all_was_told(seen, told)


def failing_later() -> Callable[[Evaluation], None]:
    told: list[Evaluation] = []

    def third_time(evaluation: Evaluation) -> None:
        told.append(evaluation)
        if len(told) >= 3:
            raise OSError("the disk of the\nlogs is full")

    return third_time


def test_a_callback_that_fails_is_one_line_and_is_told_nothing_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = Seen()
    result = fedbo.run(STUDY, out=tmp_path / "run", callbacks=[failing_later(), seen])
    assert len(seen.evaluations) == result.observations.num_rows
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("callback")]
    words = "raised OSError: the disk of the logs is full, and was disabled; the study continues"
    assert line == f"callback failing_later.<locals>.third_time {words}"


def test_a_run_that_is_resumed_is_told_from_its_beginning(tmp_path: Path) -> None:
    def interrupts(evaluation: Evaluation) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedbo.run(STUDY, out=tmp_path / "run", callbacks=[interrupts])
    write_manifest(tmp_path / "run", {**read_manifest(tmp_path / "run"), "status": "interrupted"})
    seen = Seen()
    check_all_was_told(seen, fedbo.resume(tmp_path / "run", callbacks=[seen]))
    fedbo.run(STUDY, out=tmp_path / "alone")
    assert tables(tmp_path / "alone") == tables(tmp_path / "run")


CALLBACK = """
import json
from fedbo.objectives.outcome import Outcome

class Kept:
    def __init__(self):
        self.count = {"evaluations": 0, "events": 0, "rounds": 0}
    def on_evaluation(self, evaluation): self.count["evaluations"] += 1
    def on_event(self, event): self.count["events"] += 1
    def on_round(self, closed): self.count["rounds"] += 1
    def on_end(self): print("count", json.dumps(self.count))

class Needy:
    def __init__(self, folder): pass

number = 5
"""


@pytest.mark.long
def test_callbacks_are_named_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kept_by_a_test.py").write_text(CALLBACK)
    (tmp_path / "study.toml").write_text(fedbo.load_study(STUDY).to_toml())
    arguments = [
        "run",
        str(tmp_path / "study.toml"),
        "--quiet",
        "--format",
        "json",
        "--out",
        str(tmp_path / "run"),
        "--callback",
    ]
    place = str(tmp_path / "kept_by_a_test.py")
    assert main([*arguments, f"{place}:Kept"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("count")]
    result = fedbo.Result.open(tmp_path / "run")
    rounds = result.events["kind"].to_pylist().count("round")
    expected = {"evaluations": result.observations.num_rows, "events": result.events.num_rows, "rounds": rounds}
    assert json.loads(line.removeprefix("count ")) == expected
    for name, why in (
        ("mlflw", "no callback 'mlflw'; did you mean 'mlflow'"),
        (f"{place}:number", "must be a function of an evaluation, or an object with on_evaluation"),
        (f"{place}:Needy", "TypeError: Needy.__init__() missing 1 required"),
        ("gone.py:Kept", "there is no file 'gone.py'"),
        ("no_such_package:function", "No module named 'no_such_package'"),
    ):
        assert main([*arguments, name]) == 2
        printed = capsys.readouterr().err
        assert f"--callback {name}: " in printed and why in printed and printed.count("\n") == 1
    with pytest.raises(ValueError, match="must be a function of an evaluation, or an object with .*, not a int"):
        fedbo.run(STUDY, callbacks=[5])


def test_metrics_of_ray_without_ray_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import ray

    if ray.is_initialized():
        pytest.skip("another test has started Ray")
    fedbo.run(STUDY, out=tmp_path / "run", callbacks=["ray_metrics"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("callback")]
    assert "RuntimeError: this study does not run on Ray; set workers, another hosting or an address" in line


@pytest.mark.parametrize(
    ("budget", "callback", "ends"),
    [
        ({}, lambda evaluation: True, True),
        ({}, lambda evaluation: 1, False),
        ({"evaluations": 1}, None, True),
        ({"evaluations": 2}, None, False),
    ],
)
def test_an_evaluation_in_real_time_ends_a_study_that_has_enough(
    budget: dict[str, int], callback: Any, ends: bool, tmp_path: Path
) -> None:
    wall = {"timing": {"clock": "wall"}, "exchange": {"mode": "immediate"}, "hosting": {"kind": "dedicated"}}
    study = fedbo.load_study({**STUDY, **wall, "budget": {"iterations": 3, **budget}, "algorithm": [{"name": "random"}]})
    first, *_ = work = runs(study, tmp_path)
    log = EvaluationLog(RunFolder.of(first.folder, first.key), {0}, None)
    log.append([EvaluationRecord(0, 0, [1.0, 2.0], Outcome(-3.0), started=0.1, finished=0.2)])
    log.close()
    seen = list[Evaluation]()
    monitor = RunMonitor(study, work, [callback, seen.append] if callback else [])
    assert monitor.poll() is ends and monitor.poll() is ends
    assert [(each.run, each.value) for each in seen] == [(first.key, 3.0)] * (callback is not None)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_metrics_of_ray_count_what_has_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ray's endpoint is there with `ray[default]` alone; elsewhere Ray takes the metrics and shows them to nobody."""
    metrics, study = RayMetrics(), {**STUDY, "study": {"name": "told"}, "hosting": {"kind": "packed", "workers": 1}}
    result = fedbo.run(study, out=tmp_path / "run", callbacks=[metrics])
    assert "callback" not in capsys.readouterr().err
    assert set(metrics._made) == {
        f"fedbo_{name}" for name in ("evaluations", "value", "duration", "events", "rounds", "round_bytes")
    }
    if (shown := endpoint()) is None:
        return
    counted: dict[str, float] = {}
    for _ in range(60):  # Ray collects them every ten seconds
        counted = counts(shown, {"fedbo_evaluations", "fedbo_events", "fedbo_rounds"})
        if counted.get("fedbo_events") == result.events.num_rows:
            break
        time.sleep(0.5)
    rounds = result.events["kind"].to_pylist().count("round")
    expected = {
        "fedbo_evaluations": result.observations.num_rows,
        "fedbo_events": result.events.num_rows,
        "fedbo_rounds": rounds,
    }
    assert counted == expected


def endpoint() -> str | None:
    """Give the address of Ray's Prometheus endpoint; None where it has none."""
    import ray

    node = ray.nodes()[0]
    return f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics" if node["MetricsExportPort"] > 0 else None


def counts(address: str, names: set[str]) -> dict[str, float]:
    """Sum up the counters of these names over their tags."""
    found: dict[str, float] = {}
    for line in urllib.request.urlopen(address, timeout=120).read().decode().splitlines():
        name = line.partition("{")[0].removeprefix("ray_").removesuffix("_total")
        if name in names and not line.startswith("#"):
            found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
    return found
