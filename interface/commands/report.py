"""The command `fedbo report`: one HTML file about one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands.arguments import Trust


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The file; default: report.html in the run, or here where there are several.")
    ] = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="Also show values and errors of single agents where a study is private.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Write runs up as one HTML file, which needs no server, no network and no script.

    Of a private study it shows no value of a single agent unless you ask for them; means over agents have no noise.
    """
    from fedbo.page.page import REPORT, write_report
    from fedbo.results.result import Result

    results = [Result.open(folder, trust) for folder in folders]
    path = out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
    print(write_report(results, path, agents))
