"""Messages that a coordinator half processes together: the same state and answers as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Inbound, JointHalf, Problem
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


def singly(method: Any, state: Any, senders: Any, payload: Any, numbers: Any = None) -> tuple[Any, list[Any]]:
    """Receive messages one by one, and answer them if answers have numbers, up to the first that is not answered."""
    answers = []
    for place, sender in enumerate(senders.tolist()):
        state = method.receive(state, Inbound(sender, 1, 0.0, {"omega": payload["omega"][place]}), 1.0)
        if numbers is not None:
            found, state = method.broadcast(state, [sender], ONES, STREAMS.at(int(numbers[place])))
            if not found:
                break
            answers.append(found[sender])
    return state, answers


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_answers_to_messages_that_are_read_together_are_those_to_each_in_turn(seed: int, weighted: bool) -> None:
    method = relaying(weighted)
    assert isinstance(method, JointHalf) and method.is_joint
    states = [method.server_init(PROBLEM) for _ in range(2)]
    for part, count in enumerate((1, 1, 12, 30)):  # nobody is there to answer the first one with
        senders, payload = arrivals(10 * seed + part, count)
        numbers = np.arange(100 * part, 100 * part + count)
        answers, states[0] = method.answer_each(states[0], senders, payload, ONES, numbers, STREAMS)
        states[1], expected = singly(method, states[1], senders, payload, numbers)
        assert len(answers["omega"]) == len(expected)
        for place, answer in enumerate(expected):
            assert all(np.array_equal(answers[name][place], answer[name]) for name in answer)
        assert repr(states[0]) == repr(states[1])


@pytest.mark.parametrize("weighted", [False, True])
def test_a_round_of_messages_leaves_the_same_together_as_one_by_one(weighted: bool) -> None:
    method = relaying(weighted)
    senders, payload = arrivals(7, 6)
    state = method.receive_each(method.server_init(PROBLEM), senders, payload)
    other, _ = singly(method, method.server_init(PROBLEM), senders, payload)
    assert repr(state) == repr(other)
    (places, answers), _ = method.broadcast_each(state, np.arange(AGENTS), ONES, STREAMS.at(4))
    expected, _ = method.broadcast(other, list(range(AGENTS)), ONES, STREAMS.at(4))
    assert places.tolist() == list(expected)
    for place, agent in enumerate(places.tolist()):
        assert all(np.array_equal(answers[name][place], expected[agent][name]) for name in answers)
