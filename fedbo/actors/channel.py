"""A channel to a host process on the same machine: calls in a row over a Unix socket, and what they give in that order.

A call of Ray takes both processes a millisecond, whatever it does, and one of these some tens of microseconds.
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
    """What a call gives, once it is there: a value, or the error that it raised."""

    __slots__ = ("channel", "error", "is_there", "value")

    def __init__(self, channel: Channel) -> None:
        self.channel, self.is_there = channel, False
        self.value: Any = None
        self.error: BaseException | None = None

    def get(self) -> Any:
        """Wait for it; ChannelClosed when the host is gone, and whatever the call raised."""
        while not self.is_there:
            self.channel.receive(wait=True)
        if self.error is not None:
            raise self.error
        return self.value


class Channel:
    """The coordinator's end of a channel. What the socket does not hold waits here, and a call never waits for the host.

    `is_gone` says whether the host's process has ended: one that it has forked may hold the other end open.
    """

    def __init__(self, connection: socket.socket, is_gone: Callable[[], bool] = lambda: False) -> None:
        self._socket, self._is_gone = connection, is_gone
        self._unsent, self._read, self._replies = deque[memoryview](), bytearray(), deque[Reply]()
        self._poll = select.poll()

    def call(self, method: str, *arguments: Any) -> Reply:
        """Let the host carry out a method of its own; ChannelClosed when it is gone."""
        self._unsent.append(memoryview(_framed((method, arguments))))
        self._replies.append(reply := Reply(self))
        self.send()
        return reply

    def send(self) -> None:
        """Send what has not been sent, as far as the socket takes it now."""
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
        """Take in what the host has answered; `wait` for some of it if there is none, and send meanwhile what is left."""
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
        """Wait until there is something to read; ChannelClosed when there never will be."""
        while True:
            self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            found = self._poll.poll(_PATIENCE)
            if found and found[0][1] & ~select.POLLOUT:
                return
            if not found and self._is_gone():
                raise ChannelClosed("its process has ended")
            self.send()

    def close(self) -> None:
        """Let the host serve nobody any more."""
        self._socket.close()


def serve(host: Any, connection: socket.socket) -> None:
    """Carry out calls of a host's methods one after the other, until the other end is closed."""
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
    """Take the content of the first frame out of what has been read; None where it is not whole yet."""
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
    """Give an error as another process can raise it, with where it came from."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
