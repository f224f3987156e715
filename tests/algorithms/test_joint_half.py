"""Messages that a coordinator half processes together: the same state and answers as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Inbound, JointHalf, Occasions, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import COORDINATOR, Streams

FEATURES, AGENTS = 5, 9
PROBLEM = Problem(2, AGENTS, range(AGENTS), 1, 10)
ONES, STREAMS = np.ones(AGENTS), Streams(3).of(COORDINATOR)


def relaying(weighted: bool) -> Any:
    """Return a method that relays one message, perhaps of agents that are not equally likely."""
    weights = tuple(float(n % 3) + 0.1 for n in range(AGENTS)) if weighted else ()
    return entry("fts").make(features=FEATURES, every=1, relay="one", query="draw", weights=weights)


def arrivals(seed: int, count: int) -> tuple[np.ndarray[Any, Any], dict[str, np.ndarray[Any, Any]]]:
    """Draw senders, some of them several times, and messages."""
    rng = np.random.default_rng(seed)
    return rng.integers(AGENTS, size=count), {"omega": rng.standard_normal((count, FEATURES))}


def singly(method: Any, state: Any, senders: Any, payload: Any, full: int = 0, first: int = 0) -> tuple[Any, list[Any]]:
    """Receive messages one by one, and answer senders whenever `full` have come, until one is not answered."""
    answers: list[Any] = []
    for place, sender in enumerate(senders.tolist(), 1):
        state = method.receive(state, Inbound(sender, 1, 0.0, {"omega": payload["omega"][place - 1]}), 1.0)
        if full and place % full == 0:
            recipients = sorted({*senders[place - full : place].tolist()})
            found, state = method.broadcast(state, recipients, ONES, STREAMS.at(first + place // full - 1))
            answers += found.values()
            if list(found) != recipients:
                break
    return state, answers


def occasions(senders: Any, full: int, first: int) -> Occasions:
    """Return the occasions of full buffers."""
    buffers = [np.unique(senders[place : place + full]) for place in range(0, len(senders) - full + 1, full)]
    counts, numbers = [len(one) for one in buffers], np.arange(len(buffers))
    return Occasions(
        np.concatenate([np.empty(0, np.int64), *buffers]),
        np.repeat((numbers + 1) * full, counts),
        np.repeat(first + numbers, counts),
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("full", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_answers_to_messages_that_are_read_together_are_those_to_each_in_turn(seed: int, full: int, weighted: bool) -> None:
    method = relaying(weighted)
    assert isinstance(method, JointHalf) and method.is_joint
    states = [method.server_init(PROBLEM) for _ in range(2)]
    for part, count in enumerate((1, 1, 12, 30)):  # nobody is there to answer the first one with
        senders, payload = arrivals(10 * seed + part, count)
        some = occasions(senders, full, 100 * part)
        (places, answers), states[0] = method.answer_each(states[0], senders, payload, ONES, some, STREAMS)
        states[1], expected = singly(method, states[1], senders, payload, full, 100 * part)
        assert len(places) == len(answers["omega"]) == len(expected)
        for place, answer in enumerate(expected):
            assert all(np.array_equal(answers[name][place], answer[name]) for name in answer)
        assert repr(states[0]) == repr(states[1])


@pytest.mark.parametrize("weighted", [False, True])
def test_a_round_of_messages_leaves_the_same_together_as_one_by_one(weighted: bool) -> None:
    method = relaying(weighted)
    senders, payload = arrivals(7, 6)
    none = Occasions(*[np.empty(0, np.int64)] * 3)
    _, state = method.answer_each(method.server_init(PROBLEM), senders, payload, ONES, none, STREAMS)
    other, _ = singly(method, method.server_init(PROBLEM), senders, payload)
    assert repr(state) == repr(other)
    round_ = Occasions(np.arange(AGENTS), np.zeros(AGENTS, np.int64), np.full(AGENTS, 4))
    (places, answers), _ = method.answer_each(state, senders[:0], {"omega": payload["omega"][:0]}, ONES, round_, STREAMS)
    expected, _ = method.broadcast(other, list(range(AGENTS)), ONES, STREAMS.at(4))
    assert places.tolist() == list(expected)
    for place, agent in enumerate(places.tolist()):
        assert all(np.array_equal(answers[name][place], expected[agent][name]) for name in answers)
