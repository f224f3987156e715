"""All agents of a host, as objects. An accelerator may hold those in columns whose steps are plain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from fedbo.actors.agent import HostedAgent
from fedbo.actors.columns import Floats, Ints, StepReports, StepRequests, single_requests
from fedbo.actors.lazy_records import LazyRecords
from fedbo.actors.storage.rows import Row, single_rows, table_of_rows
from fedbo.actors.task import StepReport, StepRequest, Task

Unusual = Callable[[StepRequest], StepReport | None]


class CommitColumns(NamedTuple):
    """Commits of steps of one evaluation each, between the times `begun` and `ended`, `(k,)` as the different `agents`."""

    agents: Ints
    begun: Floats
    ended: Floats


Commit = tuple[int, tuple[float, ...]] | CommitColumns


class HostedAgents:
    """The agents of a host by number; `serves`: several of them take less time together."""

    serves = False

    def __init__(self, task: Task, make: Callable[[int], HostedAgent]) -> None:
        self._task = task
        self.objects: LazyRecords[HostedAgent] = LazyRecords(make)

    def __getitem__(self, number: int) -> HostedAgent:
        """Return an agent as an object."""
        return self.objects[number]

    def __iter__(self) -> Iterator[int]:
        """Return the numbers of all agents that exist."""
        yield from sorted({*self.objects, *self.objects.settled})

    def best(self) -> dict[int, float]:
        """Return the score of the best observation so far of every agent that has one."""
        return {agent.number: agent.state.best.score for agent in self.objects.every() if agent.state.best is not None}

    def best_values(self) -> dict[int, float | None]:
        """Return the known optimum of every agent that exists; None with several objectives, which have no single optimum."""
        if self._task.goals is not None and self._task.goals.several:
            return dict.fromkeys(self)
        return {agent.number: agent.objective.best_value for agent in self.objects.every()}

    def commit(self, commits: Iterable[Commit]) -> None:
        """Commit the last steps of agents."""
        for commit in commits:
            if isinstance(commit, CommitColumns):
                self.commit_each(*commit)
            else:
                agent, times = commit
                self.objects[agent].commit(times)

    def commit_each(self, agents: Ints, begun: Floats, ended: Floats) -> None:
        """Commit the last steps of these agents, each of one evaluation between these times."""
        for agent, *times in zip(agents.tolist(), begun.tolist(), ended.tolist(), strict=True):
            self.objects[agent].commit(times)

    def work(self, requests: StepRequests, unusual: Unusual) -> StepReports | list[StepReport]:
        """Run plain steps of different agents; `unusual` runs them one by one."""
        return [report for report in map(unusual, single_requests(requests)) if report is not None]

    def unsettle(self) -> None:
        """Mark all agents as changed."""
        self.objects.unsettle()

    def settle(self) -> None:
        """Mark all agents as written."""
        self.objects.settle()

    def saved_columns(self, most: int) -> list[Any]:
        """Return the committed states of changed agents in columns as plain data, at most so many agents in each part."""
        return []

    def load(self, saved: Any, numbers: Collection[int]) -> None:
        """Store those of these agents that `saved_columns` returned, in place of what is known of them."""
        raise NotImplementedError("only an accelerator saves columns")

    def take_rows(self, lossy: bool) -> tuple[list[Row], pa.Table | None]:
        """Remove the rows that may be written, by agent; return those of objects, and all as a table if there are any."""
        rows = [row for number in sorted(self.objects) for row in self.objects[number].take(lossy)]
        return rows, table_of_rows(rows) if rows else None

    def all_rows(self) -> list[Row]:
        """Return the committed rows that are not written yet one by one, in the order in which they would be."""
        rows = single_rows(row for agent in self.objects.every() for row in agent.state.rows)
        return sorted(rows, key=lambda row: row.agent)
