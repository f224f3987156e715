"""The command `fedbo watch`: the progress of a run in the terminal or a browser, from its files alone.

The browser gets one page on the loopback interface of this machine, for whoever knows its token.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, urlsplit

import typer

from fedbo.commands.arguments import Format, Printed, RunFolderArgument, offered, print_json
from fedbo.settings.errors import FedboError

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
    from fedbo.commands.watch.command import PageServer
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


LOOPBACK = "127.0.0.1"
_PATIENCE = 10.0  # seconds for the request of a client, which may have stopped
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address has the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer(ThreadingHTTPServer):
    """Serves the HTML that `page` returns, at `address` alone.

    Any program of this machine can reach the port, so the address has a random token. A page of another site cannot read it
    either by a name of its own that leads here (DNS rebinding), since a request must name this host.
    """

    daemon_threads = True

    def __init__(self, page: Callable[[], str], port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.token, self.lock, self.page = secrets.token_urlsafe(32), Lock(), page

    @property
    def host(self) -> str:
        """Return the host and port that a request must name."""
        return f"{LOOPBACK}:{self.server_address[1]}"

    @property
    def address(self) -> str:
        """Return the address of the page, with its token."""
        return f"http://{self.host}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = _PATIENCE

    def do_GET(self) -> None:  # noqa: N802 -- named by the library
        """Answer with the page, or with why not; other methods are not supported."""
        asked = urlsplit(self.path)
        if self.headers.get_all("Host") != [self.server.host]:
            return self._answer(HTTPStatus.MISDIRECTED_REQUEST, f"This address is served as {self.server.host} only.")
        given = parse_qs(asked.query).get("token", [])
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self.server.token.encode()):
            return self._answer(
                HTTPStatus.FORBIDDEN, "The token is missing or wrong: open the address that fedbo watch printed."
            )
        if asked.netloc or asked.path != "/":
            return self._answer(HTTPStatus.NOT_FOUND, "There is only one page here.")
        try:
            with self.server.lock:  # one page is made at a time
                page = self.server.page()
        except FedboError as error:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return self._answer(HTTPStatus.OK, page, "text/html")

    def version_string(self) -> str:
        """Return no versions."""
        return "fedbo"

    def log_message(self, *_: object) -> None:
        """Log nothing: a line would have the token."""

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # the browser has left meanwhile
            self.end_headers()
            self.wfile.write(body)
