"""A site's connection to its coordinator: the site's state machine over HTTPS, in a thread of its own. Nothing listens here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fedbo.actors.task import StepRequest
from fedbo.settings.shown import shown
from fedbo.sites import wire
from fedbo.sites.audit import AuditLog
from fedbo.sites.documents import Approval
from fedbo.sites.errors import SignatureError, SitesError
from fedbo.sites.keys import PrivateKey, PublicKey
from fedbo.sites.orders import decode_order, encode_report, most_order, most_request
from fedbo.sites.outbox import Journal
from fedbo.sites.release import SiteReport
from fedbo.sites.site_machine import SiteMachine
from fedbo.sites.terms import SyncTerms
from fedbo.sites.wire import RequestHead, WireError

if TYPE_CHECKING:
    import httpx

JOURNAL = "outbox.journal"
CONNECT = 2.0  # seconds for a connection, and for its TLS handshake: a site must notice soon that a cut has ended
SLACK = 10.0  # seconds that an answer may take beyond the time that the coordinator holds it back
FAREWELL = 5.0  # seconds in which a site that closes tells that it knows the end
_HEADERS = {"content-type": "application/octet-stream", "accept-encoding": "identity"}
_PROBES = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5000}  # seconds; the last: ms


class SiteConnectionError(SitesError):
    """The coordinator cannot be reached, or what answers is not the coordinator; the message is the cause."""


class SiteClient:
    """One site of a study, connected to its coordinator. Its methods are for other threads.

    `folder` keeps the outbox. A site is lost when no answer has come for `patience` seconds. SitesError when another
    process uses the folder.
    """

    def __init__(
        self,
        folder: Path,
        key: PrivateKey,
        approval: Approval,
        terms: SyncTerms,
        audit: AuditLog,
        context: ssl.SSLContext,
        patience: float,
    ) -> None:
        self._terms, self._audit, self._context = terms, audit, context
        self._url = approval.endpoint + wire.SYNC
        self._journal = Journal(folder / JOURNAL)
        self._most_answer = wire.REPLY_BYTES + most_order(terms) + wire.MOST_TEXT + terms.letter
        self.on_letter: Callable[[bytes], bytes] | None = None
        self._read = 0
        self._coordinator = approval.signer
        self._changed = threading.Condition()
        self._machine = SiteMachine(
            self._journal,
            key,
            approval.signer,
            approval.digest,
            approval.agent,
            check=partial(_check_order, approval.agent, terms),
            most=most_request(terms),
            now=time.monotonic(),
            patience=patience,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="fedbo-site", daemon=True)
        self._failure: BaseException | None = None
        self._is_closed = self._has_ended = False

    def start(self) -> None:
        """Connect, and go on in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Disconnect. Where the study has ended, tell the coordinator first that this is known. May be called repeatedly."""
        with self._changed:
            if self.ended is not None:
                self._changed.wait_for(lambda: self._machine.is_over or self._has_ended, FAREWELL)
            self._is_closed = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._journal.close()

    def next_order(self, timeout: float) -> StepRequest | None:
        """Return the newest order on which this site has not reported; wait for one for at most `timeout` seconds.

        Returns None earlier when no order can come any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._machine.order is not None or self._is_done, max(0.0, timeout))
            self._raise_failure()
            order = self._machine.order
        return None if order is None else decode_order(order[1], self._terms)

    def evaluating(self, lease: int | None) -> None:
        """Note the lease of the order that is being carried out, which the next request tells the coordinator."""
        with self._changed:
            self._machine.evaluating = lease

    def report(self, report: SiteReport) -> None:
        """Put a report on the disk, from which it is sent until the coordinator acknowledges it."""
        data = encode_report(report, self._terms)
        with self._changed:
            self._raise_failure()
            self._machine.report(report.lease, data)
        self._wake()

    def answer(self, number: int, data: bytes) -> None:
        """Answer a letter of the coordinator later than `on_letter`, in the next request or one that leaves now."""
        with self._changed:
            self._machine.answer(number, data)
        self._wake()

    @property
    def ended(self) -> int | None:
        """Return the last step that counts once the study has ended, -1 for none; None before."""
        return self._machine.ended

    def study_time(self) -> float | None:
        """Return the study's time in seconds by the last answer; None before the first."""
        with self._changed:
            return self._machine.study_time(time.monotonic())

    @property
    def refused(self) -> str | None:
        """Return why the coordinator refuses this site for good; None otherwise."""
        return self._machine.refused

    @property
    def trouble(self) -> str:
        """Return why the last attempt to reach the coordinator has failed; empty after an answer."""
        return self._machine.trouble

    @property
    def lost(self) -> bool:
        """Return whether no answer has come for so long that the site gives up."""
        with self._changed:
            return self._machine.is_lost(time.monotonic())

    @property
    def _is_done(self) -> bool:
        return self._has_ended or self._is_closed or self.refused is not None or self.ended is not None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise SitesError(f"the outbox or the audit log cannot be written: {self._failure}") from self._failure

    def _wake(self) -> None:
        if self._loop is not None and self._woken is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._woken.set)

    # From here on: the client's own thread.

    async def _run(self) -> None:
        """Send what is due until the study is over, this site is lost, or the client is closed."""
        self._loop, self._woken = asyncio.get_running_loop(), asyncio.Event()
        attempts = set[asyncio.Task[None]]()
        try:
            async with _client(self._context, self._url) as http:
                while not (self._is_closed or self._machine.is_over or self.lost):
                    self._woken.clear()
                    if (request := self._due()) is not None:
                        attempt = asyncio.create_task(self._attempt(http, request))
                        attempts.add(attempt)
                        attempt.add_done_callback(attempts.discard)
                    await self._sleep()
                for attempt in attempts:
                    attempt.cancel()
                await asyncio.gather(*attempts, return_exceptions=True)
        except Exception as error:  # noqa: BLE001 -- told to the site's own thread, which ends with it
            self._failure = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _due(self) -> bytes | None:
        """Return the request to send now, which is in the audit log then."""
        with self._changed:
            last = self._machine.sent
            request = self._machine.request(time.monotonic())
        if request is not None:
            sequence = wire.read_head(request[: wire.REQUEST_HEAD]).sequence
            if last is not None and last.data is request:
                self._audit.record("sent again", sync=False, target=f"POST {wire.SYNC}", sequence=sequence)
            else:
                self._audit.sent(f"POST {wire.SYNC}", request, sequence=sequence)
        return request

    async def _sleep(self) -> None:
        """Sleep until a request is due, or until something has happened."""
        assert self._woken is not None
        with self._changed:
            due = self._machine.next_time()
        wait = 1.0 if due is None else min(1.0, max(0.0, due - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), wait)

    async def _attempt(self, http: httpx.AsyncClient, request: bytes) -> None:
        """Send a request once, and act on its answer or failure."""
        import httpx

        answer, trouble = b"", ""
        try:
            async with asyncio.timeout(wire.HOLD + SLACK + len(request) / wire.SLOWEST):
                answer = await _exchange(http, self._url, request, self._coordinator, self._most_answer)
        except (httpx.HTTPError, SitesError, ssl.SSLError, OSError, TimeoutError) as error:
            trouble = shown(f"{type(error).__name__}: {error}")[:200]
        now = time.monotonic()
        with self._changed:
            if trouble:
                self._machine.failed(request, trouble, now)
            else:
                self._machine.receive(request, answer, now)
            number, letter = self._machine.letter
            if number > self._read and self.on_letter is not None:
                # Before an order that came with it can be read: its report may belong to what the letter opens.
                self._read = number
                if reply := self.on_letter(letter):
                    self._machine.answer(number, reply)
            self._changed.notify_all()
        assert self._woken is not None
        self._woken.set()


async def _exchange(http: httpx.AsyncClient, url: str, request: bytes, coordinator: PublicKey, most: int) -> bytes:
    """Return the answer to a request, read no further than its signed length, of which at most `most` bytes are allowed."""
    signature = wire.read_head(request[: wire.REQUEST_HEAD]).signature
    async with http.stream("POST", url, content=request, headers=_HEADERS) as response:
        return await _read_answer(response.aiter_raw(), coordinator, signature, most, response.status_code)


async def _read_answer(pieces: AsyncIterator[bytes], coordinator: PublicKey, signature: bytes, most: int, status: int) -> bytes:
    """Read an answer whose head the coordinator has signed; SitesError for anything else, of which little is read."""
    data, size = bytearray(), wire.ANSWER_HEAD
    async for piece in pieces:
        data += piece
        if len(data) >= wire.ANSWER_HEAD == size:
            try:
                size += wire.verify_answer(coordinator, signature, bytes(data[:size]))
            except (WireError, SignatureError):
                raise _unsigned(status, bytes(data)) from None
            if size > wire.ANSWER_HEAD + most:
                raise WireError(f"the answer has {size:,} bytes, more than an order can have")
        if len(data) > size > wire.ANSWER_HEAD:  # read to the end otherwise, so that the connection can be used again
            raise WireError("the answer is longer than its signed length")
    if len(data) < wire.ANSWER_HEAD:
        raise _unsigned(status, bytes(data))
    return bytes(data)


def _unsigned(status: int, data: bytes) -> SiteConnectionError:
    words = shown(data[:100].decode("utf-8", "replace"))
    return SiteConnectionError(f"HTTP status {status} without the coordinator's signature: {words}")


def _client(context: ssl.SSLContext, url: str) -> httpx.AsyncClient:
    """Return an HTTP client that keeps to a proxy of the environment, and notices dead connections within seconds."""
    import httpx

    names = {name: value for name, value in _PROBES.items() if hasattr(socket, name)}
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    options += [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in names.items()]
    limits = httpx.Limits(max_connections=8, max_keepalive_connections=4, keepalive_expiry=60.0)
    transport = httpx.AsyncHTTPTransport(
        verify=context, trust_env=False, limits=limits, proxy=proxy_of(url), socket_options=options
    )
    timeout = httpx.Timeout(connect=CONNECT, read=wire.HOLD + SLACK, write=SLACK, pool=CONNECT)
    return httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False, follow_redirects=False)


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for an HTTPS address (`HTTPS_PROXY`, `NO_PROXY`); None for none."""
    host = urlsplit(url).hostname or ""
    return None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get("https")


def hello(approval: Approval, key: PrivateKey, context: ssl.SSLContext) -> str:
    """Ask the coordinator by a signed request that changes nothing; return why it refuses this site, empty where it does not.

    SiteConnectionError when it cannot be reached, or when something else answers.
    """
    import httpx

    head = RequestHead(study=approval.digest, agent=approval.agent, start=os.urandom(wire.START_BYTES), sequence=0)
    request = wire.sign_request(key, wire.HELLO, head, b"")
    url, most = approval.endpoint + wire.HELLO, wire.REPLY_BYTES + wire.MOST_TEXT

    async def exchange() -> bytes:
        async with asyncio.timeout(wire.HOLD), _client(context, url) as http:
            return await _exchange(http, url, request, approval.signer, most)

    try:
        signature = wire.read_head(request[: wire.REQUEST_HEAD]).signature
        reply = wire.unpack_reply(wire.answer_body(approval.signer, signature, asyncio.run(exchange())))
    except (httpx.HTTPError, WireError, SignatureError, OSError, TimeoutError) as error:
        words = shown(str(error)) or type(error).__name__
        raise SiteConnectionError(f"'{approval.endpoint}': {words}") from None
    return reply.text if reply.status == wire.REFUSED else ""


def _check_order(agent: int, terms: SyncTerms, lease: int, data: bytes) -> None:
    """Check that bytes are an order of this lease to this agent; WireError otherwise."""
    order = decode_order(data, terms)
    if (order.agent, order.lease) != (agent, lease):
        raise WireError("the order is of another agent, or of another lease than the answer says")
