"""The dispatcher, which submits the evaluations of all agents: how many of one agent run at once."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.objectives.outcome import Outcome
from fedbo.workers import ray_pool


def query(agent: int, number: int) -> Query:
    x: Any = np.zeros(1)
    return Query(agent, number, 0, x, [0.0], "search", 1, "own", "")


def test_of_one_agent_no_more_run_than_may_and_what_is_given_up_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent 0 has three evaluations of which two may run; agent 1 does not wait for it."""
    running: dict[tuple[int, int], asyncio.Future[EvaluationRecord]] = {}

    def submitted(objective: Any, query: Query) -> Any:
        running[query.agent, query.number] = asyncio.get_running_loop().create_future()
        return running[query.agent, query.number]

    monkeypatch.setattr(ray_pool, "submitted", submitted)
    monkeypatch.setattr(
        ray_pool.ray, "cancel", lambda call, force: running.pop(next(k for k, v in running.items() if v is call))
    )

    async def scenario() -> None:
        dispatcher = ray_pool.Dispatcher(2)
        asked = [query(0, 0), query(0, 1), query(0, 2), query(0, 3), query(1, 0)]
        calls = [asyncio.ensure_future(dispatcher.evaluate([None], one)) for one in asked]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert set(running) == {(0, 0), (0, 1), (1, 0)}
        running[0, 1].set_result(query(0, 1).evaluated(Outcome(1.5)))
        assert await calls[1] == query(0, 1).evaluated(Outcome(1.5))
        await asyncio.sleep(0)
        assert set(running) == {(0, 0), (0, 1), (0, 2), (1, 0)}
        calls[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        await asyncio.sleep(0)
        assert set(running) == {(0, 1), (0, 2), (0, 3), (1, 0)}

    asyncio.run(scenario())
