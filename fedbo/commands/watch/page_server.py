"""One page on the loopback interface of this machine, for whoever knows its token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from fedbo.settings.errors import FedboError

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
