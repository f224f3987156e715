"""The command `fork`: a finished run goes on from one point with something changed, beside what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import (
    Format,
    Printed,
    RunFolderArgument,
    Trust,
    print_json,
    progress_display,
    stop_interrupted,
)
from fedbo.settings.shown import quoted

if TYPE_CHECKING:
    from fedbo.lab.fork.result import Fork


def fork(
    folder: RunFolderArgument,
    at: Annotated[str | None, typer.Option(help="A time, such as 12.5, or event:500: after so many events.")] = None,
    every: Annotated[float | None, typer.Option(help="Fork at every multiple of this time instead of at one.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help='What changes then; the time "fork" is that of the fork.'),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new or empty directory; default: one under runs/.")] = None,
    trust: Trust = False,
    printed: Printed = Format.text,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress while it runs.")] = False,
) -> None:
    """Let a finished run go on from one point with something changed, on the same draws, and say what the change does."""
    from fedbo.lab.fork.fork import fork_run, points_of

    if not sets:
        raise typer.BadParameter("--set: is missing, and without a change the branch is the run; add --set KEY=VALUE")
    finish_fork(
        lambda: fork_run(folder, points_of(folder, at, every), sets or [], out, progress_display(quiet), trust), printed
    )


def finish_fork(carry_out: Callable[[], Fork], printed: Format) -> None:
    """Carry a fork out, draw its figure and print its effects."""
    from fedbo.figures.reports.tables import console
    from fedbo.lab.fork.figure import draw_fork
    from fedbo.lab.fork.tables import fork_facts, fork_table

    try:
        found = carry_out()
    except KeyboardInterrupt as stop:
        place = stop.args[0] if stop.args else None
        stop_interrupted(place, f"go on with: fedbo resume {quoted(place)}", printed)
    figure = draw_fork(found, found.directory / "fork.png")
    if printed is Format.json:
        print_json({**fork_facts(found), "figures": [str(figure)]})
        return
    console().print(fork_table(found))
    print(f"results: {found.directory}\nfigure:  {figure}")
