"""All agents of a host: in columns where the algorithm has them, and as objects for what is unusual.

An agent is a slot of the columns as long as its steps are plain. Whatever else is asked of it takes it out, as a `HostedAgent`,
and it comes back with its next plain step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.agent import HostedAgent
from fedbo.actors.column_agents import ColumnAgents
from fedbo.actors.columns import Ints, StepReports, StepRequests, rows_of, single_reports, single_requests
from fedbo.actors.evaluation.together import JointEvaluator, agree
from fedbo.actors.lazy_records import LazyRecords
from fedbo.actors.slots import SavedColumns
from fedbo.actors.storage.row_columns import RowColumns
from fedbo.actors.storage.rows import Row, single_rows, table_of_rows
from fedbo.actors.task import StepReport, StepRequest, Task
from fedbo.algorithms.base import Array, Columnar, StateColumns
from fedbo.algorithms.returned import columns_of

_MOST = 512  # steps whose arrays are worked on together
_FEWEST = 3  # agents of a run for which columns and windows take less time than objects and single events
Unusual = Callable[[StepRequest], StepReport | None]


class CommitColumns(NamedTuple):
    """Commits of steps of one evaluation each, between the times `begun` and `ended`, `(k,)` as the different `agents`."""

    agents: Ints
    begun: Array
    ended: Array


Commit = tuple[int, tuple[float, ...]] | CommitColumns


class HostedAgents:
    """The agents of a host by number; `usual`: time is virtual, so that plain steps may be columns."""

    def __init__(self, task: Task, make: Callable[[int], HostedAgent], evaluator: JointEvaluator, usual: bool) -> None:
        self._task = task
        self.objects: LazyRecords[HostedAgent] = LazyRecords(make)
        states = _states_of(task)
        self._columns = None if states is None else ColumnAgents(task, states, evaluator)
        self.serves = usual and states is not None and _is_plain(task)
        self._targets = frozenset(task.problem.targets) if self.serves else frozenset()
        self._slot = np.full(task.problem.n_agents, -1)  # by number, -1 for agents that are not in the columns
        self._loose: list[Row] = []  # of agents that have come back
        self._commits: list[Commit] = []

    @property
    def columns(self) -> ColumnAgents:
        """Return the agents in columns; AssertionError where the algorithm has none."""
        assert self._columns is not None
        return self._columns

    def __getitem__(self, number: int) -> HostedAgent:
        """Return an agent as an object, out of the columns."""
        self._settle()
        agent, slot = self.objects[number], int(self._slot[number])
        if slot >= 0:
            self._slot[number] = -1
            agent.state, agent.uncommitted = self.columns.take(slot)
            agent.saved = agent.committed
        return agent

    def __iter__(self) -> Iterator[int]:
        """Return the numbers of all agents that exist."""
        yield from sorted({*self.objects, *self.objects.settled, *np.flatnonzero(self._slot >= 0).tolist()})

    def best(self) -> dict[int, float]:
        """Return the score of the best observation so far of every agent that has one."""
        self._settle()
        found = {agent.number: agent.state.best.score for agent in self.objects.every() if agent.state.best is not None}
        if len(slots := self._slots):
            of = self.columns.of
            slots = slots[~np.isnan(of.best[slots])]
            found |= zip(of.number[slots].tolist(), of.best_score[slots].tolist(), strict=True)
        return found

    def best_values(self) -> dict[int, float | None]:
        """Return the known optimum of every agent that exists; None with several objectives, which have no single optimum."""
        if self._task.goals is not None and self._task.goals.several:
            return dict.fromkeys(self)
        found = {agent.number: agent.objective.best_value for agent in self.objects.every()}
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
            for agent, *times in zip(agents[~here].tolist(), begun[~here].tolist(), ended[~here].tolist(), strict=True):
                self.objects[agent].commit(times)
            slots, begun, ended = slots[here], begun[here], ended[here]
        if len(slots):
            self.columns.commit(slots, begun, ended)

    def _settle(self) -> None:
        """Commit what is to be committed."""
        commits, self._commits = self._commits, []
        usual = []
        for commit in commits:
            if isinstance(commit, CommitColumns):
                self.commit_each(*commit)
                continue
            agent, times = commit
            if (slot := self._slot.item(agent)) < 0:
                self.objects[agent].commit(times)
            elif len(times) == 2:
                usual.append((slot, *times))
            else:
                self.columns.commit_one(slot, times)
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
        if not self.serves:
            return np.zeros(len(requests.agent), bool)
        new, left = [], self._slot[requests.agent] < 0
        for place in left.nonzero()[0].tolist():
            number, step = int(requests.agent[place]), int(requests.step[place])
            if number not in self._targets:
                continue
            if number in self.objects or number in self.objects.settled:
                self._put_back(number)
            elif step == 0 and self._begins(number):
                new.append(number)
        if new:
            self._slot[new] = self.columns.start(new)
        slots = self._slot[requests.agent]
        here = slots >= 0
        here[here] = (requests.step[here] == 0) | (self.columns.of.t_n[slots[here]] > 0)
        return here

    def _begins(self, number: int) -> bool:
        """Return whether an agent has initial points."""
        given = self._task.initial.get(number)
        return (self._task.budget_of(number).initial if given is None else len(given)) > 0

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
        self.objects.unsettle()
        if len(slots := self._slots):
            self.columns.of.touched[slots] = True

    def settle(self) -> None:
        """Mark all agents as written."""
        self.objects.settle()
        if self._columns is not None:
            self._columns.of.touched[:] = False

    def changed(self) -> Ints:
        """Return the slots of the agents that have changed, in the order of their numbers."""
        self._settle()
        slots = self._slots
        return slots[self.columns.of.touched[slots]] if len(slots) else slots

    def save(self, slots: Ints) -> SavedColumns:
        """Return the committed states of agents as plain data."""
        self._settle()
        return self.columns.save(slots)

    def load(self, saved: SavedColumns, numbers: Iterable[int]) -> None:
        """Store those of these agents that `save` returned, in place of what is known of them."""
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

    def take_rows(self, lossy: bool) -> tuple[list[Row], RowColumns | None]:
        """Remove and return the rows that may be written: those of objects by agent, and those in columns."""
        self._settle()
        agents = self.objects
        loose = [row for number in sorted(agents) for row in agents[number].take(lossy)]
        loose, self._loose = sorted([*self._loose, *loose], key=lambda row: row.agent), []
        return loose, None if self._columns is None else self._columns.take_rows(self._slots)

    def table_of(self, loose: Sequence[Row], columns: RowColumns | None) -> pa.Table:
        """Return rows of `take_rows` as one table, by agent, and by step where an agent has rows of both kinds."""
        if columns is None:
            return table_of_rows(loose)
        table = columns.table(self._task.phase)
        if not loose:
            return table
        both = pa.concat_tables([table, table_of_rows(loose)])
        return both.take(np.lexsort([both["step"].to_numpy(), both["agent"].to_numpy()]))

    def all_rows(self) -> list[Row]:
        """Return the committed rows that are not written yet one by one, in the order in which they would be."""
        self._settle()
        rows = [*single_rows(self._loose), *single_rows(row for agent in self.objects.every() for row in agent.state.rows)]
        kept = [] if self._columns is None else self._columns.rows.kept().rows(self._task.phase)
        return sorted([*rows, *kept], key=lambda row: (row.agent, row.step) if kept else (row.agent,))


def _states_of(task: Task) -> StateColumns | None:
    algorithm, kind = task.algorithm, type(task.algorithm)
    if not isinstance(algorithm, Columnar) or algorithm.queries is None or not _has_own_columns(kind):
        return None
    return columns_of(algorithm, task.problem, task.streams)


def are_few(task: Task) -> bool:
    """Return whether a run has so few agents that they take less time one by one."""
    return task.problem.n_agents < _FEWEST


def _is_plain(task: Task) -> bool:
    """Return whether steps of a task are plain as far as it says: what it has besides makes them unusual."""
    return (
        not are_few(task)
        and task.checkpoint == 1
        and task.early_end is None
        and task.stopping is None
        and task.reported is None
        and task.history is None
        and not task.problem.pulls
        and not task.overlaps
        and task.goals is None
        and task.cost == math.inf
    )


@cache
def _has_own_columns(kind: type) -> bool:
    return agree(kind, "columns", ("agent_init", "ask", "tell", "outbox"))
