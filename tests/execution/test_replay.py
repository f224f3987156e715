"""A run that is carried out again is the same, and where it is not, the first event that differs is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import TROUBLED, tables

import fedbo
from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.cli import main
from fedbo.coordinator.errors import ReplayError
from fedbo.execution.replay import replay
from fedbo.study.paths import DirectoryError

SMALL: dict[str, Any] = {
    **TROUBLED,
    "objective": {"name": "quadratic", "agents": 3},
    "agents": {"initial": 2, "checkpoint": 2, "history": {"algorithm": "random", "observations": 4}},
    "budget": {"iterations": 4},
}
WALL: dict[str, Any] = {
    "study": {"name": "wall", "seed": 1, "replicates": 2},
    "objective": {"name": "quadratic", "agents": 3},
    "agents": {"initial": 2},
    "budget": {"iterations": 4},
    "algorithm": [{"name": "random"}, TROUBLED["algorithm"][1]],
    "timing": {"clock": "wall", "latency": {"model": "exponential", "mean": 0.02}},
    "fault": [{"kind": "loss", "probability": 0.2}],
    "network": {"retry": 0.05},
    "hosting": {"kind": "packed", "workers": 2},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run, which nobody changes."""
    return fedbo.run(SMALL, out=tmp_path_factory.mktemp("ran") / "run").directory


@pytest.fixture
def done(ran: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(ran, tmp_path / "run")


def changed(directory: Path, name: str, row: int, column: str, value: Any) -> None:
    """Change one value of a table."""
    table = pq.read_table(directory / name)
    rows = table.to_pylist()
    rows[row][column] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), directory / name)


def test_a_run_in_virtual_time_is_replayed_to_the_bit(done: Path, tmp_path: Path) -> None:
    found = replay(done, verify=True)
    assert found.same and found.directory is None and found.recorded == found.replayed
    assert found.words.startswith(f"no difference: {len(fedbo.Result.open(done).events)} events, sha256 {found.recorded[:16]}")
    kept = replay(done, out=tmp_path / "again")
    assert kept.directory == str(tmp_path / "again") and tables(tmp_path / "again") == tables(done)
    assert fedbo.Result.open(tmp_path / "again").manifest["status"] == "complete"


def test_the_first_event_that_differs_is_named_with_both_versions_of_it(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(done, "events.parquet", 40, "time", 99.5)
    changed(done, "events.parquet", 50, "kind", "nothing")
    assert main(["replay", str(done), "--verify"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("events differ first in row 40:\n  recorded: ") and "time 99.5" in said.splitlines()[1]
    assert "replayed: " in said.splitlines()[2] and "99.5" not in said.splitlines()[2]


def test_an_observation_that_differs_is_named_when_all_events_are_the_same(done: Path) -> None:
    changed(done, "observations.parquet", 7, "value", 0.125)
    found = replay(done, verify=True)
    assert not found.same and found.recorded == found.replayed
    assert found.difference is not None and found.difference.startswith("observations differ first in row 7:")


def test_a_log_that_ends_too_early_differs_where_it_ends(done: Path) -> None:
    table = pq.read_table(done / "events.parquet")
    pq.write_table(table.slice(0, len(table) - 3), done / "events.parquet")
    found = replay(done, verify=True)
    assert f"row {len(table) - 3}:\n  recorded: nothing: the log ends before" in str(found.difference)


def test_the_command_prints_one_object_and_leaves_nothing_behind(
    done: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["replay", str(done), "--verify", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["difference"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_has_not_ended_is_not_replayed(done: Path, tmp_path: Path) -> None:
    manifest = read_manifest(done)
    write_manifest(done, {**manifest, "status": "interrupted"})
    with pytest.raises(DirectoryError, match="has not ended; resume it first: fedbo resume"):
        replay(done, verify=True)
    with pytest.raises(DirectoryError, match="is not a run directory"):
        replay(tmp_path / "nowhere")


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
def test_a_run_in_real_time_is_replayed_by_its_record_without_waiting_and_to_the_bit(tmp_path: Path, ray_session: None) -> None:
    directory = fedbo.run(WALL, out=tmp_path / "run").directory
    assert replay(directory, verify=True).same
    kept = replay(directory, out=tmp_path / "again")
    assert kept.same and tables(tmp_path / "again") == tables(directory)

    changed(directory, "record.parquet", 10, "number", 10_000)
    with pytest.raises(DamagedError, match="record.parquet': is damaged"):
        replay(directory, verify=True)
    manifest = read_manifest(directory)
    del manifest["files"]["record.parquet"]  # as one that does not say what was written there
    write_manifest(directory, manifest)
    with pytest.raises(ReplayError, match="event 10 at .*: no event with number 10000 is scheduled"):
        replay(directory, verify=True)
    (directory / "record.parquet").unlink()
    with pytest.raises(ReplayError, match="ran in real time and has no record.parquet, so it cannot be replayed"):
        replay(directory, verify=True)
