"""The commands about several runs: `fedbo report`, one HTML file, and `fedbo compare`, a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands.arguments import TableFormat, TableFormats, Trust, print_json


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more run directories.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(help="File of the report. Default: report.html in the run directory. Required for several runs."),
    ] = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="Show values and errors of single agents even if the study is private.")
    ] = False,
    belief: Annotated[
        list[int] | None,
        typer.Option(
            help="Agent whose beliefs are drawn over time; repeatable. Default: up to four agents.", show_default=False
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write one HTML report about one or several runs; it needs no server, network or script.

    For a private study the report omits values of single agents unless you set --agents. Means over agents have no noise.
    """
    from fedbo.analysis.result import Result
    from fedbo.figures.page.page import REPORT, write_report

    if out is None and len(folders) > 1:
        raise typer.BadParameter("--out: is required for several runs; add --out report.html")
    results = [Result.open(folder, trust) for folder in folders]
    print(write_report(results, out or folders[0] / REPORT, agents, belief or None))


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN...", help="Two or more run directories.", show_default=False)
    ],
    trust: Trust = False,
    printed: TableFormats = TableFormat.text,
) -> None:
    """Print several runs of the same objective side by side; compare each algorithm with the same one in the first run."""
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
