"""The command `fedbo report`: one HTML file about one or several runs."""

from __future__ import annotations

from inspect import unwrap
from pathlib import Path
from typing import Annotated

import typer

from fedbo.commands.arguments import Trust


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
    from fedbo.figures.page.page import report as write

    print(unwrap(write)(folders, out=out, agents=agents, beliefs=belief or None, trust=trust))
