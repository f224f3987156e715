"""The command `fedbo watch`: the progress of a run in the terminal or a browser, from its files alone."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import Format, Printed, RunFolderArgument, offered, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedbo.commands.watch.run_watch import StudyState


def watch(
    folder: RunFolderArgument,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit, as happens without a terminal.")] = False,
    browser: Annotated[
        bool, typer.Option("--browser", help="Serve the report of the run so far to a browser of this machine, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the report for the browser. Default: a free one.", show_default=False),
    ] = None,
    printed: Printed = Format.text,
) -> None:
    """Show the progress of a run in another process until it ends; Ctrl-C does not stop the run."""
    if browser and (once or printed is Format.json):
        raise typer.BadParameter("--browser: cannot be combined with --once or --format json; leave out one of them")
    if port is not None and not browser:
        raise typer.BadParameter("--port: has no effect without --browser; add it, or leave out --port")
    if browser:
        return _serve(folder, every, port)
    from fedbo.commands.watch.run_watch import study_state
    from fedbo.figures.reports.tables import console, plain

    state, terminal = study_state(folder), console()
    if printed is Format.json:
        print_json(plain(state))
        return
    if once or not terminal.is_terminal or state.status != "running":
        terminal.print(_table(state))
        return
    from rich.live import Live

    with Live(_table(state), console=terminal, refresh_per_second=4) as live:
        while state.status == "running":
            time.sleep(every)
            state = study_state(folder)
            live.update(_table(state))


def _serve(folder: Path, every: float, port: int | None) -> None:
    """Serve the report of a run so far, made anew when a snapshot was written, until Ctrl-C."""
    from fedbo.commands.watch.page_server import PageServer
    from fedbo.commands.watch.run_watch import result_so_far, state_of_files

    report = offered("report", "--browser")

    @lru_cache(maxsize=1)
    def made(_: tuple[int, ...]) -> str:
        result = result_so_far(folder)
        written: str = report([result], refresh=every if result.manifest["status"] == "running" else None)
        return written

    made(state_of_files(folder))  # errors of the folder are told here
    try:
        server = PageServer(lambda: made(state_of_files(folder)), port or 0)
    except OSError as error:
        raise typer.BadParameter(f"--port {port}: cannot be used ({error.strerror}); leave it out, or choose another") from None
    with server:
        print(f"{server.address}\nCtrl-C ends this page; the run goes on.", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _table(state: StudyState) -> RenderableType:
    """Return a table with a line for each algorithm in each cell, with a bar."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, title=f"{state.name}: {state.status}", title_justify="left", header_style="bold")
    for heading in ("algorithm", "", "done", "runs ended", "evaluations", "mean over agents"):
        table.add_column(heading, justify="left" if heading in ("algorithm", "") else "right")
    for row in state.rows:
        name = f"{row.algorithm}  {state.titles[row.cell]}".rstrip()
        best = "–" if row.best is None else f"best {row.metric} {row.best:.4g}"
        bar = ProgressBar(total=1.0, completed=row.share, width=24)
        table.add_row(Text(name), bar, f"{row.share:.0%}", f"{row.ended} of {row.runs}", f"{row.evaluations:,}", Text(best))
    return table
