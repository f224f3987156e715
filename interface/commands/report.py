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
    trust: Trust = False,
) -> None:
    """Write runs up as one HTML file that can be sent to somebody: it needs no server, no network and no script."""
    from fedbo.page.page import REPORT, write_report
    from fedbo.results.result import Result

    results = [Result.open(folder, trust) for folder in folders]
    print(write_report(results, out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))))
