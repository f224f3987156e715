"""Requests that are not sent yet: the order in which they go, whatever is put, replaced and sent meanwhile."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from fedbo.actors.columns import StepRequests, single_requests
from fedbo.actors.task import StepRequest
from fedbo.actors.unsent import Unsent


def requests(agents: Sequence[int], lease: int) -> StepRequests:
    numbers = np.array(agents, np.int64)
    return StepRequests(numbers, np.zeros_like(numbers), np.full(len(numbers), lease), np.ones(len(numbers), bool))


@pytest.mark.parametrize("seed", range(20))
def test_requests_go_once_the_newest_of_each_agent_and_those_first_that_end_first(seed: int) -> None:
    """Beside a plain dictionary. Those that are newer than the last sort may go late, unless they are wanted."""
    draw = random.Random(seed)
    unsent, known = Unsent(), dict[int, int]()
    ends = [draw.random() for _ in range(60)]

    def taken(wanted: int = -1) -> list[int]:
        found = unsent.first(5, lambda agents: [ends[agent] for agent in agents], wanted)
        each = [one for part in found for one in (part if isinstance(part, list) else single_requests(part))]
        assert {one.agent: one.lease for one in each}.items() <= known.items()
        for one in each:
            del known[one.agent]
        return [one.agent for one in each]

    for lease in range(1, 60):
        agents = draw.sample(range(60), draw.randint(1, 8))
        if draw.random() < 0.3:
            unsent.put([StepRequest(agent, 0, lease) for agent in agents])
        else:
            unsent.put(requests(agents, lease))
        known.update(dict.fromkeys(agents, lease))
        if draw.random() < 0.2:
            gone = draw.randrange(60)
            unsent.discard(gone)
            known.pop(gone, None)
        if draw.random() < 0.5 and known:
            first = min(known, key=lambda agent: ends[agent])
            assert first in taken(first)
        assert sorted(unsent) == sorted(known) and len(unsent) == len(known)
    while known:
        before = set(known)
        assert taken() and known.keys() < before
    assert not unsent.first(5, lambda agents: [0.0] * len(agents))


def test_all_that_is_known_goes_in_the_order_of_ends() -> None:
    unsent, ends = Unsent(), [3.0, 1.0, 2.0, 0.0, 5.0, 4.0]
    unsent.put(requests(range(6), 1))
    found = list[int]()
    while unsent:
        for part in unsent.first(2, lambda agents: [ends[agent] for agent in agents]):
            found += part.agent.tolist()
    assert [set(found[i : i + 2]) for i in (0, 2, 4)] == [{3, 1}, {2, 0}, {5, 4}]
