"""The command `fork`: a finished run continued from one point with a change, and compared with the original."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.answers import StoredAnswer, finish_answer
from fedbo.commands.arguments import Format, Printed, RunFolderArgument, Trust, progress_display

if TYPE_CHECKING:
    from fedbo.execution.progress import Progress
    from fedbo.lab.fork.result import Fork


def fork(
    folder: RunFolderArgument,
    at: Annotated[
        str | None,
        typer.Option(help="Fork at this time, for example 12.5, or after this number of events, for example event:500."),
    ] = None,
    every: Annotated[float | None, typer.Option(help="Fork at every multiple of this time.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help='Set one key of the study at the fork; a time written "fork" is the time of the fork. '
            "A key that is given several times has a branch for each value.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New or empty directory for the results. Default: a new one under runs/.")
    ] = None,
    trust: Trust = False,
    printed: Printed = Format.text,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Hide the progress display.")] = False,
) -> None:
    """Continue a finished run from one point with a change and the same random draws, and print the effect of the change."""
    from fedbo.lab.fork.fork import fork_run, points_of

    if not sets:
        raise typer.BadParameter("--set: is missing, so the branch would equal the run; add --set KEY=VALUE")
    finish_answer(
        lambda: stored(fork_run(folder, points_of(folder, at, every), sets or [], out, progress_display(quiet), trust)), printed
    )


def stored(fork: Fork) -> StoredAnswer:
    """Return a fork as `show` and `plot` take it."""
    from fedbo.lab.fork.figure import draw_fork
    from fedbo.lab.fork.result import ForkEffect, fork_facts, fork_table

    return StoredAnswer(
        what="a fork",
        directory=fork.directory,
        table=fork_table(fork),
        facts=fork_facts(fork),
        rows=("effects", ForkEffect, fork.effects()),
        draw=lambda path, cell, look: draw_fork(fork, path, cell, look),
    )


def read(folder: Path, trust: bool) -> StoredAnswer:
    """Read the fork in a directory."""
    from fedbo.lab.fork.result import Fork

    return stored(Fork.open(folder, trust))


def resume(folder: Path, progress: Progress | None) -> StoredAnswer:
    """Resume a fork that was killed or interrupted, with its original settings."""
    from fedbo.lab.fork.fork import resume_fork

    return stored(resume_fork(folder, progress))
