"""A channel to a host process on the same machine: calls over a Unix socket, answered in the order of the calls.

A call through Ray costs both processes a millisecond, a call through a channel some tens of microseconds.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

_LENGTH = struct.Struct("<Q")
_CHUNK = 2**18  # bytes read at once, as much as sockets hold
_PATIENCE = 1000  # milliseconds without a word, after which it is asked whether the host is gone


class ChannelClosed(Exception):
    """The host's end of a channel is closed: its process is gone."""


class Reply:
    """The result of a call, once it has arrived: a value, or the error that the call raised."""

    __slots__ = ("channel", "error", "is_there", "value")

    def __init__(self, channel: Channel) -> None:
        self.channel, self.is_there = channel, False
        self.value: Any = None
        self.error: BaseException | None = None

    def get(self) -> Any:
        """Wait for the result and return it; raise ChannelClosed when the host is gone, or the error that the call raised."""
        while not self.is_there:
            self.channel.receive(wait=True)
        if self.error is not None:
            raise self.error
        return self.value


class Channel:
    """The coordinator's end of a channel. A call never waits for the host: bytes beyond the socket's buffer are queued here.

    `is_gone` returns whether the host's process has ended. The socket does not show this: a forked child may hold its end open.
    """

    def __init__(self, connection: socket.socket, is_gone: Callable[[], bool] = lambda: False) -> None:
        self._socket, self._is_gone = connection, is_gone
        self._unsent, self._read, self._replies = deque[memoryview](), bytearray(), deque[Reply]()
        self._poll = select.poll()

    def call(self, method: str, *arguments: Any) -> Reply:
        """Call a method of the host and return a `Reply`; ChannelClosed when the host is gone."""
        self._unsent.append(memoryview(_framed((method, arguments))))
        self._replies.append(reply := Reply(self))
        self.send()
        return reply

    def send(self) -> None:
        """Send queued bytes, as many as the socket takes now."""
        while self._unsent:
            first = self._unsent[0]
            try:
                sent = self._socket.send(first, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError as error:
                raise ChannelClosed(str(error)) from error
            if sent < len(first):
                self._unsent[0] = first[sent:]
            else:
                self._unsent.popleft()

    def receive(self, wait: bool) -> None:
        """Read the answers that have arrived; with `wait`, block until there is one. Queued bytes are sent first."""
        self.send()
        if wait:
            self._wait()
        try:
            data = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed("its end of the channel is closed")
        self._read += data
        while (frame := _first_frame(self._read)) is not None:
            reply = self._replies.popleft()
            failed, found = frame
            reply.value, reply.error, reply.is_there = (None, found, True) if failed else (found, None, True)

    def _wait(self) -> None:
        """Wait until there is something to read; ChannelClosed when the host is gone."""
        while True:
            # With unsent bytes it also waits for room to write; otherwise both ends could wait for each other.
            self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            found = self._poll.poll(_PATIENCE)
            if found and found[0][1] & ~select.POLLOUT:
                return
            if not found and self._is_gone():
                raise ChannelClosed("its process has ended")
            self.send()

    def close(self) -> None:
        """Close the channel, which ends the host's loop."""
        self._socket.close()


def serve(host: Any, connection: socket.socket) -> None:
    """Run the calls of a host's methods one after the other until the other end is closed."""
    read = bytearray()
    while True:
        while (called := _first_frame(read)) is None:
            data = connection.recv(_CHUNK)
            if not data:
                return
            read += data
        method, arguments = called
        try:
            answer = _framed((False, getattr(host, method)(*arguments)))
        except Exception as error:
            answer = _framed((True, _as_told(error)))
        connection.sendall(answer)


def _framed(content: Any) -> bytes:
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def _first_frame(read: bytearray) -> Any:
    """Remove the first frame from the bytes read and return its content; None while the frame is incomplete."""
    if len(read) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(read)[0]
    if len(read) < end:
        return None
    with memoryview(read) as view, view[_LENGTH.size : end] as frame:
        content = pickle.loads(frame)
    del read[:end]
    return content


def _as_told(error: Exception) -> Exception:
    """Return an error that another process can raise, with its traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
