"""All agents of a host: in columns where the algorithm has them, and as objects for all that is unusual.

An agent is a slot of the columns as long as its steps are plain. Whatever else is asked of it takes it out, as a `HostedAgent`,
and it comes back with its next plain step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.agent import HostedAgent
from fedbo.actors.columns import Ints, StepReports, StepRequests, rows_of, single_reports, single_requests
from fedbo.actors.population import Commit, CommitColumns, HostedAgents, Unusual
from fedbo.actors.storage.rows import Row, single_rows, table_of_rows
from fedbo.actors.task import StepReport, Task
from fedbo.algorithms.base import Array, Columnar, StateColumns
from fedbo.algorithms.returned import columns_of
from fedbo.fast.column_agents import ColumnAgents
from fedbo.fast.slots import SavedColumns
from fedbo.fast.together import agree

_MOST = 512  # steps whose arrays are worked on together


class AgentsInColumns(HostedAgents):
    """The agents of a host by number; `usual`: time is virtual and steps are plain, so that they may be columns."""

    def __init__(self, task: Task, make: Callable[..., HostedAgent], columns: ColumnAgents, usual: bool) -> None:
        super().__init__(task, make)
        self._made, self.columns, self.serves = make, columns, usual
        self._targets = frozenset(task.problem.targets) if self.serves else frozenset()
        self._slot = np.full(task.problem.n_agents, -1)  # by number, -1 for agents that are not in the columns
        self._loose: list[Row] = []  # of agents that have come back
        self._commits: list[Commit] = []

    def __getitem__(self, number: int) -> HostedAgent:
        """Return an agent as an object, out of the columns."""
        self._settle()
        slot = int(self._slot[number])
        if slot >= 0:
            self._slot[number] = -1
            state, uncommitted = self.columns.take(slot)
            agent = self.objects[number] = self._made(number, state=state)
            agent.uncommitted = uncommitted
            agent.saved = agent.committed
        return self.objects[number]

    def __iter__(self) -> Iterator[int]:
        """Return the numbers of all agents that exist."""
        yield from sorted({*self.objects, *self.objects.settled, *np.flatnonzero(self._slot >= 0).tolist()})

    def best(self) -> dict[int, float]:
        """Return the score of the best observation so far of every agent that has one."""
        self._settle()
        found = super().best()
        if len(slots := self._slots):
            of = self.columns.of
            slots = slots[~np.isnan(of.best[slots])]
            found |= zip(of.number[slots].tolist(), of.best_score[slots].tolist(), strict=True)
        return found

    def best_values(self) -> dict[int, float | None]:
        """Return the known optimum of every agent that exists; None with several objectives, which have no single optimum."""
        found = super().best_values()
        if self._task.goals is not None and self._task.goals.several:
            return found
        numbers = np.flatnonzero(self._slot >= 0)
        each = zip(numbers.tolist(), self._slot[numbers].tolist(), strict=True)
        return found | {number: self.columns.best_value(slot) for number, slot in each}

    def commit(self, commits: Iterable[Commit]) -> None:
        """Commit the last steps of agents, at the next occasion."""
        self._commits += commits

    def commit_each(self, agents: Ints, begun: Array, ended: Array) -> None:
        """Commit the last steps of these agents, each of one evaluation between these times."""
        self._settle()
        slots = self._slot[agents]
        here = slots >= 0
        if not here.all():
            super().commit_each(agents[~here], begun[~here], ended[~here])
            slots, begun, ended = slots[here], begun[here], ended[here]
        if len(slots):
            self.columns.commit(slots, begun, ended)

    def _settle(self) -> None:
        """Commit what is to be committed."""
        commits, self._commits = self._commits, []
        usual, untimed = [], []
        for commit in commits:
            if isinstance(commit, CommitColumns):
                self.commit_each(*commit)
                continue
            agent, times = commit
            if (slot := self._slot.item(agent)) < 0:
                self.objects[agent].commit(times)
            elif len(times) == 2:
                usual.append((slot, *times))
            elif times:
                self.columns.commit_one(slot, times)
            else:
                untimed.append(slot)
        if untimed:
            self.columns.commit(np.array(untimed))
        if usual:
            slots, begun, ended = np.array(usual).T
            self.columns.commit(slots.astype(np.int64), begun, ended)

    def work(self, requests: StepRequests, unusual: Unusual) -> StepReports | list[StepReport]:
        """Run plain steps of different agents, in columns as far as possible; `unusual` runs the others one by one."""
        self._settle()
        found: list[StepReports | list[StepReport]] = []
        count = len(requests.agent)
        for first in range(0, count, _MOST):
            some = requests if count <= _MOST else rows_of(requests, np.arange(first, min(first + _MOST, count)))
            there = self._come_in(some)
            left, here = ~there, some if there.all() else rows_of(some, there)
            if len(here.agent):
                slots = self._slot[here.agent]
                failed = self.columns.run(here, slots)
                if failed.any():
                    left[there.nonzero()[0][failed]] = True
                    slots = slots[~failed]
                found.append(self.columns.reports(slots))
            if left.any():
                alone = map(unusual, single_requests(rows_of(some, left)))
                found.append([report for report in alone if report is not None])
        if len(found) == 1:
            return found[0]
        return [report for part in found for report in (single_reports(part) if isinstance(part, StepReports) else part)]

    def _come_in(self, requests: StepRequests) -> npt.NDArray[np.bool_]:
        """Assign a slot to each agent that may have one; return which have."""
        if not self.serves or (self.columns.single is not None and self.columns.single.says_more):
            return np.zeros(len(requests.agent), bool)
        told = np.zeros(len(requests.agent), bool)
        if requests.ended is not None and not self._task.overlaps:  # such steps are not requested when they begin
            told = np.array([ended is not None for ended in requests.ended])
        new, left = [], (self._slot[requests.agent] < 0) & ~told
        for place in left.nonzero()[0].tolist():
            number, step = int(requests.agent[place]), int(requests.step[place])
            if number not in self._targets:
                continue
            if number in self.objects or number in self.objects.settled:
                self._put_back(number)
            elif step == 0 and self.columns.initial_count(number) > 0:
                new.append(number)
        if new:
            self._slot[new] = self.columns.start(new)
        slots = self._slot[requests.agent]
        here = slots >= 0
        here[here] = (requests.step[here] == 0) | (self.columns.of.t_n[slots[here]] > 0)
        return here & ~told

    def _put_back(self, number: int) -> None:
        """Store an agent in the columns again, if nothing about it is unusual."""
        agent = self.objects[number]
        slot = None if agent.uncommitted is not None else self.columns.put(number, agent.state)
        if slot is not None:
            self._slot[number] = slot
            self._loose += agent.state.rows
            del self.objects[number]

    @property
    def _slots(self) -> Ints:
        """Return the slots of all agents in the columns, by number."""
        return self._slot[self._slot >= 0]

    def unsettle(self) -> None:
        """Mark all agents as changed."""
        super().unsettle()
        if len(slots := self._slots):
            self.columns.of.touched[slots] = True

    def settle(self) -> None:
        """Mark all agents as written."""
        super().settle()
        self.columns.of.touched[:] = False

    def changed(self) -> Ints:
        """Return the slots of the agents that have changed, in the order of their numbers."""
        self._settle()
        slots = self._slots
        return slots[self.columns.of.touched[slots]] if len(slots) else slots

    def saved_columns(self, most: int) -> list[SavedColumns]:
        """Return the committed states of changed agents in columns as plain data, at most so many agents in each part."""
        slots = self.changed()
        return [self.columns.save(slots[first : first + most]) for first in range(0, len(slots), most)]

    def load(self, saved: SavedColumns, numbers: Collection[int]) -> None:
        """Store those of these agents that `saved_columns` returned, in place of what is known of them."""
        wanted = frozenset(numbers)
        for number, slot in zip(saved.number.tolist(), self.columns.load(saved).tolist(), strict=True):
            if number not in wanted:
                self.columns.release(slot)
                continue
            if self._slot[number] >= 0:
                self.columns.release(int(self._slot[number]))
            for some in (self.objects, self.objects.settled):
                some.pop(number, None)
            self._slot[number] = slot

    def take_rows(self, lossy: bool) -> tuple[list[Row], pa.Table | None]:
        """Remove the rows that may be written, by agent and step; return those of objects, and all of them as a table."""
        self._settle()
        loose = [row for number in sorted(self.objects) for row in self.objects[number].take(lossy)]
        loose, self._loose = sorted([*self._loose, *loose], key=lambda row: row.agent), []
        columns = self.columns.take_rows(self._slots)
        if columns is None:
            return loose, table_of_rows(loose) if loose else None
        table = columns.table(self._task.phase)
        if not loose:
            return loose, table
        both = pa.concat_tables([table, table_of_rows(loose)])
        return loose, both.take(np.lexsort([both["step"].to_numpy(), both["agent"].to_numpy()]))

    def all_rows(self) -> list[Row]:
        """Return the committed rows that are not written yet one by one, in the order in which they would be."""
        self._settle()
        rows, kept = [*single_rows(self._loose), *super().all_rows()], self.columns.rows.kept().rows(self._task.phase)
        return sorted([*rows, *kept], key=lambda row: (row.agent, row.step) if kept else (row.agent,))


def states_of(task: Task) -> StateColumns | None:
    """Return columns of the states of an algorithm; None where it has none, or a subclass has other rules than its columns."""
    algorithm, kind = task.algorithm, type(task.algorithm)
    if not isinstance(algorithm, Columnar) or algorithm.queries is None or not _has_own_columns(kind):
        return None
    return columns_of(algorithm, task.problem, task.streams)


@cache
def _has_own_columns(kind: type) -> bool:
    return agree(kind, "columns", ("agent_init", "ask", "tell", "outbox"))
