"""Requests of a host that are not sent yet, in the order in which the run needs their reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbo.actors.columns import ByAgent, Ints, StepReports, StepRequests, joined_requests, rows_of
from fedbo.algorithms.base import Array

Ends = Callable[[Sequence[int]], Sequence[float]]


@dataclass(slots=True)
class _Sorted:
    """Agents `(k,)` in the order of their `ends`, of which those before `first` have been sent."""

    agents: Ints
    ends: Array
    first: int = 0

    def __len__(self) -> int:
        return len(self.agents) - self.first


class Unsent(ByAgent):
    """Requests by agent, sent in the order in which steps end, so that the run continues while hosts work on later ones."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: list[_Sorted] = []  # each at least half as long again as the next, which bounds their number
        self._new: dict[int, None] = {}  # agents that are in none, in the order of their arrival

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
            self._runs.clear()
            self._new.clear()
            return self.take(list(self))
        if wanted in self._new or 2 * len(self._new) > sum(map(len, self._runs)):
            self._sort(ends)
        chosen = self._next(count)
        while not len(chosen):
            if not any(map(len, self._runs)):
                self._sort(ends)
            chosen = self._next(count)
        return self.take(chosen)

    def _next(self, count: int) -> Ints:
        """Remove the first agents from the runs, at most so many; return those that still have a request."""
        places = [slice(run.first, run.first + count) for run in self._runs]
        agents = np.concatenate([run.agents[some] for run, some in zip(self._runs, places, strict=True)])
        ends = np.concatenate([run.ends[some] for run, some in zip(self._runs, places, strict=True)])
        chosen = np.argsort(ends, kind="stable")[:count]
        first = 0
        for run in self._runs:
            last = first + min(count, len(run))
            run.first += int(((chosen >= first) & (chosen < last)).sum())
            first = last
        found = np.unique(agents[chosen])  # an agent may be in two runs
        return found[self.have(found)]

    def _sort(self, ends: Ends) -> None:
        """Sort the new requests into a run, with those of runs that are not much longer."""
        agents = np.array(list(self._new), np.int64)
        agents = agents[self.have(agents)]
        self._new.clear()
        times = np.array(ends(agents.tolist()))
        while self._runs and 2 * len(self._runs[-1]) <= 3 * len(agents):
            run = self._runs.pop()
            others = run.agents[run.first :]
            kept = self.have(others) & ~np.isin(others, agents)
            agents, times = np.append(agents, others[kept]), np.append(times, run.ends[run.first :][kept])
        order = np.argsort(times, kind="stable")
        agents, times = agents[order], times[order]
        self._runs.append(_Sorted(agents, times))
        rows = agents[self.have_rows(agents)]
        if len(rows):
            parts, places = self.take_rows(rows)
            parts = joined_requests(parts)
            for part in parts:
                super().put(part if places is None or len(parts) > 1 else rows_of(part, places))
