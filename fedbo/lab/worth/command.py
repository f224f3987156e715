"""The command `fedbo worth`: whether federation can help in a study, and whether it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import (
    Format,
    Printed,
    Quiet,
    Sets,
    Trust,
    Workers,
    hosting_sets,
    print_json,
    progress_display,
    stop_interrupted,
)
from fedbo.settings.shown import quoted

if TYPE_CHECKING:
    from fedbo.analysis.result import Result
    from fedbo.study.study import Study


_MOST_POINTS = 100_000


def worth(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", help="A study file (TOML), or a directory that this command wrote.", show_default=False
        ),
    ],
    sets: Sets = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the results: a new one, or an unfinished one to continue.")
    ] = None,
    points: Annotated[
        int, typer.Option(min=16, max=_MOST_POINTS, help="Number of points at which each agent's objective is sampled.")
    ] = 256,
    workers: Workers = None,
    trust: Trust = False,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Estimate whether federation can help in a study, and whether it did.

    The command adds local, federated, control and pooled algorithms to the study. Use at least ten replicates.
    """
    from fedbo.analysis.finished_run import trusted_cells
    from fedbo.analysis.result import Result
    from fedbo.figures.reports.tables import console, plain
    from fedbo.lab.worth.gain import estimate_gain
    from fedbo.lab.worth.report import verdict, worth_table

    if (study / "study.toml").is_file():
        result = Result.open(study, trust)
    else:
        from fedbo.lab.worth.report import worth_study
        from fedbo.study.study import load_study

        asked, left = worth_study(load_study(study, [*(sets or []), *hosting_sets(workers, None)], trust=True))
        for line in left:
            typer.echo(f"skipped, because it does not fit the study: {line}", err=True)
        result = _carried_out(asked, out, printed, quiet)
    found = verdict(result, estimate_gain(trusted_cells(result)[0].study, points))
    if printed is Format.json:
        print_json({"directory": str(result.directory), **plain(found)})
        return
    console().print(worth_table(found, result))
    print(f"results: {result.directory}")


def _carried_out(study: Study, out: Path | None, printed: Format, quiet: bool) -> Result:
    """Run a study, resume it if it was interrupted, or open it if it has ended."""
    from fedbo.analysis.manifest import read_manifest
    from fedbo.analysis.result import Result
    from fedbo.execution.directory import unfinished
    from fedbo.execution.runner import resume_study, run_study

    same = out is not None and (out / "manifest.json").is_file() and read_manifest(out).get("study_sha256") == study.digest()
    try:
        if out is not None and same:
            return resume_study(out, (), progress_display(quiet)) if unfinished(out) else Result.open(out)
        return run_study(study, out, progress_display(quiet))
    except KeyboardInterrupt as stop:
        folder = stop.args[0] if stop.args else None
        stop_interrupted(folder, f"continue with: fedbo worth STUDY --out {quoted(folder)}", printed)
