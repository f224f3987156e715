"""A host whose run another attempt goes on with: it writes nothing more, and ends without an error."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from small_runs import Setting, fts

from fedbo.actors.host import Host
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder, Superseded
from fedbo.actors.storage.snapshot_store import SnapshotStore
from fedbo.actors.task import StepRequest
from fedbo.coordinator.runtime.actor import Coordinator, Run

KEY = RunKey(0, "FTS", 0)


def host_of(home: RunFolder) -> Host:
    host = Host()
    task = Setting(fts()).task()
    SnapshotStore(home).discard_later()
    host.load(task, range(2), HostConfig(home))
    host.work((), [StepRequest(0, 0), StepRequest(1, 0)])
    return host


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_host_that_is_taken_for_dead_writes_no_snapshot_and_raises_nothing(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    host = host_of(home)
    SnapshotStore(RunFolder.of(tmp_path, KEY).claim()).discard_later()
    before = files_of(tmp_path)
    assert host.snapshot([(0, ()), (1, ())], 1) == {}
    assert host.finish((), 2, "observations") == {}
    assert host.work((), [StepRequest(0, 1)]) == []
    assert files_of(tmp_path) == before


def test_a_host_whose_run_has_ended_does_not_make_its_folder_again(tmp_path: Path) -> None:
    host = host_of(RunFolder.of(tmp_path, KEY).claim())
    shutil.rmtree(tmp_path / "0000-FTS-0000")
    host.work([(0, ())], [StepRequest(0, 1)])
    assert host.snapshot([(1, ())], 1) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_coordinator_whose_run_another_goes_on_with_ends_without_a_result(tmp_path: Path) -> None:
    setting = Setting(fts())
    run = Run(KEY, setting.task(), setting.exchange, setting.core().environment, tmp_path, events=10)

    class Late(Coordinator):
        def _note_progress(self, *details: Any) -> None:
            super()._note_progress(*details)
            RunFolder.of(tmp_path, KEY).claim()

    assert Late().run(run) is None
    ended = Coordinator().run(run)
    assert ended is not None and not ended.stopped


def test_a_file_that_is_gone_because_another_attempt_has_removed_it_is_no_error_of_its_own(tmp_path: Path) -> None:
    home = RunFolder.of(tmp_path, KEY).claim()
    with pytest.raises(Superseded, match="attempt 2 continues this run; this is attempt 1"), home.while_current():
        RunFolder.of(tmp_path, KEY).claim()
        (home.path / ".events.7.part").replace(home.path / "events")
    with pytest.raises(FileNotFoundError, match="nothing"), RunFolder.of(tmp_path, KEY).claim().while_current():
        (tmp_path / "nothing").read_bytes()
