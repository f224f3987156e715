"""Requests of a host that are not sent yet, in the order in which the run needs their reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from fedbo.actors.columns import ByAgent, StepReports, StepRequests

Ends = Callable[[Sequence[int]], Sequence[float]]


class Unsent(ByAgent):
    """Requests by agent, of which those go first whose steps end first. So the run continues while hosts work on others."""

    def __init__(self) -> None:
        super().__init__()
        self._order: list[tuple[float, int]] = []  # a heap of ends and agents, some of which have been sent
        self._new: dict[int, None] = {}  # agents that are not in it

    def put(self, given: StepRequests | StepReports | Iterable[Any]) -> None:
        """Store requests; an agent that has one loses it."""
        requests = given if isinstance(given, StepRequests | StepReports) else list(given)
        super().put(requests)
        agents = [one.agent for one in requests] if isinstance(requests, list) else requests.agent.tolist()
        self._new.update(dict.fromkeys(agents))

    def first(self, count: int, ends: Ends, wanted: int = -1) -> list[Any]:
        """Remove and return at most so many requests, as `take`; `ends` returns when steps will end, as far as known.

        New requests wait for their place in the order, unless they are many or one of them is `wanted`.
        """
        if len(self) <= count:
            self._order.clear()
            self._new.clear()
            return self.take(list(self))
        if wanted in self._new or 2 * len(self._new) > len(self._order):
            self._sort(ends)
        chosen: dict[int, None] = {}
        while len(chosen) < count and self._order:
            agent = heappop(self._order)[1]
            if agent in self:
                chosen[agent] = None
        return self.take(list(chosen))

    def _sort(self, ends: Ends) -> None:
        agents = list(self._new)
        for entry in zip(ends(agents), agents, strict=True):
            heappush(self._order, entry)
        self._new.clear()
