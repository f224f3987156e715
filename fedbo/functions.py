"""The functions of `fedbo` that are in no room. What they need is imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbo.settings import arguments as checks

if TYPE_CHECKING:
    from fedbo.analysis.result import Result
    from fedbo.analysis.side_by_side import RunRows
    from fedbo.call_arguments import Overrides
    from fedbo.execution.notices import Callback
    from fedbo.execution.replay import Replay
    from fedbo.execution.requirements import Validation
    from fedbo.study.study import Study


def load_study(source: str | Path | Mapping[str, Any], overrides: Overrides = (), trust: bool = False) -> Study:
    """Load a study from a TOML file or from a dictionary of its tables, and check it completely.

    `overrides` are `dotted.key=value`, or a dictionary by dotted keys. Checking a study that names Python code imports that
    code, which needs `trust`. StudyError, with one line for each fault, when anything is invalid.
    """
    from fedbo.call_arguments import named_in_python, overrides_of, study_of
    from fedbo.study.study import load_study

    with named_in_python():
        return load_study(study_of(source), overrides_of(overrides), checks.flag("trust", trust))


def validate(
    study: str | Path | Mapping[str, Any], *, overrides: Overrides = (), trust: bool = False, time: bool = False
) -> Validation:
    """Check a study as `load_study` does, and estimate its cost; with `time` its duration too, which takes seconds."""
    from fedbo.execution.requirements import validation
    from fedbo.objectives.datasets.data import without_fetching

    with without_fetching():
        return validation(load_study(study, overrides, trust), checks.flag("time", time))


def compare(runs: Sequence[Result | str | Path], *, trust: bool = False) -> RunRows:
    """Return a row for each algorithm of each run, with the paired difference to the same one in the first run.

    `plot("both.png")` of the answer draws the curves of all runs. Raises ResultError for fewer than two runs, or for runs of
    different objectives.
    """
    from fedbo.analysis.side_by_side import side_by_side
    from fedbo.call_arguments import named_in_python, results_of

    with named_in_python():
        return side_by_side(results_of(runs, trust))


def replay(directory: str | Path, *, out: str | Path | None = None, verify: bool = False, trust: bool = False) -> Replay:
    """Repeat a finished run in virtual time, from its study or from the record of real time, and compare the two.

    `same` of the answer tells whether all is equal, and `difference` what is not first. With `verify`, nothing is kept but in
    `out`. Raises DirectoryError where there is no such run.
    """
    from fedbo.call_arguments import folder_of, named_in_python, new_folder_of
    from fedbo.execution.replay import replay as repeat

    with named_in_python():
        return repeat(folder_of("directory", directory), new_folder_of(out), verify, trust)


def run(
    study: str | Path | Mapping[str, Any] | Study,
    *,
    out: str | Path | None = None,
    overrides: Overrides = (),
    progress: bool = False,
    callbacks: Sequence[Callback | str] = (),
) -> Result:
    """Run a study and return its results.

    - `study`: a TOML file, a dictionary of its tables, or a checked study, which takes no overrides.
    - `out`: the new directory, by default one under `runs/`.
    - `overrides`: changes as `dotted.key=value`.
    - `callbacks`: called for each evaluation and event; they change nothing (docs/plugins.md).

    Raises StudyError when the study is invalid, RunError when it fails, and KeyboardInterrupt after Ctrl-C. All observations up
    to then have been written.
    """
    from fedbo.call_arguments import display_of, named_in_python, new_folder_of, succeeded
    from fedbo.callbacks import callbacks_of
    from fedbo.execution.runner import run_study
    from fedbo.study.study import Study

    with named_in_python():
        place, made, display = new_folder_of(out), callbacks_of(callbacks), display_of(progress)
        if overrides and isinstance(study, Study):
            raise checks.wrong("overrides", overrides, "has no effect on a checked study; pass it to load_study")
        checked = study.renewed() if isinstance(study, Study) else load_study(study, overrides, trust=True)
        return succeeded(run_study(checked, place, display, made))


def resume(
    directory: str | Path,
    *,
    overrides: Overrides = (),
    algorithms: Sequence[Mapping[str, Any]] = (),
    progress: bool = False,
    callbacks: Sequence[Callback | str] = (),
    changed_code: bool = False,
) -> Result:
    """Resume a run that was interrupted, killed or failed, or extend one that has ended, and return its results.

    `overrides` may change the hosting and the snapshots. For a finished run they may also raise `study.replicates` and
    `budget.iterations`, `.evaluations`, `.time`, `.cost` and `.target`, and tables of `algorithms` may be added. Python code
    that the study names must be unchanged, unless the run failed; `changed_code` accepts a mix of both versions. `callbacks`
    are called for everything from the start of the run.

    Raises ValueError when there is nothing to resume, or when a run of the larger study would start differently;
    else the errors of `run`.
    """
    from fedbo.call_arguments import added_algorithms, display_of, folder_of, named_in_python, overrides_of, succeeded
    from fedbo.callbacks import callbacks_of
    from fedbo.execution.runner import resume_study

    with named_in_python():
        folder, changes, made = folder_of("directory", directory), overrides_of(overrides), callbacks_of(callbacks)
        added, mixed = added_algorithms(algorithms), checks.flag("changed_code", changed_code)
        return succeeded(resume_study(folder, changes, display_of(progress), made, added, changed_code=mixed))
