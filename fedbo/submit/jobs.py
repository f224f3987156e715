"""One job of a submitted study: the study, or one replicate of it, is run or resumed, and replicates are joined at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.analysis.manifest import read_manifest
from fedbo.analysis.result import Result
from fedbo.coordinator.runtime.actor import RunSummary, WarmupRun
from fedbo.execution.again import has_ended, run_again
from fedbo.execution.failures import RunError
from fedbo.execution.jobs import runs
from fedbo.execution.progress import Progress
from fedbo.execution.workers import InProcess, Interrupted, Job, JobRunner, OnProgress, job_runner
from fedbo.study.paths import PRIVATE, DirectoryError, locked, make_folder
from fedbo.study.study import Study
from fedbo.submit.script import FOUND, jobs_folder

_FRUITLESS = 3  # jobs in a row that leave nothing before the next one gives up
LOCK_PATIENCE = 120.0  # seconds in which the lock of a killed job ends, on a network's file system


class OneReplicate:
    """A runner of the jobs of one replicate, and of the earlier tasks that it starts from; all others are left out."""

    def __init__(self, inner: JobRunner, study: Study, parts: Path, number: int) -> None:
        self._inner, self._number = inner, number
        mine = [run for run in runs(study, parts) if run.key.replicate == number]
        self._histories = {run.task.history.folder for run in mine if run.task.history is not None}

    def carry_out(
        self, jobs: Sequence[Job], interrupted: Interrupted, on_progress: OnProgress, ended: list[RunSummary]
    ) -> None:
        """Run the jobs of the replicate."""
        self._inner.carry_out([job for job in jobs if self._is_mine(job)], interrupted, on_progress, ended)

    def _is_mine(self, job: Job) -> bool:
        return job.folder in self._histories if isinstance(job, WarmupRun) else job.key.replicate == self._number


def run_replicate(study: Study, run: Path, number: int, hosting: Sequence[str], progress: Progress | None) -> Result | None:
    """Run or resume one replicate in a directory of its own; return the result of the study if it was the last one, else None.

    Raises the errors of `run_study`, and KeyboardInterrupt, with the directory, when it has to go on in another job.
    """
    directory = _replicate_folder(run, number)
    if number not in _ended(study, directory):
        make_folder(directory, PRIVATE)
        await_lock(directory)
        with suppress(KeyboardInterrupt):  # a study of which one replicate is carried out never ends
            run_again(study, directory, hosting, progress, runner=partial(_one_replicate, number))
        if number not in _ended(study, directory):
            raise KeyboardInterrupt(directory)
    if not all(each in _ended(study, _replicate_folder(run, each)) for each in range(study.study.replicates)):
        return None
    await_lock(run)
    if has_ended(run, study):  # another replicate has ended at the same time
        return None
    result = run_again(study, run, hosting, progress, runner=partial(_joining, run))
    drop_replicates(run, study)
    return result


def drop_replicates(run: Path, study: Study) -> None:
    """Remove the folders of replicates of a study that has ended."""
    for each in range(study.study.replicates):
        atomic.remove_folder(_replicate_folder(run, each))


def await_lock(directory: Path) -> None:
    """Wait until nobody uses the directory of a run; DirectoryError when somebody does for too long."""
    until = time.monotonic() + LOCK_PATIENCE
    while directory.is_dir():
        try:
            with locked(directory):
                return
        except DirectoryError:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def check_progress(run: Path, replicate: int | None) -> None:
    """Note what this job finds; RunError when the jobs before it have found the same: a queue of them would never end."""
    folder, directory = jobs_folder(run), run if replicate is None else _replicate_folder(run, replicate)
    if not folder.is_dir():
        return
    written = (path for path in sorted((directory / "parts").rglob("*")) if path.is_file() and path.stat().st_size)
    left = [f"{path}" for path in written if path.name.startswith("log-") or path.parent.parent.name == "histories"]
    left += [path.read_text(encoding="utf-8") for path in sorted((directory / "parts").rglob("latest.json"))]
    place = folder / f"{FOUND}{'' if replicate is None else replicate}"
    found = place.read_text(encoding="utf-8").split() if place.is_file() else []
    found.append(sha256("\n".join(left).encode()).hexdigest())
    atomic.write_text(place, "\n".join(found))
    if len(found) > _FRUITLESS and len({*found[-_FRUITLESS - 1 :]}) == 1:
        remedy = "look in the logs for what ended them, or set a longer --walltime"
        raise RunError(f"the last {_FRUITLESS} jobs have left no evaluation and no snapshot; {remedy}", run)


@contextmanager
def _one_replicate(number: int, study: Study, parts: Path) -> Iterator[JobRunner]:
    with job_runner(study, parts) as inner:
        yield OneReplicate(inner, study, parts, number)


@contextmanager
def _joining(run: Path, study: Study, parts: Path) -> Iterator[JobRunner]:
    """Copy what the replicates have written, so that all runs of the study have ended; a copy appears whole or not at all."""
    keys = [each.key for each in runs(study, parts)]
    for number in range(study.study.replicates):
        other = _replicate_folder(run, number) / "parts"
        written = [RunFolder.of(other, key).path for key in keys if key.replicate == number]
        for folder in (*written, *sorted((other / "histories").glob("*"))):
            if not (mine := parts / folder.relative_to(other)).exists():
                make_folder(mine.parent)
                atomic.copy_folder(folder, mine)
    yield InProcess()


def _replicate_folder(run: Path, number: int) -> Path:
    return jobs_folder(run) / f"replicate-{number:04d}"


def _ended(study: Study, directory: Path) -> set[int]:
    """Return the replicates of which all runs in a directory have ended."""
    if not (directory / "manifest.json").is_file():
        return set()
    ended = [RunKey(*key).replicate for key in read_manifest(directory).get("complete_runs", ())]
    return {number for number in ended if ended.count(number) == len(study.cells()) * len(study.labels)}
