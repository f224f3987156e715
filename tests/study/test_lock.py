"""The lock of a directory: who holds it, and that it goes with the process that took it."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fedbo.study import paths
from fedbo.study.paths import DirectoryError, locked


def hold(folder: Path, child: str) -> int:
    """Fork a process that locks a folder and then starts children; return its number once it has the lock."""
    told, tell = os.pipe()
    process = os.fork()
    if process == 0:
        with locked(folder):
            if child == "forked":
                multiprocessing.get_context("fork").Process(target=time.sleep, args=(5.0,)).start()
            os.write(tell, b".")
            while child == "started":
                subprocess.run(["true"], check=True)
            time.sleep(60.0)
    os.read(told, 1)
    os.close(told)
    os.close(tell)
    return process


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def test_a_child_that_outlives_a_killed_process_does_not_hold_its_lock(tmp_path: Path) -> None:
    kill(hold(tmp_path, "forked"))
    with locked(tmp_path):
        pass


def test_a_child_that_has_not_yet_called_exec_does_not_hold_the_lock_of_a_killed_process(tmp_path: Path) -> None:
    """By `flock` 92 of 500 such kills left the lock to the child, for up to 98 ms."""
    rng = random.Random(3)
    for _ in range(10):
        process = hold(tmp_path, "started")
        time.sleep(rng.uniform(0.0, 0.005))
        kill(process)
        with locked(tmp_path):
            pass


def test_who_holds_a_lock_is_named_by_its_number_and_its_machine(tmp_path: Path) -> None:
    process = hold(tmp_path, "none")
    with (
        pytest.raises(DirectoryError, match=f"is in use by process {process}; wait for that process, or end it"),
        locked(tmp_path),
    ):
        pass
    (tmp_path / ".lock").write_text("7 elsewhere")
    with pytest.raises(DirectoryError, match="is in use by process 7 on elsewhere; wait"), locked(tmp_path):
        pass
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    (tmp_path / ".lock").write_text(str(gone))
    with pytest.raises(DirectoryError, match="is in use by another process, which has just started; wait"), locked(tmp_path):
        pass
    kill(process)


def test_a_process_that_is_refused_its_own_lock_keeps_it(tmp_path: Path) -> None:
    """To close a second descriptor of a file gives up a POSIX lock, so the second attempt must not open it."""
    with locked(tmp_path):
        with pytest.raises(DirectoryError, match="is open in this process; wait"), locked(tmp_path):
            pass
        child = os.fork()
        if child == 0:
            try:
                with locked(tmp_path):
                    os._exit(1)
            except DirectoryError:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("fcntl.lockf", errno.ENOLCK, "cannot be locked .*; use a folder on a file system with POSIX locks"),
        ("os.open", errno.EROFS, "is not writable .*; change its permissions, or copy it to a writable folder"),
    ],
)
def test_a_disk_without_locks_or_without_writing_is_told_in_one_line(
    call: str, number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(number, os.strerror(number))

    module, name = call.split(".")
    monkeypatch.setattr({"os": os, "fcntl": fcntl}[module], name, fail)
    with pytest.raises(DirectoryError, match=words), locked(tmp_path):
        pass


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "mine")
    with pytest.raises(DirectoryError, match="is not writable"), locked(tmp_path / "run"):
        pass
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_lock_that_its_owner_removes_meanwhile_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is gone each time that it is looked at, as one that others lock and remove again and again."""
    found, looked = os.stat, list[Path]()

    def gone_at_first(path: Any) -> os.stat_result:
        if isinstance(path, Path) and path.name == ".lock" and len(looked) < 4:
            looked.append(path)
            path.unlink(missing_ok=True)
        return found(path)

    monkeypatch.setattr(paths.os, "stat", gone_at_first)
    with locked(tmp_path):
        assert len(looked) == 4
