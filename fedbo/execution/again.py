"""Running a study into a directory that may hold its run already: a finished run is read, an interrupted one is resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbo.analysis.manifest import read_manifest
from fedbo.analysis.result import Result
from fedbo.execution.directory import unfinished
from fedbo.execution.progress import Progress
from fedbo.execution.runner import Runner, resume_study, run_study
from fedbo.study.study import Study


def has_ended(directory: Path, study: Study) -> bool:
    """Return whether a directory holds the complete run of a study."""
    if not (directory / "manifest.json").is_file():
        return False
    manifest = read_manifest(directory)
    return bool(manifest["status"] == "complete" and manifest["study_sha256"] == study.digest())


def run_again(
    study: Study, directory: Path, hosting: Sequence[str] = (), progress: Progress | None = None, runner: Runner | None = None
) -> Result:
    """Return the results of a study: read them if they exist, resume an interrupted run, or run the study.

    `hosting` are the overrides for a resumed run. Raises the errors of `run_study` and `resume_study`.
    """
    if has_ended(directory, study):
        return Result.open(directory)
    if unfinished(directory):
        return resume_study(directory, hosting, progress, runner=runner)
    return run_study(study, directory, progress, runner=runner)
