"""The function `worth` of `fedbo`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbo.analysis.finished_run import trusted_cells
from fedbo.analysis.manifest import read_manifest
from fedbo.analysis.result import Result
from fedbo.call_arguments import Overrides, display_of, named_in_python, new_folder_of, overrides_of, study_of
from fedbo.execution.directory import unfinished
from fedbo.execution.runner import resume_study, run_study
from fedbo.lab.worth.gain import estimate_gain
from fedbo.lab.worth.report import WorthReport, verdict, worth_study
from fedbo.settings.arguments import whole
from fedbo.settings.logs import say
from fedbo.study.study import load_study

MOST_POINTS = 100_000


@named_in_python()
def worth(
    study: str | Path | Mapping[str, Any],
    *,
    overrides: Overrides = (),
    out: str | Path | None = None,
    points: int = 256,
    progress: bool = False,
    trust: bool = False,
) -> WorthReport:
    """Estimate whether federation can help in a study, and whether it did; `words` of the answer are the verdict.

    Local, federated, control and pooled algorithms are added. `study` may be a directory that this function wrote; `out` may
    be unfinished, and is resumed. Each agent's objective is sampled at `points`. Use at least ten replicates. Raises StudyError
    for a sweep, and the errors of `run`.
    """
    whole("points", points, 16, MOST_POINTS)
    given, place = study_of(study), new_folder_of(out)
    if not isinstance(given, Mapping) and (Path(given) / "study.toml").is_file():
        result = Result.open(given, trust)
    else:
        asked, left = worth_study(load_study(given, overrides_of(overrides), trust=True))
        for line in left:
            say(f"skipped, because it does not fit the study: {line}")
        same = place is not None and (place / "manifest.json").is_file()
        if place is None or not same or read_manifest(place).get("study_sha256") != asked.digest():
            result = run_study(asked, place, display_of(progress))
        else:
            result = resume_study(place, (), display_of(progress)) if unfinished(place) else Result.open(place)
    return verdict(result, estimate_gain(trusted_cells(result)[0].study, points))
