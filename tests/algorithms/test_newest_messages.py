"""Means hold the newest message of every agent, so that an agent that sends often has no more weight than a slow one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Inbound, Payload, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import COORDINATOR, Streams

N = 4
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)


def sent(method: Any, number: int, count: int) -> Payload:
    """Return an agent's message after `count` observations of its bowl."""
    streams = Streams(1, owner=number)
    x = np.random.default_rng(number).random((count, 2))
    state = method.agent_init(replace(PROBLEM, agent=number), streams)
    payload, _ = method.outbox(method.tell(state, x, -((x - 0.2 * number) ** 2).sum(axis=1)), streams.at(count))
    assert payload is not None
    return dict(payload)


def answered(method: Any, arrived: list[tuple[int, int, Payload]]) -> dict[int, Payload]:
    server = method.server_init(PROBLEM)
    for number, step, payload in arrived:
        server = method.receive(server, Inbound(number, step, 0.0, payload), 0.0)
    return dict(method.broadcast(server, range(N), np.ones(N), Streams(1, owner=COORDINATOR))[0])


@pytest.mark.parametrize("name", ["fed_prior"])
def test_ten_messages_of_a_fast_agent_count_as_its_newest_one(name: str) -> None:
    method = entry(name).make()
    slow = [(number, 0, sent(method, number, 6)) for number in (0, 1, 2)]
    early, newest = (3, 1, sent(method, 3, 5)), (3, 10, sent(method, 3, 8))
    once, often = answered(method, [*slow, newest]), answered(method, [early] * 10 + slow + [newest])
    assert once.keys() == often.keys() and once
    for number, payload in once.items():
        for field, array in payload.items():
            np.testing.assert_array_equal(often[number][field], array)
    without = answered(method, [*slow, early])
    assert any(not np.array_equal(without[0][field], array) for field, array in once[0].items()), "the newest message is used"
