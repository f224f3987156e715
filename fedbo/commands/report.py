"""The commands about several runs: `fedbo report`, one HTML file, and `fedbo compare`, a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands.arguments import TableFormat, TableFormats, Trust, print_json


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="The file; default: report.html in the run. Several runs need one.")] = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="Also show values and errors of single agents where a study is private.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Write runs up as one HTML file, which needs no server, no network and no script.

    Of a private study it shows no value of a single agent unless you ask for them; means over agents have no noise.
    """
    from fedbo.analysis.result import Result
    from fedbo.figures.page.page import REPORT, write_report

    if out is None and len(folders) > 1:
        raise typer.BadParameter("several runs need a file for their report; add --out report.html")
    results = [Result.open(folder, trust) for folder in folders]
    print(write_report(results, out or folders[0] / REPORT, agents))


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Run directories.", show_default=False)],
    trust: Trust = False,
    printed: TableFormats = TableFormat.text,
) -> None:
    """Print several runs of the same objective side by side, each algorithm against the same one in the first run."""
    from fedbo.analysis.result import Result
    from fedbo.analysis.statistics.side_by_side import side_by_side
    from fedbo.figures.reports.statistics import runs_table
    from fedbo.figures.reports.tables import console, plain
    from fedbo.figures.reports.views import written

    results = [Result.open(folder, trust) for folder in folders]
    rows = side_by_side(results)
    if printed is TableFormat.json:
        print_json({"runs": plain(list(rows))})
    elif printed is TableFormat.csv:
        print(rows.to_csv(), end="")
    elif printed is TableFormat.text:
        console().print(runs_table(results, rows))
    else:
        print(written(runs_table(results, rows), printed), end="")
