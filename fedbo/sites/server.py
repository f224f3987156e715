"""The server of a study: the coordinator's state machine behind HTTPS, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbo.actors.task import StepRequest
from fedbo.sites import wire
from fedbo.sites.audit import AuditLog
from fedbo.sites.coordinator_machine import Admitted, CoordinatorMachine, RequestRefused
from fedbo.sites.documents import Roster
from fedbo.sites.errors import SitesError
from fedbo.sites.keys import PrivateKey
from fedbo.sites.orders import decode_report, encode_order, most_request
from fedbo.sites.outbox import Journal
from fedbo.sites.release import SiteReport
from fedbo.sites.terms import SyncTerms

if TYPE_CHECKING:
    from fedbo.sites.connections import ConnectionServer, Peer

JOURNAL = "sequences.journal"
BODY_TIME = 10.0  # seconds for a body, besides what it takes at the slowest allowed rate
AGAIN = 1.0  # seconds after which answers are tried again where the roster could not be read
MOST_READ = 2  # bodies of one agent that are read at the same time

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HttpRefused(SitesError):
    """A request that is refused with an HTTP status, before it is known who sent it."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class SyncServer:
    """The mailboxes of a study's agents, which their sites empty and fill over HTTPS. Its methods are for other threads.

    `folder` keeps the numbers of requests, and `clock` returns the study's time. The events that cause an order must be on the
    disk before it. An idle site is heard of every `hold` seconds.
    """

    def __init__(
        self,
        folder: Path,
        key: PrivateKey,
        study: bytes,
        terms: SyncTerms,
        roster: Callable[[], Roster],
        audit: AuditLog,
        clock: Callable[[], float],
        hold: float = wire.HOLD,
    ) -> None:
        self._terms, self._audit = terms, audit
        self._journal = Journal(folder / JOURNAL)
        self._changed = threading.Condition()
        self._machine = CoordinatorMachine(
            self._journal,
            key,
            study,
            roster,
            decode=partial(decode_report, terms=terms),
            most=most_request(terms),
            letters=terms.letter > 0,
            clock=clock,
            hold=hold,
            refused=lambda why, agent: self._audit.refused(why, agent=agent),
        )
        self._server: ConnectionServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._channels = 0
        self._reading: dict[int, int] = {}
        self._failure: OSError | None = None

    def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Listen, and return the port; 0 asks the system for a free one. SitesError when that is impossible."""
        from fedbo.sites.connections import ConnectionServer

        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            raise SitesError(f"listen = '{host}:{port}': {error.strerror}; use another address or port") from None
        listener.setblocking(False)
        self._server = ConnectionServer(self._answer, context, self._refused)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="fedbo-sync-server", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        return int(listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening, and close the files. May be called repeatedly."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._wake(self._end_all)
            self._thread.join()
        self._journal.close()

    def order(self, agent: int, request: StepRequest) -> None:
        """Put an order into an agent's mailbox in place of its earlier one; ValueError for one that cannot travel."""
        data = encode_order(request, self._terms)
        with self._changed:
            self._machine.order(agent, request.lease, data)
        self._wake(self._flush)

    def withdraw(self, agent: int) -> None:
        """Withdraw an agent's order, if it was not sent yet."""
        with self._changed:
            self._machine.withdraw(agent)

    def arrived(self, timeout: float) -> list[SiteReport]:
        """Return the reports that were not returned before; wait for one for at most `timeout` seconds.

        OSError when the numbers of requests or the audit log cannot be written, so that no site can be answered.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._machine.has_arrived or self._failure is not None, max(0.0, timeout))
            if self._failure is not None:
                raise self._failure
            return self._machine.arrived()

    def taken(self, agent: int, lease: int) -> None:
        """Acknowledge a report, and those before: it is on the disk elsewhere."""
        with self._changed:
            self._machine.taken(agent, lease)
        self._wake(self._flush)

    def refuse(self, agent: int, why: str) -> None:
        """Record that a report of an agent does not count."""
        self._refused(why, None, agent)

    def letter(self, agent: int, number: int, data: bytes) -> None:
        """Put a letter into an agent's mailbox in place of its earlier one. Its number grows with each."""
        with self._changed:
            self._machine.letter(agent, number, data)
        self._wake(self._flush)

    def replies(self) -> list[tuple[int, int, bytes]]:
        """Return the answers to letters that were not returned before: agent, number of the letter, and answer."""
        with self._changed:
            return self._machine.replies()

    def replied(self, agent: int, number: int) -> None:
        """Acknowledge the answer to a letter: it is on the disk elsewhere."""
        with self._changed:
            self._machine.replied(agent, number)

    def heard(self, agent: int) -> float | None:
        """Return the time (`time.monotonic`) of the last request of an agent's site; None where there was none yet."""
        with self._changed:
            return self._machine.box(agent).heard

    def evaluating(self, agent: int) -> int | None:
        """Return the lease of the order that a site was carrying out when it was last heard of."""
        with self._changed:
            return self._machine.box(agent).evaluating

    def end(self, agent: int, counted: int) -> None:
        """Note that the study has ended for an agent; `counted` is its last step that counts, -1 for none."""
        with self._changed:
            self._machine.end(agent, counted)
        self._wake(self._flush)

    def told(self, agent: int) -> bool:
        """Return whether an agent's site knows that the study has ended."""
        with self._changed:
            return self._machine.box(agent).told

    # From here on: the server's own thread.

    def _run(self, listener: socket.socket) -> None:
        assert self._server is not None

        async def serve() -> None:
            assert self._server is not None
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[listener])

        asyncio.run(serve())

    def _wake(self, call: Callable[[], None]) -> None:
        """Run a call in the server's thread, if it runs."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(call)

    def _flush(self) -> None:
        """Send the answers that are due, and wake up for the next one."""
        with self._changed:
            try:
                due, following = self._machine.answers(time.monotonic()), self._machine.next_time()
            except SitesError:  # the roster cannot be read now
                due, following = [], time.monotonic() + AGAIN
            if self._machine.has_arrived:
                self._changed.notify_all()
        for channel, answer in due:
            waiting = self._waiting.pop(channel, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if following is not None and self._loop is not None:
            self._timer = self._loop.call_later(max(0.0, following - time.monotonic()), self._flush)

    def _end_all(self) -> None:
        """End the connections that wait for an answer; their sites ask again."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    def _refused(self, why: str, peer: Peer, agent: int | None = None) -> None:
        self._audit.refused(why, peer="" if peer is None else f"{peer[0]}:{peer[1]}", agent=agent)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request."""
        peer = scope["client"]
        try:
            status, answer = 200, await self._answered(scope, receive)
        except RequestRefused as error:
            status, answer = 403, error.answer or str(error).encode()
            self._refused(error.why, peer, error.agent)
        except HttpRefused as error:
            status, answer = error.status, str(error).encode()
            self._refused(str(error), peer)
        except SitesError as error:  # of the roster, say, which somebody is changing
            status, answer = 500, b"it cannot be checked now"
            self._refused(f"it cannot be checked: {error}", peer)
        except OSError as error:  # the disk is full, or the folder is gone: nothing may be answered
            status, answer, self._failure = 500, b"", error
            with self._changed:
                self._changed.notify_all()
        if answer is None:  # the server ends, or nobody is there any more
            status, answer = 503, b""
        headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(answer))]
        if status != 200:
            headers.append((b"connection", b"close"))
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": answer})

    async def _answered(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the answer to an HTTP request; None where its connection is gone."""
        path, size = _checked(scope, wire.REQUEST_HEAD + self._machine.most)
        reader = BodyReader(receive)
        admitted = await self._admitted(reader, path, size)
        agent, server = admitted.head.agent, self._server
        assert server is not None
        server.recognise(scope["client"], agent)
        if path == wire.HELLO:
            with self._changed:
                return self._machine.hello(admitted)
        body = await self._body(reader, admitted) if admitted.needs_body else b""
        self._channels += 1
        channel = self._channels
        waiting = self._waiting[channel] = asyncio.get_running_loop().create_future()
        try:
            with self._changed:
                self._machine.receive(admitted, body, channel, time.monotonic())
            self._flush()
            answer = await self._wait(waiting, reader)
        finally:
            self._waiting.pop(channel, None)
            with self._changed:
                self._machine.forget(channel)
        if answer is not None:
            self._audit.sent(f"POST {path}", *wire.answer_parts(answer), agent=agent, sequence=admitted.head.sequence)
        return answer

    async def _admitted(self, reader: BodyReader, path: str, size: int) -> Admitted:
        """Read the head of a request, and check it before anything else is read."""
        head = await reader.read(wire.REQUEST_HEAD, BODY_TIME)
        with self._changed:
            admitted = self._machine.admit(head, path)
        if wire.REQUEST_HEAD + admitted.head.length != size:
            raise RequestRefused("its length is not the signed one", admitted.head.agent)
        return admitted

    async def _body(self, reader: BodyReader, admitted: Admitted) -> bytes:
        agent, length = admitted.head.agent, admitted.head.length
        if self._reading.get(agent, 0) >= MOST_READ:
            raise RequestRefused("too many of its requests are being read", agent)
        self._reading[agent] = self._reading.get(agent, 0) + 1
        try:
            return await reader.read(length, BODY_TIME + length / wire.SLOWEST)
        finally:
            self._reading[agent] -= 1

    async def _wait(self, waiting: asyncio.Future[bytes], reader: BodyReader) -> bytes | None:
        """Wait for the answer, or for the end of the connection."""
        gone = asyncio.ensure_future(reader.gone())
        try:
            await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() and not waiting.cancelled() else None
        finally:
            gone.cancel()


class BodyReader:
    """The body of an HTTP request, read no further than is asked for and no longer than allowed."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._rest, self._more = receive, bytearray(), True

    async def read(self, size: int, seconds: float) -> bytes:
        """Return this many bytes; HttpRefused where there are fewer, or where they take longer."""
        try:
            async with asyncio.timeout(seconds):
                while len(self._rest) < size and self._more:
                    event = await self._receive()
                    if event["type"] == "http.disconnect":
                        raise HttpRefused(400, "it ended before its body was complete")
                    self._rest += event.get("body", b"")
                    self._more = event.get("more_body", False)
        except TimeoutError:
            raise HttpRefused(408, f"its body took more than {seconds:.0f} s") from None
        if len(self._rest) < size:
            raise HttpRefused(400, "it ended before its body was complete")
        data = bytes(self._rest[:size])
        del self._rest[:size]
        return data

    async def gone(self) -> None:
        """Wait until the other side has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _checked(scope: Scope, most: int) -> tuple[str, int]:
    """Return the path and the length of an HTTP request; HttpRefused before anything of its body is read."""
    path = next((known for known in (wire.SYNC, wire.HELLO) if scope["path"].endswith(known)), None)
    if path is None:
        raise HttpRefused(404, "its path is unknown")
    if scope["method"] != "POST":
        raise HttpRefused(405, "its method is not POST")
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    if len(lengths) != 1 or not lengths[0].isdigit():
        raise HttpRefused(411, "it does not say its length")
    if len(lengths[0]) > 18 or int(lengths[0]) > most:
        raise HttpRefused(413, f"its length is more than {most:,} bytes")
    if int(lengths[0]) < wire.REQUEST_HEAD:
        raise HttpRefused(400, "it is shorter than the head of a request")
    return path, int(lengths[0])
