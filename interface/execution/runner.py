"""Running and resuming a study: its jobs are carried out, and its tables gathered."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import Damaged
from fedbo.coordinator.runtime.actor import RunSummary
from fedbo.execution.cluster import ClusterError
from fedbo.execution.damage import fall_back
from fedbo.execution.directory import (
    best_values,
    discard_drafts,
    discard_parts,
    gather,
    locked,
    new_directory,
    new_manifest,
    now,
    versions,
)
from fedbo.execution.display import Display
from fedbo.execution.jobs import learnings, runs
from fedbo.execution.monitor import RunMonitor
from fedbo.execution.notices import Callback
from fedbo.execution.progress import Progress
from fedbo.execution.workers import job_runner
from fedbo.results.manifest import STUDY, back, copy_among_parts, read_manifest, write_manifest
from fedbo.results.result import Result
from fedbo.study.document import StudyError
from fedbo.study.paths import DirectoryError, out_of_space
from fedbo.study.plugins import distributions
from fedbo.study.study import Study, load_study


class RunError(RuntimeError):
    """A study that began could not be completed; all results so far are in `directory`."""

    def __init__(self, message: str, directory: Path) -> None:
        super().__init__(message)
        self.directory = directory


def run_study(
    study: Study, out: Path | None = None, progress: Progress | None = None, callbacks: Sequence[Callback] = ()
) -> Result:
    """Run a whole study and give its results.

    `out` is a directory that is new or empty; without it one is made under `runs/`. RunError when anything in
    it fails, KeyboardInterrupt (with the directory) after Ctrl-C: in both cases all that was observed has been written, and
    `resume_study` continues from there.
    """
    directory = new_directory(study, out)
    with _room_in(directory), locked(directory):
        atomic.write_text(directory / STUDY, study.to_toml())
        manifest = new_manifest(study)
        write_manifest(directory, manifest)
        copy_among_parts(directory)
        return _carry_out(study, directory, manifest, progress, callbacks)


def resume_study(
    directory: Path, overrides: Sequence[str] = (), progress: Progress | None = None, callbacks: Sequence[Callback] = ()
) -> Result:
    """Resume a run that was interrupted, killed, or failed, from its last snapshots, and give its results.

    `overrides` may change what changes no result: the hosting and the snapshots. DirectoryError when there is nothing to
    resume, and Damaged, before anything is changed, when a file is damaged that it needs; else as `run_study`. Where the
    last snapshot is damaged and the one before is whole, it continues from that and says so on standard error.
    """
    manifest = read_manifest(directory)
    if manifest["status"] == "complete":
        discard_parts(directory)  # which a kill may have left
        raise DirectoryError(f"'{directory}': has ended; look at it with: fedbo show {directory}")
    study = _begun_study(directory, manifest, overrides)
    if changed := {name for name, value in versions().items() if manifest["versions"].get(name) != value}:
        what = ", ".join(f"{name} {manifest['versions'].get(name)} -> {versions()[name]}" for name in sorted(changed))
        raise DirectoryError(f"'{directory}': began with other versions ({what}); install those, or run it again")
    directory = directory.resolve()
    with _room_in(directory), locked(directory):
        for note in fall_back(study, directory):
            print(note, file=sys.stderr)
        manifest |= {"status": "running", "error": None, "resumed": manifest.get("resumed", 0) + 1, "files": {}}
        write_manifest(directory, manifest)
        copy_among_parts(directory)
        return _carry_out(study, directory, manifest, progress, callbacks)


def _begun_study(directory: Path, manifest: dict[str, Any], overrides: Sequence[str]) -> Study:
    """Load the study of a run that has begun; Damaged when its file is, DirectoryError when it is another study."""
    path, copy = directory / STUDY, directory / "parts" / STUDY
    changed = copy.is_file() and (not path.is_file() or path.read_bytes() != copy.read_bytes())
    try:
        study = load_study(path, overrides)
    except StudyError as error:
        if not changed:
            raise
        raise Damaged(path, str(error).splitlines()[0], back(path)) from None
    if (here := distributions(study)) != (begun := manifest.get("plugins", {})):
        what = ", ".join(f"{name}: {begun.get(name)} -> {here.get(name)}" for name in sorted({*here, *begun}))
        raise DirectoryError(f"'{directory}': began with other plug-ins ({what}); install those, or run it again")
    if study.digest() != manifest["study_sha256"]:
        remedy = f", or if it was changed unawares, {back(path)}" if changed else ""
        words = f"this is another study than the one that began; run it in a new directory{remedy}"
        raise DirectoryError(f"'{path if changed else directory}': {words}")
    return study


def _carry_out(
    study: Study, directory: Path, manifest: dict[str, Any], progress: Progress | None, callbacks: Sequence[Callback]
) -> Result:
    parts = directory / "parts"
    parts.mkdir(exist_ok=True)
    discard_drafts(directory)
    learning, work = learnings(study, parts), runs(study, parts)
    begun, failure = time.monotonic(), None
    ended: list[RunSummary] = []
    try:
        # Ray handles signals in its own way, so ours come after it has started.
        with job_runner(study, parts) as runner, interrupts() as interrupted:
            monitor = RunMonitor(study, work, callbacks)
            display = Display(progress, study, learning, work, monitor.poll)
            try:
                runner.carry_out(learning, interrupted, display.on_history, [])
                if not interrupted():
                    runner.carry_out(work, interrupted, display.on_progress, ended)
            finally:
                display.finish()
                monitor.finish()
    except KeyboardInterrupt:  # before anything has begun, or for the second time
        raise KeyboardInterrupt(directory) from None
    except Exception as error:
        failure = error
    complete = len(ended) == len(work) and not any(end.stopped for end in ended)
    _note_end(manifest, "failed" if failure else "complete" if complete else "interrupted", ended, time.monotonic() - begun)
    manifest["error"] = str(failure) if failure else None
    try:
        manifest["files"] = gather(study, directory, [run.key for run in work])
        write_manifest(directory, manifest)
    except (OSError, Damaged) as error:
        failure = failure or error
    if failure:
        raise RunError(_words(failure, directory), directory) from failure
    if not complete:
        raise KeyboardInterrupt(directory)
    discard_parts(directory)
    return Result.open(directory, trust=True)


def _note_end(manifest: dict[str, Any], status: str, ended: Sequence[RunSummary], seconds: float) -> None:
    manifest["status"] = status
    manifest["complete_runs"] = sorted([*end.key] for end in ended if not end.stopped)
    manifest["best_values"] = best_values(ended)
    manifest["ended"] = now()
    manifest["seconds"] = round(manifest["seconds"] + seconds, 3)
    manifest["snapshot_seconds"] = round(manifest.get("snapshot_seconds", 0.0) + sum(end.kept for end in ended), 3)


@contextmanager
def _room_in(directory: Path) -> Iterator[None]:
    """Say the remedy where the disk is full from the start."""
    try:
        yield
    except OSError as error:
        if not out_of_space(error):
            raise
        raise RunError(_words(error, directory), directory) from error


def _words(failure: Exception, directory: Path) -> str:
    words = str(failure) if isinstance(failure, ClusterError | Damaged) else f"{type(failure).__name__}: {failure}"
    if out_of_space(failure):
        return f"{words}; the disk is full: make room, then go on with: fedbo resume {directory}"
    return words


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a request to stop, which takes effect after the present evaluation; the second one kills."""
    asked = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = [(number, signal.signal(number, note)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield asked.is_set
    finally:
        for number, handler in before:
            signal.signal(number, handler)
