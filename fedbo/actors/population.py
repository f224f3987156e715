"""All agents of a host: columns where the algorithm has them, and objects for what is unusual.

An agent is a slot of the columns as long as its steps are plain. Whatever else is asked of it takes it out, as a `HostedAgent`,
and it comes back with its next plain step. So only plain steps and their commits are done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.agent import HostedAgent, initial_points
from fedbo.actors.agent_state import AgentState, BestObservation, UncommittedStep
from fedbo.actors.columns import Ints, StepReports, StepRequests, rows_of, single_reports, single_requests
from fedbo.actors.evaluation.step import StepResult
from fedbo.actors.lazy_records import LazyRecords
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.storage.row_columns import RowColumns
from fedbo.actors.storage.rows import Row, single_rows, table_of_rows
from fedbo.actors.task import StepReport, StepRequest, Task, objective_of
from fedbo.algorithms.base import ORIGINS_IN_ORDER, AgentColumns, Answers, Array, Columnar
from fedbo.algorithms.components.feature_columns import enlarged, offsets
from fedbo.objectives.base import LARGEST_VALUE, Joint, Objective
from fedbo.objectives.space import from_unit

_MOST = 512  # steps whose arrays are worked on together
Unusual = Callable[[StepRequest], StepReport | None]
Commit = tuple[int, tuple[float, ...]]


class SavedColumns(NamedTuple):
    """The agents in columns as a checkpoint holds them: each array is `(k,)`, but for the `state` of the algorithm."""

    number: Ints
    step: Ints
    evaluated: Ints
    pulled: Ints
    t_n: Ints
    worst: Array
    best: Array
    best_score: Array
    best_step: Ints
    state: Any


_KEPT = SavedColumns._fields[:-1]
_FLOATS = ("worst", "worst_before", "best", "best_score")
_INTS = ("number", "step", "step_before", "lease", "evaluated", "pulled", "t_n", "best_step", "queries", "row")
_FLAGS = ("uncommitted", "speaks", "touched")


class Slots:
    """Numbers of the agents in columns, each `(s,)`.

    - `queries`: points of the last step; `row`: its first row. `uncommitted`: whether it counts only when it is committed.
    - `step_before`, `worst_before`: `step` and `worst` before the last step.
    - `touched`: whether it changed since the last snapshot.

    The other names are those of `AgentState`; `best` is NaN where there is none.
    """

    number: Ints
    step: Ints
    step_before: Ints
    lease: Ints
    evaluated: Ints
    pulled: Ints
    t_n: Ints
    best_step: Ints
    queries: Ints
    row: Ints
    worst: Array
    worst_before: Array
    best: Array
    best_score: Array
    uncommitted: npt.NDArray[np.bool_]
    speaks: npt.NDArray[np.bool_]
    touched: npt.NDArray[np.bool_]

    def __init__(self) -> None:
        for names, kind in ((_INTS, np.int64), (_FLOATS, np.float64), (_FLAGS, np.bool_)):
            for name in names:
                setattr(self, name, np.zeros(0, kind))

    def grow(self, count: int) -> None:
        """Make room for `count` agents."""
        for name in (*_INTS, *_FLOATS, *_FLAGS):
            setattr(self, name, enlarged(getattr(self, name), (count,)))

    def start(self, slots: Ints, numbers: Any) -> None:
        """Begin with agents that have done nothing."""
        for name in (*_INTS, *_FLAGS):
            getattr(self, name)[slots] = 0
        for name in _FLOATS:
            getattr(self, name)[slots] = np.nan
        self.number[slots], self.step[slots] = numbers, -1


class Population:
    """The agents of a host by number; `usual`: time is virtual, so that plain steps may be columns."""

    def __init__(self, task: Task, make: Callable[[int], HostedAgent], usual: bool) -> None:
        self._task = task
        self.objects: LazyRecords[HostedAgent] = LazyRecords(make)
        self.columns = _columns_of(task)
        self.serves = usual and self.columns is not None and _is_plain(task)
        self._targets = frozenset(task.problem.targets) if self.serves else frozenset()
        self.slots, self.rows, self._used = Slots(), RowColumns.empty(task.problem.dim), 0
        self._row_kept = np.zeros(0, bool)
        self._slot: dict[int, int] = {}
        self._free: list[int] = []
        self._objectives: list[Any] = []
        self._loose: list[Row] = []  # of agents that have come back
        self._commits: list[Commit] = []

    def __getitem__(self, number: int) -> HostedAgent:
        """Return an agent as an object, out of the columns."""
        self._settle()
        if number in self._slot:
            self._take_out(number)
        return self.objects[number]

    def __iter__(self) -> Iterator[int]:
        """Return the numbers of all agents that exist."""
        yield from sorted({*self.objects, *self.objects.settled, *self._slot})

    def best(self) -> dict[int, float]:
        """Return the score of the best observation so far of every agent that has one."""
        self._settle()
        found = {agent.number: agent.state.best.score for agent in self.objects.every() if agent.state.best is not None}
        slots = self._slots_of(self._slot)
        slots = slots[~np.isnan(self.slots.best[slots])]
        return found | dict(zip(self.slots.number[slots].tolist(), self.slots.best_score[slots].tolist(), strict=True))

    def best_values(self) -> dict[int, float | None]:
        """Return the known optimum of the objective of every agent that exists."""
        found = {agent.number: agent.objective.best_value for agent in self.objects.every()}
        return found | {number: self._objectives[slot].best_value for number, slot in self._slot.items()}

    # --- steps

    def commit(self, commits: Iterable[Commit]) -> None:
        """Commit the last steps of agents, at the next occasion."""
        self._commits += commits

    def commit_each(self, agents: Ints, begun: Array, ended: Array) -> None:
        """Commit the last steps of these agents, each of one evaluation between these times."""
        self._settle()
        slots = self._slots_of(agents.tolist())
        here = slots >= 0
        for agent, *times in zip(agents[~here].tolist(), begun[~here].tolist(), ended[~here].tolist(), strict=True):
            self.objects[agent].commit(times)
        self._commit(slots[here], begun[here], ended[here])

    def _settle(self) -> None:
        commits, self._commits = self._commits, []
        single = [(agent, *times) for agent, times in commits if len(times) == 2]
        for agent, times in commits if len(single) < len(commits) else ():
            if len(times) == 2:
                continue
            slot = self._slot.get(agent, -1)
            if slot < 0:
                self.objects[agent].commit(times)
            else:
                self._commit_at(slot, times)
        if single:
            columns = np.array(single)
            self.commit_each(columns[:, 0].astype(np.int64), columns[:, 1], columns[:, 2])

    def _commit_at(self, slot: int, times: Sequence[float]) -> None:
        """Commit the step of one agent, of several evaluations."""
        if len(times) and self.slots.uncommitted[slot]:
            rows = self.slots.row[slot] + np.arange(len(times) - 1)
            self.rows.started[rows], self.rows.finished[rows] = times[:-1], times[1:]
        self._commit(np.array([slot]))

    def _commit(self, slots: Ints, begun: Array | None = None, ended: Array | None = None) -> None:
        """Commit the steps of agents that have one, whose evaluations are between these times, if they are given."""
        of = self.slots
        open_ = of.uncommitted[slots]
        slots = slots[open_]
        if begun is not None and ended is not None:
            self.rows.started[of.row[slots]], self.rows.finished[of.row[slots]] = begun[open_], ended[open_]
        counts = of.queries[slots]
        rows, each = np.repeat(of.row[slots], counts) + offsets(counts), np.repeat(slots, counts)
        self._row_kept[rows] = True
        for query in range(int(counts.max(initial=0))):  # the first of equal values is the best
            some = self.rows.query[rows] == query
            slot, row = each[some], rows[some]
            better = ~(self.rows.value[row] <= of.best[slot])
            slot, row = slot[better], row[better]
            of.best[slot], of.best_score[slot] = self.rows.value[row], self.rows.score[row]
            of.best_step[slot] = self.rows.step[row]
        of.uncommitted[slots] = False

    def work(self, requests: StepRequests, unusual: Unusual) -> StepReports | list[StepReport]:
        """Run plain steps of different agents, in columns as far as possible; `unusual` runs the others one by one."""
        self._settle()
        found: list[StepReports | list[StepReport]] = []
        for first in range(0, len(requests.agent), _MOST):
            whole = len(requests.agent) <= _MOST
            some = requests if whole else rows_of(requests, np.arange(first, min(first + _MOST, len(requests.agent))))
            here = self._come_in(some)
            if here.all():
                found.append(self._step(some, unusual))
                continue
            if here.any():
                found.append(self._step(rows_of(some, here), unusual))
            alone = single_requests(rows_of(some, ~here))
            found.append([report for report in map(unusual, alone) if report is not None])
        if len(found) == 1:
            return found[0]
        return [report for part in found for report in (single_reports(part) if isinstance(part, StepReports) else part)]

    def _come_in(self, requests: StepRequests) -> npt.NDArray[np.bool_]:
        """Give each agent a slot that may have one; return which have."""
        if not self.serves:
            return np.zeros(len(requests.agent), bool)
        new = []
        for number, step in zip(requests.agent.tolist(), requests.step.tolist(), strict=True):
            if number in self._slot or number not in self._targets:
                continue
            if number in self.objects or number in self.objects.settled:
                self._put_back(number)
            elif step == 0 and self._begins(number):
                new.append(number)
        if new:
            self._start(new)
        slots = self._slots_of(requests.agent.tolist())
        here = slots >= 0
        here[here] = (requests.step[here] == 0) | (self.slots.t_n[slots[here]] > 0)
        return here

    def _step(self, requests: StepRequests, unusual: Unusual) -> StepReports | list[StepReport]:
        """Run steps of agents that have slots."""
        slots = self._slots_of(requests.agent.tolist())
        of = self.slots
        of.touched[slots] = True
        of.lease[slots] = requests.lease
        done = of.uncommitted[slots] & (of.step[slots] >= requests.step)
        if not done.any():
            failed = self._run(requests, slots)
        else:
            failed = np.zeros(len(slots), bool)
            if not done.all():
                failed[~done] = self._run(rows_of(requests, ~done), slots[~done])
        if not failed.any():
            return self._reports(slots)
        reports = self._reports(slots[~failed]) if not failed.all() else []
        alone = single_requests(rows_of(requests, failed))
        singles = single_reports(reports) if isinstance(reports, StepReports) else reports
        return singles + [report for report in map(unusual, alone) if report is not None]

    def _run(self, requests: StepRequests, slots: Ints) -> npt.NDArray[np.bool_]:
        """Decide, evaluate and learn; return the agents whose evaluation fails, whose states are as before."""
        of, columns = self.slots, cast(AgentColumns, self.columns)
        self._commit(slots)
        first, begin = requests.step == 0, self._task.problem.dim
        counts = np.full(len(slots), self._task.algorithm.queries)
        parts: list[tuple[npt.NDArray[np.bool_], Array, Any]] = []
        if first.any():
            points = [initial_points(self._task, number) for number in requests.agent[first].tolist()]
            counts[first] = [len(some) for some in points]
            parts.append((first, np.concatenate(points), ORIGINS_IN_ORDER.index("initial")))
        if not first.all():
            asked = rows_of(requests, ~first) if first.any() else requests
            streams = self._task.streams.each(asked.agent, asked.step)
            parts.append((~first, *columns.ask(slots[~first], streams, _answers(asked))))
        x, origin = np.empty((counts.sum(), begin)), np.empty(counts.sum(), np.int8)
        for which, some, code in parts:
            rows = np.repeat(which, counts)
            x[rows], origin[rows] = some, code
        natives = from_unit(self._task.federation.parameters, x)
        each = np.repeat(slots, counts)
        scores = self._scores(each, natives)
        bad = np.zeros(len(of.number), bool)
        bad[each[~(np.abs(scores) <= LARGEST_VALUE)]] = True
        failed = bad[slots]
        if failed.any():
            columns.turn(slots[failed], np.zeros(int(failed.sum()), np.int64), ~first[failed], forth=False)
            keep = ~np.repeat(failed, counts)
            x, origin, natives, scores = x[keep], origin[keep], natives[keep], scores[keep]
            slots, counts, first = slots[~failed], counts[~failed], first[~failed]
            requests = rows_of(requests, ~failed)
        self._learn(requests, slots, counts, RowsMade(x, natives, scores, origin))
        return failed

    def _scores(self, each: Ints, natives: Array) -> Array:
        """Return the score of each agent's objective at its row, NaN where it fails."""
        objectives = [self._objectives[slot] for slot in each.tolist()]
        try:
            kinds = set(map(type, objectives))
            if all(one.is_exact for one in objectives) and len(kinds) == 1:
                return np.asarray(kinds.pop().scores_each(objectives, natives))
            return np.full(len(each), np.nan)
        except Exception:  # one by one, it shows at which one
            return np.full(len(each), np.nan)

    def _learn(self, requests: StepRequests, slots: Ints, counts: Ints, made: RowsMade) -> None:
        of, columns = self.slots, cast(AgentColumns, self.columns)
        each, query = np.repeat(np.arange(len(slots)), counts), offsets(counts)
        number = of.evaluated[slots][each] + query
        values = made.score
        if self._task.noise:
            streams = self._task.streams.each(requests.agent[each], number + 1)
            values = made.score + np.sqrt(self._task.noise) * streams.normals("added noise")
        columns.tell(slots, counts, made.u, values)
        begin = self._used
        self._append(
            RowColumns(
                agent=requests.agent[each].astype(np.int32),
                step=requests.step[each].astype(np.int32),
                query=query.astype(np.int32),
                origin=made.origin,
                x=made.x,
                u=made.u,
                value=values,
                score=made.score,
                t_n=(of.t_n[slots][each] + query + 1).astype(np.int32),
                started=np.zeros(len(each)),
                finished=np.zeros(len(each)),
            )
        )
        starts = np.cumsum(counts) - counts
        of.row[slots], of.queries[slots] = begin + starts, counts
        least = np.minimum.reduceat(values, starts) if len(values) else values
        of.worst_before[slots] = of.worst[slots]
        of.worst[slots] = np.fmin(of.worst[slots], least)
        for name in ("evaluated", "pulled", "t_n"):
            getattr(of, name)[slots] += counts
        of.step_before[slots] = of.step[slots]
        of.step[slots], of.uncommitted[slots] = requests.step, True
        sends = self._task.algorithm.sends
        of.speaks[slots] = requests.speaks & np.array([sends(step) for step in requests.step.tolist()], bool)

    def _append(self, rows: RowColumns) -> None:
        end = self._used + len(rows)
        if end > len(self.rows):
            self.rows.grow(max(end, 2 * len(self.rows), 256))
            self._row_kept = enlarged(self._row_kept, (len(self.rows),))
        for name in RowColumns.__slots__:
            getattr(self.rows, name)[self._used : end] = getattr(rows, name)
        self._row_kept[self._used : end] = False
        self._used = end

    def _reports(self, slots: Ints) -> StepReports | list[StepReport]:
        """Return the reports of the last steps, whose messages are written from the states after them."""
        of = self.slots
        numbers = [getattr(of, name)[slots] for name in ("number", "step", "lease", "queries", "t_n", "pulled")]
        speaks, payload = of.speaks[slots], None
        if speaks.any():
            streams = self._task.streams.each(numbers[0][speaks], numbers[1][speaks])
            payload = cast(AgentColumns, self.columns).outbox(slots[speaks], streams)
        if payload is None or speaks.all():
            return StepReports(*numbers, payload=payload)
        spoken = StepReports(*(column[speaks] for column in numbers), payload=payload)
        silent = StepReports(*(column[~speaks] for column in numbers))
        return single_reports(spoken) + single_reports(silent)

    # --- slots

    def _begins(self, number: int) -> bool:
        """Return whether an agent has initial points, and an objective that is evaluated with those of others."""
        given = self._task.initial.get(number)
        count = self._task.budget_of(number).initial if given is None else len(given)
        return count > 0

    def _slots_of(self, numbers: Iterable[int]) -> Ints:
        get = self._slot.get
        return np.array([get(number, -1) for number in numbers], np.int64)

    def _start(self, numbers: Sequence[int]) -> Ints:
        """Give slots to agents that have done nothing."""
        needed = len(self._slot) + len(numbers)
        columns = cast(AgentColumns, self.columns)
        if needed > len(self.slots.number):
            count = max(needed, 2 * len(self._slot))
            self._free += range(len(self.slots.number), count)
            self.slots.grow(count)
            columns.grow(count)
            self._objectives += [None] * (count - len(self._objectives))
        slots = np.array([self._free.pop() for _ in numbers], np.int64)
        self.slots.start(slots, numbers)
        columns.start(slots)
        world = self._task.streams.within("")
        for number, slot in zip(numbers, slots.tolist(), strict=True):
            self._slot[number] = slot
            self._objectives[slot] = objective_of(self._task.federation, number, world)
        return slots

    def _put_back(self, number: int) -> None:
        """Store an agent in the columns again, if nothing about it is unusual."""
        agent = self.objects[number]
        state = agent.state
        plain = state.decision is None and not state.pending and state.rungs is None and state.failed is None and not state.cut
        if agent.uncommitted is not None or not plain or not state.t_n:
            return
        (slot,) = self._start([number]).tolist()
        if not cast(AgentColumns, self.columns).put(slot, state.algorithm):
            self._release(number)
            return
        of = self.slots
        for name in ("step", "evaluated", "pulled", "t_n"):
            getattr(of, name)[slot] = getattr(state, name)
        of.worst[slot] = np.nan if state.worst is None else state.worst
        if state.best is not None:
            of.best[slot], of.best_score[slot], of.best_step[slot] = state.best
        self._loose += state.rows
        del self.objects[number]

    def _release(self, number: int) -> None:
        slot = self._slot.pop(number)
        self._free.append(slot)
        self._objectives[slot] = None

    def _take_out(self, number: int) -> None:
        """Make an object of an agent in the columns. Its committed rows stay."""
        slot, of, columns = self._slot[number], self.slots, cast(AgentColumns, self.columns)
        agent = self.objects[number]
        agent.state = self._state(slot)
        if of.uncommitted[slot]:
            report = StepReport(number, agent.state.step, int(of.queries[slot]), None, int(of.lease[slot]))
            report.t_n, report.pulled = agent.state.t_n, agent.state.pulled
            if of.speaks[slot]:
                streams = self._task.streams.each(of.number[slot : slot + 1], of.step[slot : slot + 1])
                sent = columns.outbox(np.array([slot]), streams)
                report.payload = sent and {name: array[0] for name, array in sent.items()}
            result = self._result(slot)
            self._turn(np.array([slot]), forth=False)
            agent.uncommitted = UncommittedStep(self._state(slot), report, result)
        agent.saved = agent.committed
        self._release(number)

    def _state(self, slot: int) -> AgentState:
        of = self.slots
        state = AgentState(cast(AgentColumns, self.columns).state(slot))
        for name in ("step", "evaluated", "pulled", "t_n"):
            setattr(state, name, int(getattr(of, name)[slot]))
        if not np.isnan(of.worst[slot]):
            state.worst = float(of.worst[slot])
        if not np.isnan(of.best[slot]):
            state.best = BestObservation(float(of.best[slot]), float(of.best_score[slot]), int(of.best_step[slot]))
        return state

    def _result(self, slot: int) -> StepResult:
        """Return the evaluations of an agent's last step."""
        of = self.slots
        places = of.row[slot] + np.arange(of.queries[slot])
        first = int(of.evaluated[slot] - of.queries[slot])
        queries, records = [], []
        for row in self.rows.take(places).rows(self._task.phase):
            query = Query(row.agent, first + row.query, row.query, np.array(row.x), row.u, row.phase, row.step, row.origin)
            queries.append(query)
            records.append(EvaluationRecord(row.agent, query.number, row.x, row.outcome))
        return StepResult(tuple(queries), tuple(records))

    def _turn(self, slots: Ints, forth: bool) -> None:
        """Undo the last steps of agents, which are not committed, or do them again."""
        of = self.slots
        counts, step, worst = of.queries[slots], of.step[slots], of.worst[slots]
        asked = (of.step_before[slots] if forth else step) > 0
        for name in ("evaluated", "pulled", "t_n"):
            getattr(of, name)[slots] += counts if forth else -counts
        of.step[slots], of.step_before[slots] = of.step_before[slots], step
        of.worst[slots], of.worst_before[slots] = of.worst_before[slots], worst
        cast(AgentColumns, self.columns).turn(slots, counts, asked, forth)

    # --- files

    def unsettle(self) -> None:
        """Mark all agents as changed."""
        self.objects.unsettle()
        self.slots.touched[self._slots_of(self._slot)] = True

    def settle(self) -> None:
        """Mark all agents as written."""
        self.objects.settle()
        self.slots.touched[:] = False

    def changed(self) -> Ints:
        """Return the slots of the agents that have changed, in the order of their numbers."""
        slots = self._slots_of(sorted(self._slot))
        return slots[self.slots.touched[slots]]

    def save(self, slots: Ints) -> SavedColumns:
        """Return the committed states of agents as plain data."""
        self._settle()
        late = slots[self.slots.uncommitted[slots]]
        self._turn(late, forth=False)
        saved = [getattr(self.slots, name)[slots] for name in _KEPT]
        found = SavedColumns(*saved, state=cast(AgentColumns, self.columns).save(slots))
        self._turn(late, forth=True)
        return found

    def load(self, saved: SavedColumns, numbers: Iterable[int]) -> None:
        """Store those of these agents that `save` returned, in place of what is known of them."""
        wanted, known = frozenset(numbers), saved.number.tolist()
        for number in known:
            if number in self._slot:
                self._release(number)
            for some in (self.objects, self.objects.settled):
                some.pop(number, None)
        slots = self._start(known)
        for name, column in zip(_KEPT, saved, strict=False):
            getattr(self.slots, name)[slots] = column
        cast(AgentColumns, self.columns).load(slots, saved.state)
        for number in known:
            if number not in wanted:
                self._release(number)

    def take_rows(self, lossy: bool) -> tuple[list[Row], RowColumns | None]:
        """Remove and return the rows that may be written: those of objects by agent, and those in columns."""
        self._settle()
        agents = self.objects
        loose = [row for number in sorted(agents) for row in agents[number].take(lossy)]
        loose, self._loose = sorted([*self._loose, *loose], key=lambda row: row.agent), []
        kept = self._row_kept[: self._used]
        if not kept.any():
            return loose, None
        found = self.rows.take(np.flatnonzero(kept))
        left = np.flatnonzero(~kept)
        left = left[self._is_last(left)]
        of = self.slots
        self.rows, self._used = self.rows.take(left), len(left)
        slots = self._slots_of(self._slot)
        slots = slots[of.uncommitted[slots]]
        of.row[slots] = np.searchsorted(left, of.row[slots])
        self._row_kept = np.zeros(len(left), bool)
        return loose, found.take(np.argsort(found.agent, kind="stable"))

    def table_of(self, loose: Sequence[Row], columns: RowColumns | None) -> pa.Table:
        """Return rows of `take_rows` as one table, by agent, and by step where an agent has rows of both kinds."""
        if columns is None:
            return table_of_rows(loose)
        table = columns.table(self._task.phase)
        if not loose:
            return table
        both = pa.concat_tables([table, table_of_rows(loose)])
        return both.take(np.lexsort([both["step"].to_numpy(), both["agent"].to_numpy()]))

    def _is_last(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """Return which rows are of the last step of an agent in the columns, and not of one that was taken out."""
        slots = self._slots_of(self.rows.agent[rows].tolist())
        of = self.slots
        behind = rows - of.row[slots]
        return (slots >= 0) & of.uncommitted[slots] & (behind >= 0) & (behind < of.queries[slots])

    def all_rows(self) -> list[Row]:
        """Return the committed rows that are not written yet, in the order in which they would be."""
        self._settle()
        held = [row for agent in self.objects.every() for row in agent.state.rows]
        rows = [*single_rows(self._loose), *single_rows(held)]
        rows += self.rows.take(np.flatnonzero(self._row_kept[: self._used])).rows(self._task.phase)
        return sorted(rows, key=lambda row: (row.agent, row.step) if self._used else (row.agent,))


class RowsMade(NamedTuple):
    """What steps made: points `u` of the cube and `x` in native units, `(n, d)`; scores and numbers of origins, `(n,)`."""

    u: Array
    x: Array
    score: Array
    origin: npt.NDArray[np.int8]


def _answers(requests: StepRequests) -> Answers | None:
    letters = requests.letters
    if letters is None:
        return None
    return Answers(np.arange(len(requests.agent)) if letters.places is None else letters.places, letters.payload)


def _columns_of(task: Task) -> AgentColumns | None:
    algorithm = task.algorithm
    if not isinstance(algorithm, Columnar) or algorithm.queries is None or not _has_own_columns(type(algorithm)):
        return None
    return algorithm.columns(task.problem, task.streams)


def _is_plain(task: Task) -> bool:
    """Return whether steps of a task are plain as far as it says: what it has besides makes them unusual."""
    return (
        task.checkpoint == 1
        and task.early_end is None
        and task.stopping is None
        and task.reported is None
        and task.history is None
        and not task.problem.pulls
        and not task.overlaps
        and _evaluates_together(objective_of(task.federation, 0, task.streams.within("")))
    )


def _evaluates_together(objective: Objective) -> bool:
    """Return whether objectives like this one are evaluated for several agents at once, and without noise of their own."""
    kind = type(objective)
    if not hasattr(kind, "scores_each"):
        return False
    return _agree(kind, "scores_each", ("score", "evaluate")) and cast(Joint, objective).is_exact


@cache
def _has_own_columns(kind: type) -> bool:
    return _agree(kind, "columns", ("agent_init", "ask", "tell", "outbox"))


def _agree(kind: type, joint: str, singles: Sequence[str]) -> bool:
    """Return whether no subclass has a rule of its own for one agent, which the inherited one for several would ignore."""
    order = [next((at for at, base in enumerate(kind.__mro__) if name in vars(base)), -1) for name in (joint, *singles)]
    return all(order[0] <= at for at in order[1:])
