"""The command `fedbo reproduce`: the figures of a paper, its statements, and one page with both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import FAILED, Dark, Format, Printed, Quiet, Stop, print_json, progress_display, stop_interrupted
from fedbo.commands.new import example_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedbo_papers.reproduction import Reproduction


def reproduce(
    paper: Annotated[str, typer.Argument(help="Name of a paper's manifest, for example fts.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Run small studies that finish within minutes.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the page and its studies. Default: runs/reproduce-PAPER[-quick].")
    ] = None,
    only: Annotated[str | None, typer.Option(metavar="ID,ID", help="Reproduce only these figures.")] = None,
    papers: Annotated[Path | None, typer.Option(help="Folder of the manifests. Default: those that come with fedbo.")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Number of Ray workers of every study.")] = None,
    dark: Dark = False,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Reproduce a paper: run its studies, draw its figures, test its statements and write one page about them.

    Runs that already finished in the same directory are reused. Repeat the command to continue after Ctrl-C.
    """
    from fedbo.figures.reports.tables import console
    from fedbo_papers.manifest import find_paper
    from fedbo_papers.page import PAGE, facts, write_page
    from fedbo_papers.reproduction import ReproductionRequest
    from fedbo_papers.reproduction import reproduce as figures_of

    folder = out or Path("runs") / f"reproduce-{paper}{'-quick' * quick}"
    chosen = [one.strip() for one in only.split(",") if one.strip()] if only else []
    request = ReproductionRequest(
        find_paper(paper, papers or example_folder() / "papers"), folder, quick, chosen, workers, dark
    )
    notify = _silent if quiet else _say
    made = None
    try:
        for made in figures_of(request, notify, lambda: progress_display(quiet)):  # noqa: B007
            write_page(made)
    except KeyboardInterrupt:
        stop_interrupted(folder, "run the same command again to continue", Format.text)
    assert made is not None
    if printed is Format.json:
        print_json({**facts(made), "page": str(folder / PAGE)})
    else:
        console().print(_summary(made))
        print(f"page: {folder / PAGE}")
    if any(outcome.failed for outcome in made.outcomes):
        raise Stop(FAILED)


def _summary(made: Reproduction) -> RenderableType:
    """Return the table of all statements with their verdicts, and of the figures left out with the reason."""
    from dataclasses import replace

    from rich.text import Text

    from fedbo.figures.reports.tables import table_of

    style = {"holds": "green", "does not hold": "red", "inconclusive": "yellow"}
    lines = list[tuple[str | Text, ...]]()
    for outcome in made.outcomes:
        if made.request.only and outcome.figure.id not in made.request.only:
            continue
        if outcome.missing:
            lines.append((outcome.figure.id, Text(outcome.missing), Text("skipped", style="yellow"), ""))
        for one in outcome.statements:
            lines.append((outcome.figure.id, Text(one.says), Text(one.verdict, style=style[one.verdict]), Text(one.measured)))
    table = table_of(made.manifest.paper.title, ("figure", "statement", "verdict", "measured [95 %]"), lines)
    return replace(table, numbers=False)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    """Print nothing."""
