"""Running and resuming a study: its jobs are run and its tables gathered."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.manifest import STUDY, back, check_tables, copy_among_parts, read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.coordinator.runtime.actor import RunSummary
from fedbo.execution.cluster import ClusterError
from fedbo.execution.damage import fall_back
from fedbo.execution.directory import (
    best_values,
    check_code,
    check_versions,
    differing_code,
    discard_drafts,
    discard_parts,
    gather,
    new_directory,
    new_manifest,
    now,
)
from fedbo.execution.display import Display
from fedbo.execution.extension import (
    check_kept,
    continue_runs,
    extended_study,
    is_longer,
    recall,
    runs_to_keep,
    set_aside,
    settle,
)
from fedbo.execution.head import HeadLostError
from fedbo.execution.jobs import learnings, runs
from fedbo.execution.monitor import RunMonitor
from fedbo.execution.notices import Callback
from fedbo.execution.progress import Progress
from fedbo.execution.requirements import require_objectives
from fedbo.execution.workers import JobRunner, job_runner
from fedbo.objectives.typed_function import given_function
from fedbo.settings.errors import FedboError
from fedbo.settings.exits import ExitError, ends_process, exit_words
from fedbo.settings.interrupts import interrupts
from fedbo.settings.own_code import CodeError
from fedbo.settings.shown import quoted
from fedbo.settings.trust import ChangedCodeError
from fedbo.study.document import StudyError
from fedbo.study.lock import locked
from fedbo.study.paths import DirectoryError, out_of_space
from fedbo.study.plugins import distributions
from fedbo.study.study import Study, load_study, recall_study

TRACEBACK = "traceback.txt"
Runner = Callable[[Study, Path], AbstractContextManager[JobRunner]]


class RunError(FedboError, RuntimeError):
    """A study failed after its start; all results so far are in `directory`."""

    def __init__(self, message: str, directory: Path) -> None:
        super().__init__(message, directory)  # by which it is made again in another process
        self.directory = directory

    def __str__(self) -> str:
        """Return the message."""
        return str(self.args[0])


def run_study(
    study: Study,
    out: Path | None = None,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    runner: Runner | None = None,
) -> Result:
    """Run a whole study and return its results.

    `out` is a new or empty directory; without it one is created under `runs/`. `runner` runs the jobs, by default as
    `[hosting]` says. Raises RunError when anything in the study fails, and KeyboardInterrupt (with the directory) after Ctrl-C.
    In both cases all observations have been written, and `resume_study` continues from there. Raises DataMissingError,
    DataDamagedError or LibraryMissingError, before anything is written, where the study runs on this machine alone and its
    objectives lack data or a library.
    """
    _require(study, runner)
    require_objectives(study)
    directory = new_directory(study, out)
    with _room_in(directory), locked(directory):
        manifest = new_manifest(study)  # which takes longer than writing: an interruption shall not come between the two files
        atomic.write_text(directory / STUDY, study.to_toml())
        write_manifest(directory, manifest)
        copy_among_parts(directory)
        return carry_out(study, directory, manifest, progress, callbacks, runner)


def _require(study: Study, runner: Runner | None) -> None:
    """Raise StudyError where agents are at sites, which only a server reaches."""
    if study.hosting.kind == "sites" and runner is None:
        raise StudyError("[hosting] kind = 'sites': the objectives are at sites; run the study with: fedbo serve STUDY")


def resume_study(
    directory: Path,
    overrides: Sequence[str] = (),
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    added: Sequence[Mapping[str, Any]] = (),
    trust: bool = True,
    changed_code: bool = False,
    runner: Runner | None = None,
) -> Result:
    """Resume a run that was interrupted, killed, or failed, from its last snapshots, or extend one that has ended.

    `overrides` may change settings that change no result: the hosting and the snapshots. A finished run may also get a larger
    budget, more replicates, and `added` algorithms. Python code that the run names must be unchanged, unless the run failed or
    `changed_code` is set. With `trust`, the code that the run names is imported.

    Raises DirectoryError when there is nothing to resume, and DamagedError, before any change, when a required file is damaged;
    otherwise the errors of `run_study`. Where the last snapshot is damaged and the one before is not, it continues from that
    one with a note on standard error.
    """
    manifest = read_manifest(directory)
    if manifest["status"] == "complete":
        return _extend(directory, manifest, (overrides, added), changed_code, progress, callbacks)
    if added:
        raise DirectoryError(f"'{directory}': has not ended; resume it before you extend it: fedbo resume {quoted(directory)}")
    settle(directory)
    study = _begun_study(directory, manifest, overrides, trust)
    _require(study, runner)
    check_versions(directory, manifest)
    check_code(directory, manifest, study, changed_code or manifest["status"] == "failed")  # what failed was to be mended
    directory = directory.resolve()
    with _room_in(directory), locked(directory):
        check_kept(directory, manifest)
        for note in fall_back(study, directory):
            print(note, file=sys.stderr)
        manifest |= {"status": "running", "error": None, "resumed": manifest.get("resumed", 0) + 1, "files": {}}
        _note_code(manifest, study)
        write_manifest(directory, manifest)
        copy_among_parts(directory)
        return carry_out(study, directory, manifest, progress, callbacks, runner)


def _extend(
    directory: Path,
    manifest: dict[str, Any],
    changes: tuple[Sequence[str], Sequence[Mapping[str, Any]]],
    mixed: bool,
    progress: Progress | None,
    callbacks: Sequence[Callback],
) -> Result:
    """Extend a finished run by overrides and added algorithms."""
    _check_carried(directory)

    def changed(before: Study) -> Study:
        study = extended_study(before, directory / STUDY, *changes)
        if study.digest() == before.digest():
            remedy = f"show it: fedbo show {quoted(directory)}; or extend it, for example with --set budget.iterations=N"
            raise DirectoryError(f"'{directory}': has ended; {remedy}")
        return study

    return extend_study(directory, changed, progress, callbacks, mixed)


def extend_study(
    directory: Path,
    changed: Callable[[Study], Study],
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    mixed: bool = False,
) -> Result:
    """Extend a finished run: earlier evaluations are looked up, and unchanged runs are kept.

    `changed` maps the study of the run to the extended study. In real time the runs continue where they ended. Raises the
    errors of `resume_study`.
    """
    directory = directory.resolve()
    with _room_in(directory), locked(directory):
        manifest = read_manifest(directory)
        if "forked" in manifest:
            raise DirectoryError(f"'{directory}': is a finished branch of another run; extend that run, and fork it again")
        discard_parts(directory)  # which a kill may have left
        before = _begun_study(directory, manifest, (), trust=True)
        check_code(directory, manifest, before, mixed)
        study = changed(before)
        check_versions(directory, manifest)
        check_tables(directory, manifest)
        kept_files = set_aside(directory)
        atomic.write_text(directory / "parts" / STUDY, study.to_toml())
        _note_code(manifest, before)
        same = ("started", "seconds", "resumed", "best_values", "earlier_code")
        longer = new_manifest(study) | {key: manifest[key] for key in same if key in manifest}
        kept = runs_to_keep(before, study, runs(study, directory / "parts"))
        if study.timing.clock == "wall" and is_longer(before, study):
            continue_runs(directory, manifest, before, study)
        noted = {"study_sha256": manifest["study_sha256"], "at": now(), "budget": before.document()["budget"]}
        extended = [*manifest.get("extended", ()), noted]
        longer |= {"kept_runs": sorted([*key] for key in kept), "kept_files": kept_files, "extended": extended}
        write_manifest(directory, longer)
        atomic.write_text(directory / STUDY, study.to_toml())
        copy_among_parts(directory)
        return carry_out(study, directory, longer, progress, callbacks)


def _check_carried(directory: Path) -> None:
    """Raise DirectoryError for a tuning whose function was passed in Python, and which is not in this process."""
    function = str(recall_study(directory / STUDY).objective.settings.get("function", ""))
    if function.startswith("given:") and given_function(function) is None:
        remedy = "call fedbo.tune again with more iterations and resume=True"
        raise DirectoryError(f"'{directory}': tuned a function that was passed in Python; {remedy}")


def _begun_study(directory: Path, manifest: dict[str, Any], overrides: Sequence[str], trust: bool) -> Study:
    """Load the study of a run; DamagedError when its file is damaged, DirectoryError when it is a different study."""
    path, copy = directory / STUDY, directory / "parts" / STUDY
    changed = copy.is_file() and (not path.is_file() or path.read_bytes() != copy.read_bytes())
    try:
        study = load_study(path, overrides, trust, derived=True)
    except StudyError as error:
        if not changed:
            raise
        raise DamagedError(path, str(error).splitlines()[0], back(path)) from None
    if (here := distributions(study)) != (begun := manifest.get("plugins", {})):
        what = ", ".join(f"{name}: {begun.get(name)} -> {here.get(name)}" for name in sorted({*here, *begun}))
        raise DirectoryError(f"'{directory}': was started with other plug-ins ({what}); install those, or run the study again")
    if study.digest(manifest.get("code", {})) != manifest["study_sha256"]:
        remedy = f", or, if you did not intend the change, {back(path)}" if changed else ""
        words = f"the study file has changed since this run started; run it in a new directory{remedy}"
        raise DirectoryError(f"'{path if changed else directory}': {words}")
    return study


def _note_code(manifest: dict[str, Any], study: Study) -> None:
    """Note the earlier code in the manifest of a run that continues with changed code."""
    if differ := differing_code(manifest, study):
        manifest.setdefault("earlier_code", []).append({"code": manifest["code"], "until": now(), "changed": differ})
        manifest |= {"code": study.code(), "study_sha256": study.digest()}


def carry_out(
    study: Study,
    directory: Path,
    manifest: dict[str, Any],
    progress: Progress | None,
    callbacks: Sequence[Callback],
    runner: Runner | None = None,
) -> Result:
    """Run the remaining jobs of a study in its locked directory, and gather its tables."""
    parts = directory / "parts"
    atomic.make_folder(parts)
    discard_drafts(directory)
    (directory / TRACEBACK).unlink(missing_ok=True)
    kept = {RunKey(*key) for key in manifest.get("kept_runs", ())}
    learning, every = learnings(study, parts), runs(study, parts)
    work = [run for run in every if run.key not in kept]
    recall(parts, work)
    begun, failure = time.monotonic(), None
    ended: list[RunSummary] = []
    try:
        # Ray handles signals in its own way, so ours come after it has started.
        made = runner or partial(job_runner, note=progress.note if progress else lambda words: None)
        with made(study, parts) as jobs, interrupts() as interrupted:
            monitor = RunMonitor(study, work, callbacks)
            display = Display(progress, study, learning, work, monitor.poll)
            try:
                jobs.carry_out(learning, interrupted, display.on_history, [])
                if not interrupted():
                    jobs.carry_out(work, interrupted, display.on_progress, ended)
            finally:
                display.finish()
                monitor.finish()
    except KeyboardInterrupt:  # before anything has begun, or for the second time
        raise KeyboardInterrupt(directory) from None
    except Exception as error:
        failure = error
    except SystemExit as error:  # of a callback: those of objectives and algorithms are errors where they are called
        if ends_process(error):
            raise
        failure = ExitError(exit_words(error))
    complete = len(ended) == len(work) and not any(end.stopped for end in ended)
    status = "failed" if failure else "complete" if complete else "interrupted"
    _note_end(manifest, status, (ended, kept), time.monotonic() - begun)
    manifest["error"] = str(failure) if failure else None
    try:
        manifest["files"] = gather(study, directory, [run.key for run in every], kept)
        write_manifest(directory, manifest)
    except (OSError, DamagedError) as error:
        failure = failure or error
    if failure:
        raise RunError(_words(failure, directory) + _kept_traceback(failure, directory), directory) from failure
    if not complete:
        raise KeyboardInterrupt(directory)
    discard_parts(directory)
    return Result.open(directory, trust=True)


def _note_end(
    manifest: dict[str, Any], status: str, runs: tuple[Sequence[RunSummary], Collection[RunKey]], seconds: float
) -> None:
    ended, kept = runs
    manifest["status"] = status
    if status == "complete":
        manifest.pop("kept_runs", None)
        manifest.pop("kept_files", None)
    manifest["complete_runs"] = sorted([*([*end.key] for end in ended if not end.stopped), *([*key] for key in kept)])
    manifest["best_values"] = best_values(ended, manifest["best_values"] if kept else {})
    manifest["ended"] = now()
    manifest["seconds"] = round(manifest["seconds"] + seconds, 3)
    manifest["snapshot_seconds"] = round(manifest.get("snapshot_seconds", 0.0) + sum(end.kept for end in ended), 3)


@contextmanager
def _room_in(directory: Path) -> Iterator[None]:
    """Raise RunError with the remedy where the disk is full from the start."""
    try:
        yield
    except OSError as error:
        if not out_of_space(error):
            raise
        raise RunError(_words(error, directory), directory) from error


def _words(failure: Exception, directory: Path) -> str:
    plain = ClusterError | HeadLostError | DamagedError | CodeError | ChangedCodeError
    words = str(failure) if isinstance(failure, plain) else f"{type(failure).__name__}: {failure}"
    if type(failure).__module__.startswith("ray."):  # which explains itself in many lines
        words = f"{words.splitlines()[0]}; Ray's logs show the cause; continue with: fedbo resume {quoted(directory)}"
    if isinstance(failure, HeadLostError):
        return f"{words}; continue with: fedbo resume {quoted(directory)}"
    if out_of_space(failure):
        return f"{words}; the disk is full: free some space, then continue with: fedbo resume {quoted(directory)}"
    return words


def _kept_traceback(failure: Exception, directory: Path) -> str:
    """Write the traceback of an error in code outside fedbo into the run's folder, and return a note of its place."""
    if not isinstance(failure, CodeError):
        return ""
    with suppress(OSError):
        atomic.write_text(directory / TRACEBACK, failure.traceback)
    remedy = f"fix the code, then continue with: fedbo resume {quoted(directory)}, or run the study again"
    return f"; the traceback is in {quoted(directory / TRACEBACK)}; {remedy}"
