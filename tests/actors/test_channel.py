"""The channel to a host: calls come in order, large ones block nobody, and errors and ends are told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from fedbo.actors.channel import Channel, ChannelClosed, serve


class Unpicklable(Exception):
    """An error that cannot be made from its own arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


class Counting:
    """What is served: it notes the order of its calls."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def twice(self, number: int, array: Any = None) -> tuple[int, Any]:
        self.seen.append(number)
        return 2 * number, array

    def fail(self, error: str) -> None:
        raise Unpicklable("not", " today") if error == "odd" else ConnectionError(error)


@contextmanager
def served(host: Any) -> Iterator[tuple[Channel, threading.Thread]]:
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with theirs, suppress(ConnectionError):
            serve(host, theirs)

    thread, channel = threading.Thread(target=answer), Channel(ours)
    thread.start()
    yield channel, thread
    channel.close()
    thread.join(120.0)
    assert not thread.is_alive(), "it goes on although the other end is closed"


def test_calls_are_carried_out_in_order_and_may_be_waited_for_in_any() -> None:
    host = Counting()
    with served(host) as (channel, _):
        replies = [channel.call("twice", number) for number in range(5)]
        assert replies[3].get() == (6, None)
        assert [reply.is_there for reply in replies[:4]] == [True] * 4
        assert [reply.get()[0] for reply in replies] == [0, 2, 4, 6, 8]
    assert host.seen == [0, 1, 2, 3, 4]


def test_many_large_calls_are_made_before_any_answer_is_read() -> None:
    """Four megabytes each way are more than sockets hold: whoever waited to send would wait for ever."""
    arrays = [np.full(100_000, float(number)) for number in range(5)]
    with served(Counting()) as (channel, _):
        replies = [channel.call("twice", number, array) for number, array in enumerate(arrays)]
        assert all(np.array_equal(reply.get()[1], array) for reply, array in zip(replies, arrays, strict=True))


def test_an_error_of_a_call_is_raised_here_and_those_after_it_go_on() -> None:
    with served(Counting()) as (channel, _):
        failed, odd, after = channel.call("fail", "its own"), channel.call("fail", "odd"), channel.call("twice", 4)
        with pytest.raises(ConnectionError, match="its own") as caught:
            failed.get()
        assert "in fail" in caught.value.__notes__[0]
        with pytest.raises(RuntimeError, match="Unpicklable: not today"):
            odd.get()
        assert after.get() == (8, None)


def test_what_is_not_there_yet_is_not_waited_for() -> None:
    gate = threading.Event()

    class Slow:
        def wait(self) -> bool:
            return gate.wait(120.0)

    with served(Slow()) as (channel, _):
        reply = channel.call("wait")
        channel.receive(wait=False)
        assert not reply.is_there
        gate.set()
        assert reply.get() is True


def test_a_host_that_is_gone_is_told_of() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    reply = channel.call("twice", 1)
    theirs.close()
    with pytest.raises(ChannelClosed):
        reply.get()
    with pytest.raises(ChannelClosed):
        channel.call("twice", 2)
    channel.close()


def test_a_host_that_has_ended_is_told_of_though_its_child_holds_the_socket() -> None:
    ours, theirs = socket.socketpair()
    asked = list[bool]()

    def is_gone() -> bool:
        asked.append(len(asked) == 1)
        return asked[-1]

    with theirs:
        channel = Channel(ours, is_gone)
        reply = channel.call("twice", 1)
        with pytest.raises(ChannelClosed, match="its process has ended"):
            reply.get()
        channel.close()
    assert asked == [False, True]
