"""Running and resuming a study: its jobs are run and its tables gathered."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.manifest import STUDY, back, check_tables, copy_among_parts, read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.coordinator.runtime.actor import RunSummary
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
from fedbo.execution.earlier import fall_back
from fedbo.execution.extension import (
    check_carried,
    check_kept,
    continue_runs,
    extended_study,
    is_longer,
    recall,
    runs_to_keep,
    set_aside,
    settle,
)
from fedbo.execution.failures import TRACEBACK, failed, room_in
from fedbo.execution.jobs import learnings, runs
from fedbo.execution.monitor import RunMonitor
from fedbo.execution.notices import Callback
from fedbo.execution.progress import Display, Progress
from fedbo.execution.requirements import require_objectives
from fedbo.execution.workers import JobRunner, job_runner
from fedbo.settings.interrupts import interrupts, or_file
from fedbo.settings.logs import say
from fedbo.settings.own_code import ExitError, ends_process, exit_words
from fedbo.settings.shown import quoted
from fedbo.study.document import StudyError
from fedbo.study.files import distributions
from fedbo.study.paths import DirectoryError, locked
from fedbo.study.study import Study, load_study

STOP = "stop"  # a file in the directory of a run, which asks it to stop as Ctrl-C does
Runner = Callable[[Study, Path], AbstractContextManager[JobRunner]]


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
    with room_in(directory), locked(directory):
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
    with room_in(directory), locked(directory):
        check_kept(directory, manifest)
        for note in fall_back(study, directory):
            say(note)
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
    check_carried(directory)

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
    with room_in(directory), locked(directory):
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
    for name in (TRACEBACK, STOP):
        (directory / name).unlink(missing_ok=True)
    kept = {RunKey(*key) for key in manifest.get("kept_runs", ())}
    learning, every = learnings(study, parts), runs(study, parts)
    work = [run for run in every if run.key not in kept]
    recall(parts, work)
    begun, failure = time.monotonic(), None
    ended: list[RunSummary] = []
    try:
        # Ray handles signals in its own way, so ours come after it has started.
        made = runner or partial(job_runner, note=progress.note if progress else lambda words: None)
        with made(study, parts) as jobs, interrupts() as asked:
            interrupted = or_file(asked, directory / STOP)
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
        raise failed(failure, directory) from failure
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
