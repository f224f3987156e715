"""Connections to the server of a study: strangers get little time and little memory, and each refused one leaves a line.

The protocol and the life of the server are uvicorn's. Only the acceptance of connections is different: a TLS handshake and the
head of a request have a deadline, and the oldest of too many connections of strangers, or of one site, is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

STRANGER_TIME = 10.0  # seconds for a TLS handshake, and for the head of an HTTP request
MOST_STRANGERS = 256  # connections that have not sent a request of a site yet
MOST_OF_SITE = 16  # connections of one site, which needs two: an answer that is not read takes memory
MOST_HEADER = 2**14  # bytes of the head of an HTTP request

Peer = tuple[str, int] | None
Refused = Callable[[str, Peer], None]


class Connection(H11Protocol):
    """One connection, which must complete the head of its next HTTP request in time."""

    def __init__(self, server: ConnectionServer) -> None:
        super().__init__(config=server.config, server_state=server.server_state, app_state={})
        self._owner = server
        self._deadline: asyncio.TimerHandle | None = None
        self._has_begun = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time of the first request."""
        super().connection_made(transport)
        self._owner.enter(self)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Start the time of a further request, and end it when its head is complete."""
        self._has_begun = True
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._start()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note a request whose head never was complete."""
        if self._deadline is not None and self._has_begun:
            self._owner.refused("it ended before the head of a request was complete", self.client)
        self._stop()
        self._owner.leave(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._stop()
        self._owner.refused("it is not an HTTP request", self.client)
        with contextlib.suppress(Exception):  # h11 sends no response where it expects none
            super().send_400_response(msg)
        self.transport.close()

    def evict(self, why: str) -> None:
        """Close the connection at once."""
        self._stop()
        self._owner.refused(why, self.client)
        self.transport.abort()

    def _start(self) -> None:
        self._deadline = self.loop.call_later(STRANGER_TIME, self._too_slow)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline, self._has_begun = None, False

    def _too_slow(self) -> None:
        if self._has_begun:
            self.evict(f"the head of a request took more than {STRANGER_TIME:g} s")
        else:
            self.transport.abort()  # which asked for nothing


class ConnectionServer(uvicorn.Server):
    """A uvicorn server that accepts connections as above. `refused` notes those that are refused."""

    def __init__(self, app: Any, context: ssl.SSLContext | None, refused: Refused) -> None:
        config = uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=MOST_HEADER,
        )
        super().__init__(config)
        self.refused, self._context = refused, context
        self._strangers: dict[Connection, None] = {}
        self._known: dict[int, dict[Connection, None]] = {}  # by agent
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections of the only socket."""
        assert sockets is not None
        await self.lifespan.startup()
        self.servers = []
        self._accepting = asyncio.create_task(self._accept(sockets[0]))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and close those that there are."""
        ending = [*self._handshakes, *([] if self._accepting is None else [self._accepting])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in which they are closed

    def enter(self, connection: Connection) -> None:
        """Note a new connection, and close the oldest of too many."""
        self._strangers[connection] = None
        if len(self._strangers) > MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.evict("there are too many connections that have sent no request of a site")

    def leave(self, connection: Connection) -> None:
        """Note that a connection is closed."""
        for connections in (self._strangers, *self._known.values()):
            connections.pop(connection, None)

    def recognise(self, peer: Peer, agent: int) -> None:
        """Note that a connection has sent a request that the site of an agent signed, so that it is kept."""
        known = self._known.setdefault(agent, {})
        for connection in [connection for connection in self._strangers if connection.client == peer]:
            del self._strangers[connection]
            known[connection] = None
        if len(known) > MOST_OF_SITE:
            oldest = next(iter(known))
            del known[oldest]
            oldest.evict(f"there are too many connections of the site of agent {agent}")

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError:  # no file descriptor is left
                await asyncio.sleep(0.1)
                continue
            while len(self._handshakes) >= MOST_STRANGERS:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
                self.refused("there are too many TLS handshakes", address[:2])
            task = asyncio.create_task(self._connect(accepted, address[:2]))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _connect(self, accepted: socket.socket, peer: Peer) -> None:
        """Make an accepted socket a connection, with TLS where that is asked for."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit = None if self._context is None else STRANGER_TIME
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(self), accepted, ssl=self._context, ssl_handshake_timeout=limit
            )
        except ssl.SSLError as error:
            self.refused(f"no TLS as asked for: {error.reason or 'it ended too early'}", peer)
        except (OSError, TimeoutError) as error:
            if "taking longer" in str(error):
                self.refused(f"the TLS handshake took more than {STRANGER_TIME:g} s", peer)
        except asyncio.CancelledError:
            accepted.close()
            raise
