"""The fork of a finished run: it continues from one point on the same draws, with a change, beside the original."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import OBSERVATIONS, RunKey, read_table
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.analysis.grouping import by_run
from fedbo.analysis.manifest import MANIFEST, STUDY, check_tables, copy_among_parts, read_manifest, write_manifest
from fedbo.call_arguments import Overrides, display_of, folder_of, named_in_python, new_folder_of, overrides_of
from fedbo.coordinator.errors import ForkError
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.execution.directory import (
    check_versions,
    differing_code,
    discard_parts,
    gather,
    new_directory,
    new_manifest,
    unfinished,
)
from fedbo.execution.earlier import recall_evaluations
from fedbo.execution.failures import RunError
from fedbo.execution.jobs import keep_histories, learnings, runs
from fedbo.execution.progress import Progress
from fedbo.execution.runner import carry_out, resume_study
from fedbo.lab.fork.changes import branch_study, check_run, ways_of
from fedbo.lab.fork.result import BRANCH, ORIGINAL, TRUNK, Fork
from fedbo.lab.fork.room import ANSWER
from fedbo.lab.fork.trunk import ForkPoint, begin_branch, grow_trunk
from fedbo.settings import arguments as checks
from fedbo.settings.shown import quoted
from fedbo.study.paths import DirectoryError, locked
from fedbo.study.study import Study, load_study

_MOST = 200  # branches of a fork


def fork(
    directory: str | Path,
    at: float | str | None = None,
    *,
    every: float | None = None,
    overrides: Overrides = (),
    out: str | Path | None = None,
    progress: bool = False,
    trust: bool = False,
) -> Fork:
    """Continue a finished run from one point with a change, with the same random draws, beside the original.

    - `at`: a time, or "event:500"; `every`: fork at each multiple of a time instead.
    - `overrides`: the changes, such as `exchange.mode=immediate`; "fork" as a time stands for the time of the fork. Settings
      that were used before the fork cannot change. One key may be given several times: each of its values has a branch.
    - `trust`: import the Python code that the run names.

    Raises ValueError with the reason where a run cannot be forked there or with that change; else the errors of `run`.
    """
    with named_in_python():
        folder, changes, place = folder_of("directory", directory), overrides_of(overrides), new_folder_of(out)
        if every is not None:
            checks.number("every", every, above=0.0)
        if at is not None and not isinstance(at, str):
            checks.number("at", at)
        points = points_of(folder, None if at is None else str(at), every)
        return fork_run(folder, points, changes, place, display_of(progress), checks.flag("trust", trust))


def fork_run(
    directory: Path,
    points: Sequence[ForkPoint],
    overrides: Sequence[str] = (),
    out: Path | None = None,
    progress: Progress | None = None,
    trust: bool = False,
) -> Fork:
    """Fork a finished run at each of some points, in ascending order, into a new directory; without `out` under `runs/`.

    The trunk runs again, with its evaluations looked up. If `out` holds the same unfinished fork, that fork is resumed.

    Raises:
        DirectoryError: there is no such run.
        StudyError: a changed setting was used before the fork.
        ForkError: a run has ended before the point.
        RunError: as in `run_study`.
    """
    before = whole_study(directory, trust)
    for point, way in product(points, ways_of(overrides)):
        branch_study(before, directory / STUDY, way.changes, point, trust)
    asked = {"run": str(directory.resolve()), "at": [[*point] for point in points], "changes": list(overrides)}
    if out is not None and ANSWER.has_begun_in(out):
        if unseal(out / ANSWER.begun) | asked != unseal(out / ANSWER.begun):
            raise DirectoryError(f"'{out}': contains another unfinished fork; resume it: fedbo resume {quoted(out)}")
        return resume_fork(out, progress, trust)
    place = new_directory(_named_fork(before), out)
    with _whole(place):
        with locked(place):
            atomic.write_text(place / ANSWER.begun, seal(asked, indent=2))
        return resume_fork(place, progress, trust)


def resume_fork(place: Path, progress: Progress | None = None, trust: bool = True) -> Fork:
    """Resume a fork that was killed or interrupted: finished branches stay, the others are resumed or started."""
    with locked(place), _named(place):
        asked, original = unseal(place / ANSWER.begun), place / ORIGINAL
        if not original.exists():
            _copy(Path(asked["run"]), original)
        before, points = whole_study(original, trust), [ForkPoint(*each) for each in asked["at"]]
        trunk, branches = _Trunk(original, place / TRUNK, before), list(product(points, ways_of(asked["changes"])))
        for number, (point, way) in enumerate(branches, 1):
            branch = place / f"{BRANCH}-{number:04d}"
            study = branch_study(before, original / STUDY, way.changes, point, trust)
            if unfinished(branch):
                resume_study(branch, (), progress, trust=trust)
            elif not (branch / MANIFEST).exists():
                trunk.grow(point)
                _carry_out(branch, trunk, study, way.changes, progress)
        trunk.grow(points[-1])
        trunk.end()
        each = {"at": [str(point) for point, _ in branches], "ways": [way.name for _, way in branches]}
        noted = {"run": asked["run"], "changes": asked["changes"], **each}
        atomic.write_text(place / ANSWER.file, seal(noted, indent=2))
        (place / ANSWER.begun).unlink()
    return Fork.open(place)


def _named_fork(study: Study) -> Study:
    """Return the study with a name that distinguishes the directory of its fork from that of its run."""
    return study.model_copy(update={"study": study.study.model_copy(update={"name": f"{study.study.name}-fork"})})


def _carry_out(branch: Path, trunk: _Trunk, study: Study, changes: Sequence[str], progress: Progress | None) -> None:
    """Start a branch at the trunk's state, and run it; a branch without a manifest counts as not begun."""
    shutil.rmtree(branch, ignore_errors=True)
    times = trunk.begin(branch, study)
    manifest = new_manifest(study) | {"forked": {"study_sha256": trunk.study.digest(), "at": times, "changes": list(changes)}}
    atomic.write_text(branch / STUDY, study.to_toml())
    write_manifest(branch, manifest)
    copy_among_parts(branch)
    with locked(branch):
        carry_out(study, branch, manifest, progress, ())


@contextmanager
def _named(place: Path) -> Iterator[None]:
    """Re-raise errors of a branch with the fork's directory, which can be resumed, unlike one of its branches."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(place) from None
    except RunError as error:
        raise RunError(str(error), place) from error.__cause__


@contextmanager
def _whole(place: Path) -> Iterator[None]:
    """Remove all files of a fork that is refused."""
    try:
        yield
    except (ForkError, ValueError):
        for path in place.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        place.rmdir()
        raise


def points_of(directory: Path, at: str | None, every: float | None) -> list[ForkPoint]:
    """Parse the points of a fork: one time or `event:N`, or every multiple of a time; ForkError."""
    if (at is None) == (every is None):
        raise ForkError("--at: set exactly one of --at and --every, for example --at 12.5, --at event:500 or --every 5")
    if every is not None:
        read_manifest(directory)
        events = read_table(directory / "events.parquet", columns=[*RunKey._fields, "time"])
        ends = [float(max(own["time"].to_pylist())) for _, own in by_run(events)]
        if not 0 < every < min(ends):
            raise ForkError(f"--every {every:g}: must be above 0 and below {min(ends):g}, the end of the first run")
        if min(ends) / every > _MOST:
            raise ForkError(f"--every {every:g}: makes more than {_MOST} branches; set at least {min(ends) / _MOST:.3g}")
        return [ForkPoint(time=every * number) for number in range(1, math.ceil(min(ends) / every))]
    kind, _, number = str(at).rpartition(":")
    try:
        point = ForkPoint(event=int(number)) if kind == "event" else ForkPoint(time=float(str(at)))
    except ValueError:
        raise ForkError(f"--at {at}: must be a time or an event, for example 12.5 or event:500") from None
    given = point.event if point.time is None else point.time
    if given is None or not 0 < given < math.inf:
        raise ForkError(f"--at {at}: must be above 0 and finite")
    return [point]


def whole_study(directory: Path, trust: bool) -> Study:
    """Load the study of a run that can be forked; DirectoryError with the remedy for any other."""
    study = repeatable_study(directory, trust)
    if study.timing.clock == "wall":
        raise DirectoryError(f"'{directory}': ran in real time, which cannot be repeated; fork a run in virtual time")
    if study.has_secure_noise:
        raise DirectoryError(f"'{directory}': used secure noise, whose key was deleted; fork a run without secure_noise")
    return study


def repeatable_study(directory: Path, trust: bool, failed: bool = False) -> Study:
    """Load the study of a run that has ended, and whose code and versions are here; DirectoryError for any other.

    With `failed`, the run may have failed.
    """
    manifest = read_manifest(directory)
    if manifest["status"] != "complete" and not (failed and manifest["status"] == "failed"):
        raise DirectoryError(f"'{directory}': has not ended; resume it before you fork it: fedbo resume {quoted(directory)}")
    if "forked" in manifest:
        raise DirectoryError(f"'{directory}': is a branch of another run; fork that run")
    check_tables(directory, manifest)
    check_versions(directory, manifest)
    study = load_study(directory / STUDY, trust=trust, derived=True)
    if differ := differing_code(manifest, study):
        raise DirectoryError(f"'{directory}': {', '.join(differ)} changed after the run; restore it, or run the study again")
    return study


def _copy(directory: Path, to: Path) -> None:
    """Copy the tables of a run, its study and its manifest, whole or not at all."""
    draft = to.with_name(f".{to.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    for path in (directory / STUDY, directory / MANIFEST, *directory.glob("*.parquet")):
        atomic.copy(path, draft / path.name)
    atomic.rename(draft, to)


class _Trunk:
    """The trunk of a fork: the runs of a study up to a point, in this process."""

    def __init__(self, directory: Path, place: Path, study: Study) -> None:
        self.directory, self.study = place, study
        self._parts = place / "parts"
        shutil.rmtree(place, ignore_errors=True)  # which a kill may have left
        atomic.make_folder(self._parts)
        atomic.write_text(place / STUDY, study.to_toml())
        self._manifest = new_manifest(study)
        for job in learnings(study, self._parts):
            Coordinator().learn(job)
        self._runs = runs(study, self._parts)
        observed = read_table(directory / "observations.parquet", OBSERVATIONS)
        for run in self._runs:
            recall_evaluations(observed, run)
        self._at: ForkPoint | None = None
        self._times: dict[str, float] = {}

    def grow(self, point: ForkPoint) -> None:
        """Run all runs up to a point; ForkError if one has ended before."""
        if point == self._at:
            return
        for run in self._runs:
            time = grow_trunk(run, point)
            if time is None:
                words = f"'{run.key.algorithm}', replicate {run.key.replicate}, has ended before that; set an earlier point"
                raise ForkError(f"--at {point}: the run of {words}")
            self._times[_name(run)] = time
        self._at = point

    def begin(self, branch: Path, study: Study) -> dict[str, float]:
        """Start a branch at the trunk's state; return the times of its runs."""
        atomic.make_folder(branch)
        atomic.copy_folder(self._parts, branch / "parts")
        keep_histories(self.study, study, branch / "parts")
        for old, new in zip(self._runs, runs(study, branch / "parts"), strict=True):
            check_run(old, new)
            begin_branch(old, new, self._times[_name(old)])
        return dict(self._times)

    def end(self) -> None:
        """Gather the tables of the trunk up to its last point."""
        files = gather(self.study, self.directory, [run.key for run in self._runs])
        ended = {"status": "complete", "error": None, "files": files}
        noted = {"forked": {"at": self._times}, "complete_runs": list[Any]()}
        write_manifest(self.directory, {**self._manifest, **ended, **noted})
        discard_parts(self.directory)


def _name(run: Run) -> str:
    return f"{run.key.cell}/{run.key.algorithm}/{run.key.replicate}"
