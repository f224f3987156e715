"""The command `fedbo worth`: whether federation can help in a study, and whether it did."""

from __future__ import annotations

from inspect import unwrap
from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands import arguments as options
from fedbo.commands.arguments import Format, hosting_sets, print_json, stop_interrupted
from fedbo.settings.shown import quoted

_MOST_POINTS = 100_000


def worth(
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", help="A study file (TOML), or a directory that this command wrote.", show_default=False
        ),
    ],
    sets: options.Sets = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the results: a new one, or an unfinished one to continue.")
    ] = None,
    points: Annotated[
        int, typer.Option(min=16, max=_MOST_POINTS, help="Number of points at which each agent's objective is sampled.")
    ] = 256,
    workers: options.Workers = None,
    trust: options.Trust = False,
    printed: options.Printed = Format.text,
    quiet: options.Quiet = False,
) -> None:
    """Estimate whether federation can help in a study, and whether it did.

    The command adds local, federated, control and pooled algorithms to the study. Use at least ten replicates.
    """
    from fedbo.analysis.result import Result
    from fedbo.figures.reports.tables import console, plain
    from fedbo.lab.worth.function import worth as ask
    from fedbo.lab.worth.report import worth_table

    changes = [*(sets or []), *hosting_sets(workers, None)]
    try:
        found = unwrap(ask)(study, overrides=changes, out=out, points=points, progress=not quiet, trust=trust)
    except KeyboardInterrupt as stop:
        folder = stop.args[0] if stop.args else None
        stop_interrupted(folder, f"continue with: fedbo worth STUDY --out {quoted(folder)}", printed)
    if printed is Format.json:
        print_json(plain(found))
        return
    console().print(worth_table(found, Result.open(found.directory, trust)))
    print(f"results: {found.directory}")
