"""Going on with a study that was cut off: who may, from where, and what is said when it cannot be."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from killing import TROUBLED, End, Forks, begin_or_go_on, environment, gone, marked, tables

import fedbo
from fedbo.analysis import failures
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.cli import main

INTERRUPTED = 130
PACKED = ("--set", "hosting.kind=packed", "--set", "hosting.workers=2")


@pytest.fixture
def cut_off(forks: Forks, short: tuple[Path, dict[str, bytes]], tmp_path: Path) -> Path:
    """The directory of a short run that was killed in the middle of it."""
    directory = tmp_path / "cut off"
    assert forks("run", short[0], directory, before=60).killed  # of more than 100 file operations
    return directory


def command(*arguments: Any, mark: str = "") -> subprocess.Popen[str]:
    """Start the command itself, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedbo.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environment(FEDBO_TEST_MARK=mark),
        text=True,
    )


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Give the one line with which a command is refused."""

    def refuse(*arguments: object) -> str:
        assert main([*map(str, arguments)]) == 2
        said, complaint = capsys.readouterr()
        assert (said, complaint.count("\n")) == ("", 1), complaint
        return complaint

    return refuse


def wait_for_snapshots(directory: Path, count: int) -> None:
    """Wait until the runs of a study have made so many snapshots."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        found = [json.loads(path.read_text())["number"] for path in directory.glob("parts/*/latest.json")]
        if sum(found) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("the run does not go on")


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
def test_a_run_goes_on_under_another_hosting_and_back_with_the_same_bytes(
    forks: Forks, undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path, ray_session: None
) -> None:
    cut_off = tmp_path / "cut off"
    assert forks("run", undisturbed[0], cut_off, before=60).killed

    def interrupt() -> None:
        before = sum(json.loads(path.read_text())["number"] for path in cut_off.glob("parts/*/latest.json"))
        wait_for_snapshots(cut_off, before + 3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt, match="cut off"):
        fedbo.resume(cut_off, overrides=["hosting.kind=packed", "hosting.workers=3"])
    assert forks("resume", cut_off) == End(0, "")
    assert tables(cut_off) == undisturbed[1]
    manifest = fedbo.Result.open(cut_off).manifest
    assert (manifest["status"], manifest["resumed"]) == ("complete", 2)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_keeps_what_was_done_and_goes_on_from_there(
    number: signal.Signals, undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path, forks: Forks
) -> None:
    study, expected = undisturbed
    directory = tmp_path / "run"
    process = command("run", study, "--out", directory, "--quiet")
    wait_for_snapshots(directory, 3)
    process.send_signal(number)
    said, complaint = process.communicate(timeout=240)
    line = f"interrupted; partial results are in {directory}; continue with: fedbo resume {directory}\n"
    assert (process.returncode, said, complaint) == (INTERRUPTED, "", line)
    whole = fedbo.Result.open(study.parent / "run")
    assert 0 < len(fedbo.Result.open(directory).observations) < len(whole.observations)
    assert forks("resume", directory) == End(0, "")
    assert tables(directory) == expected


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_signal_to_all_processes_of_a_run_ends_it_as_one_to_its_driver_does(
    number: signal.Signals, undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path, forks: Forks
) -> None:
    """A terminal sends Ctrl-C to everybody whom the command has started."""
    study, expected = undisturbed
    directory, mark = tmp_path / "run", uuid.uuid4().hex
    process = command("run", study, "--out", directory, "--quiet", *PACKED, mark=mark)
    wait_for_snapshots(directory, 3)
    os.killpg(process.pid, number)
    said, complaint = process.communicate(timeout=240)
    assert (process.returncode, said) == (INTERRUPTED, ""), complaint
    assert f"continue with: fedbo resume {directory}\n" in complaint
    assert gone(mark), f"{len(marked(mark))} processes were left"
    assert forks("resume", directory) == End(0, "")
    assert tables(directory) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "room",
    [
        pytest.param(100, marks=pytest.mark.long),
        2500,
        pytest.param(8000, marks=pytest.mark.long),
        pytest.param(10000, marks=pytest.mark.long),
    ],
)
def test_a_disk_that_is_full_is_told_in_one_line_and_costs_nothing_once_there_is_room(
    room: int, forks: Forks, short: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    """Every file of this process may have so many bytes: at one size or another, each kind of file is the first too long."""
    study, expected = short
    directory = tmp_path / "run"
    end = forks("run", study, directory, room=room)
    remedy = f"; the disk is full: free some space, then continue with: fedbo resume {directory}"
    assert end.code == 1 and end.said.count("\n") == 1 and end.said.strip().endswith(remedy), end.said
    assert begin_or_go_on(forks, study, directory) == End(0, "")
    assert tables(directory) == expected


@pytest.mark.long
@pytest.mark.slow
def test_a_real_disk_that_is_full_is_told_by_the_command(
    undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path, forks: Forks
) -> None:
    study, expected = undisturbed
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk], capture_output=True).returncode:
        pytest.skip("only a machine's owner may mount a small disk")
    try:
        process = command("run", study, "--out", disk / "run", "--quiet")
        said, complaint = process.communicate(timeout=240)
        assert (process.returncode, said, complaint.count("\n")) == (1, "", 1), complaint
        assert "No space left on device" in complaint and f"continue with: fedbo resume {disk / 'run'}" in complaint
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        assert forks("resume", disk / "run") == End(0, "")
        assert tables(disk / "run") == expected
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.long
def test_two_processes_do_not_run_in_one_directory(
    undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path, forks: Forks, refused: Callable[..., str]
) -> None:
    study, expected = undisturbed
    directory = tmp_path / "run"
    process = command("run", study, "--out", directory, "--quiet")
    wait_for_snapshots(directory, 1)
    process.send_signal(signal.SIGSTOP)  # it shall not have ended before the other one has begun
    assert f"'{directory}': is in use by process {process.pid}; wait for that process, or end it" in refused(
        "resume", directory
    )
    process.kill()
    process.communicate()
    assert forks("resume", directory) == End(0, "")
    assert tables(directory) == expected
    assert not (directory / ".lock").exists()


@pytest.mark.slow
def test_a_run_that_has_not_ended_is_not_run_over_but_named_with_the_way_on(
    short: tuple[Path, dict[str, bytes]], cut_off: Path, forks: Forks, refused: Callable[..., str]
) -> None:
    complaint = refused("run", short[0], "--out", cut_off, "--quiet")
    assert complaint == f"'{cut_off}' contains an unfinished run; resume it: fedbo resume {shlex.quote(str(cut_off))}\n"
    assert forks("resume", cut_off) == End(0, "")
    assert tables(cut_off) == short[1]
    assert (
        f"'{cut_off}': has ended; show it: fedbo show {shlex.quote(str(cut_off))}; or extend it"
        in forks("resume", cut_off).said
    )
    assert "exists and is not an empty directory" in forks("run", short[0], cut_off).said


@pytest.mark.slow
def test_what_would_change_a_result_is_refused(cut_off: Path, forks: Forks, refused: Callable[..., str]) -> None:
    other = "the study file has changed since this run started; run it in a new directory"
    assert other in refused("resume", cut_off, "--set", "budget.iterations=17")
    assert other in forks("resume", cut_off, "study.seed=6").said
    manifest = read_manifest(cut_off)
    manifest["versions"]["numpy"] = "1.0.0"
    write_manifest(cut_off, manifest)
    complaint = forks("resume", cut_off).said
    assert (
        "was started with other versions (numpy 1.0.0 -> " in complaint and "install those, or run the study again" in complaint
    )


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    from fedbo.actors.storage.sealed import DamagedError
    from fedbo.execution.runner import resume_study
    from fedbo.study.paths import DirectoryError

    (tmp_path / "file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text('{"status"')
    for name, words in (
        ("nowhere", "is not a run directory: it has no manifest.json; pass the directory of a run"),
        ("file", "is a file; pass the directory of a run"),
        ("damaged", "is damaged .*; run the study again"),
    ):
        with pytest.raises((DirectoryError, DamagedError), match=words):
            resume_study(tmp_path / name)


@pytest.mark.slow
def test_a_kill_before_anything_was_written_leaves_a_directory_in_which_the_study_can_be_run(
    forks: Forks, short: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    study, expected = short
    directory = tmp_path / "run"
    for number in range(1, 6):
        assert forks("run", study, directory, before=number).killed
        if (directory / "manifest.json").exists():
            break
    assert begin_or_go_on(forks, study, directory) == End(0, "")
    assert tables(directory) == expected


@pytest.mark.parametrize("name", ["notes.txt", "study.toml", "manifest.txt"])
def test_what_somebody_else_left_in_a_directory_is_not_written_over(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(fedbo.errors.DirectoryError, match="exists and is not an empty directory; choose a new one"):
        fedbo.run(TROUBLED, out=tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_a_failure_that_stopped_a_run_is_tried_again_when_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mended.py").write_text("def f(x):\n    raise RuntimeError('not yet')\n")
    monkeypatch.syspath_prepend(tmp_path)
    study = {
        **TROUBLED,
        "objective": {"name": "python_function", "function": "mended:f", "agents": 2, "low": [0.0], "high": [1.0]},
        "agents": {"initial": 2},
        "evaluation": {"failure": "stop"},
        "algorithm": [{"name": "random"}],
    }
    with pytest.raises(fedbo.errors.RunError, match="not yet"):
        fedbo.run(study, out=tmp_path / "run")
    import mended  # type: ignore[import-not-found]

    monkeypatch.setattr(mended, "f", lambda x: float(x[0]))
    result = fedbo.resume(tmp_path / "run")
    assert result.manifest["status"] == "complete" and failures(result)[0] == 0
