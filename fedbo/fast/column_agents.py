"""Plain steps of many agents at once, in columns: decide, evaluate, learn, report, commit, undo and save."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.actors.agent import initial_points
from fedbo.actors.agent_state import AgentState, BestObservation, UncommittedStep
from fedbo.actors.columns import Ints, StepReports, StepRequests, rows_of, single_reports
from fedbo.actors.evaluation.step import StepResult
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.storage.rows import Row
from fedbo.actors.task import StepReport, Task, objective_of
from fedbo.algorithms.base import ORIGINS_IN_ORDER, AnswerColumns, Array, StateColumns
from fedbo.algorithms.components.feature_columns import offsets
from fedbo.algorithms.returned import CheckedColumns, Steps
from fedbo.fast.row_columns import RowColumns, RowLog
from fedbo.fast.slots import KEPT, Flags, SavedColumns, SingleStates, Slots
from fedbo.fast.together import JointEvaluator
from fedbo.objectives.space import from_unit


class ColumnAgents:
    """Agents in columns: the numbers `of` each slot, the `states` of the algorithm, and the `rows` not written yet."""

    def __init__(self, task: Task, states: StateColumns | None, evaluator: JointEvaluator) -> None:
        self._task, self._evaluator, self.of, self.rows = task, evaluator, Slots(), RowLog(task.problem.dim)
        self.single = SingleStates(task, self.of) if states is None else None
        own: Any = self.single if states is None else states
        self.states, self._checked = own, CheckedColumns(task.algorithm, own, task.problem)
        self._sends = cache(task.algorithm.sends)
        self._objectives: list[Any] = []
        self._free: list[int] = []

    def start(self, numbers: Sequence[int]) -> Ints:
        """Assign slots to agents that have done nothing."""
        slots = self._assign(numbers)
        self.states.start(slots)
        return slots

    def _assign(self, numbers: Sequence[int]) -> Ints:
        """Assign slots to agents whose states follow."""
        if len(self._free) < len(numbers):
            held = len(self._objectives)
            count = max(held + len(numbers), min(held + held // 2, self._task.problem.n_agents))
            self._free += range(count - 1, held - 1, -1)
            self.of.grow(count)
            self.states.grow(count)
            self._objectives += [None] * (count - held)
        slots = np.array([self._free.pop() for _ in numbers], np.int64)
        self.of.start(slots, numbers)
        world = self._task.streams.within("")  # an agent's objective is the same in all its tasks
        for number, slot in zip(numbers, slots.tolist(), strict=True):
            self._objectives[slot] = objective_of(self._task.federation, number, world)
        return slots

    def initial_count(self, number: int) -> int:
        """Count the initial points of an agent."""
        given = self._task.initial.get(number)
        return self._task.budget_of(number).initial if given is None else len(given)

    def release(self, slot: int) -> None:
        """Free a slot."""
        self._free.append(slot)
        self._objectives[slot] = None

    def best_value(self, slot: int) -> float | None:
        """Return the known optimum of an agent's objective."""
        found: float | None = self._objectives[slot].best_value
        return found

    def commit(self, slots: Ints, begun: Array | None = None, ended: Array | None = None) -> None:
        """Commit the steps of agents that have one; `begun (k,)` and `ended (k,)` are times of single evaluations, if given."""
        of = self.of
        late = of.uncommitted[slots]
        if not late.any():
            return
        if not late.all():
            slots = slots[late]
            begun, ended = (None if times is None else times[late] for times in (begun, ended))
        counts, first, made = of.told[slots], of.row[slots], self.rows.all
        if begun is not None and ended is not None:
            self.rows.time(first, begun, ended)
        for query in range(int(counts.max())):  # the first of equal values is the best
            some = counts > query
            slot, row = slots[some], first[some] + query
            self.rows.keep(row)
            better = ~(made.value[row] <= of.best[slot])
            slot, row = slot[better], row[better]
            of.best[slot], of.best_score[slot], of.best_step[slot] = made.value[row], made.score[row], made.step[row]
        of.uncommitted[slots], of.touched[slots] = False, True
        if self.single is not None:
            self.single.forget(slots)

    def commit_one(self, slot: int, times: Sequence[float]) -> None:
        """Commit the step of one agent; `times` are the start of its evaluations and the end of each, if given."""
        if len(times) and self.of.uncommitted[slot]:
            self.rows.time(self.of.row[slot] + np.arange(len(times) - 1), np.array(times[:-1]), np.array(times[1:]))
        self.commit(np.array([slot]))

    def run(self, requests: StepRequests, slots: Ints) -> Flags:
        """Run plain steps; return the agents whose evaluation or method fails, whose states are as before.

        A step that is done already is not run again: only the lease of its report is new.
        """
        of = self.of
        of.touched[slots], of.lease[slots] = True, requests.lease
        due = ~(of.uncommitted[slots] & (of.step[slots] >= requests.step))
        failed = np.zeros(len(slots), bool)
        if due.all():
            return self._run(requests, slots)
        if due.any():
            failed[due] = self._run(rows_of(requests, due), slots[due])
        return failed

    def _run(self, requests: StepRequests, slots: Ints) -> Flags:
        """Decide, evaluate and learn; return the agents whose decision is not plain, or whose evaluation or method fails."""
        self.commit(slots)
        left, later = np.zeros(len(slots), bool), requests.step > 0
        if self.single is not None and later.any():
            left[later] = self.single.ask(slots[later], rows_of(requests, later))
        if left.any():
            requests, slots = rows_of(requests, ~left), slots[~left]
        if len(slots):
            left[~left] = self._evaluate(requests, slots)
        return left

    def _evaluate(self, requests: StepRequests, slots: Ints) -> Flags:
        """Evaluate and learn; return the agents whose evaluation or method fails, whose states are as before."""
        of, states = self.of, self.states
        first = requests.step == 0
        counts = np.full(len(slots), self._task.algorithm.queries)
        parts: list[tuple[Flags, Array, Any]] = []
        if first.any():
            points = [initial_points(self._task, number) for number in requests.agent[first].tolist()]
            counts[first] = [len(some) for some in points]
            parts.append((first, np.concatenate(points), ORIGINS_IN_ORDER.index("initial")))
        if not first.all():
            asked, own = (rows_of(requests, ~first), slots[~first]) if parts else (requests, slots)
            parts.append((~first, *(self._asked(asked, own) if self.single is None else self.single.decided(own))))
        x, origin = np.empty((counts.sum(), self._task.problem.dim)), np.empty(counts.sum(), np.int8)
        none = np.zeros(len(x))
        for which, some, code in parts:
            rows = which.repeat(counts) if len(parts) > 1 else slice(None)
            x[rows], origin[rows] = some, code
        each, query = np.arange(len(slots)).repeat(counts), offsets(counts)
        numbers = (requests.agent[each], requests.step[each], query, of.t_n[slots][each] + query + 1)
        agent, step, point, t_n = (one.astype(np.int32) for one in numbers)
        native = from_unit(self._task.federation.parameters, x)
        given = {"agent": agent, "step": step, "query": point, "origin": origin, "x": native, "u": x, "t_n": t_n}
        made = RowColumns(**given, value=none, score=none, started=none, finished=none)
        objectives = [self._objectives[slot] for slot in slots[each].tolist()]
        plain = self._evaluator.evaluate(objectives, made, of.evaluated[slots][each] + query)
        failed = np.zeros(len(slots), bool)
        failed[each[~plain]] = True
        if failed.any():
            states.turn(slots[failed], np.zeros(int(failed.sum()), np.int64), ~first[failed], forth=False)
            made, requests = made.take(~failed[each]), rows_of(requests, ~failed)
            slots, counts = slots[~failed], counts[~failed]
        if len(slots):
            failed[~failed] = self._learn(requests, slots, counts, made)
        return failed

    def _asked(self, requests: StepRequests, slots: Ints) -> tuple[Array, npt.NDArray[np.int8]]:
        streams = self._task.streams.each(requests.agent, requests.step)
        return self._checked.ask(slots, streams, _answers(requests), Steps(requests.agent, requests.step))

    def _learn(self, requests: StepRequests, slots: Ints, counts: Ints, made: RowColumns) -> Flags:
        """Pass observations to the algorithm, and store them as rows that do not count yet; return the agents that fail."""
        failed = np.zeros(len(slots), bool)
        if self.single is None:
            self.states.tell(slots, counts, made.u, made.value)
        elif (failed := self.single.learn(slots, requests, counts, made, self._speak(requests))).any():
            made, requests = made.take(~failed.repeat(counts)), rows_of(requests, ~failed)
            slots, counts = slots[~failed], counts[~failed]
        self._enter(requests, slots, counts, made, counts)
        return failed

    def _speak(self, requests: StepRequests) -> Flags:
        """Return which steps end with a message."""
        sends: Flags = requests.speaks & np.array(list(map(self._sends, requests.step.tolist())), bool)
        return sends

    def _enter(self, requests: StepRequests, slots: Ints, counts: Ints, made: RowColumns, told: Ints) -> None:
        """Enter steps that decided on `counts (k,)` points and learned from `told (k,)` rows, which are those `made`."""
        of = self.of
        of.step_before[slots], of.step[slots] = of.step[slots], requests.step
        of.row[slots], of.queries[slots], of.told[slots] = self.rows.append(made) + told.cumsum() - told, counts, told
        of.worst_before[slots] = of.worst[slots]
        np.fmin.at(of.worst, slots.repeat(told), made.value)
        for name, more in (("evaluated", counts), ("pulled", counts), ("t_n", told)):
            getattr(of, name)[slots] += more
        of.uncommitted[slots], of.speaks[slots] = True, self._speak(requests)

    def reports(self, slots: Ints) -> StepReports | list[StepReport]:
        """Return the reports of the last steps, whose messages are written from the states after them."""
        of = self.of
        numbers = {name: getattr(of, name)[slots] for name in ("step", "lease", "queries", "t_n", "pulled")}
        numbers["agent"] = of.number[slots]
        speaks, payload = of.speaks[slots], None
        if speaks.any():
            if self.single is not None:
                reports = single_reports(StepReports(**numbers))
                for place, one in zip(speaks.nonzero()[0].tolist(), self.single.messages(slots[speaks]), strict=True):
                    reports[place].payload = one
                return reports
            steps = Steps(numbers["agent"][speaks], numbers["step"][speaks])
            payload = self._checked.outbox(slots[speaks], self._task.streams.each(*steps), steps)
        if payload is None or speaks.all():
            return StepReports(**numbers, payload=payload)
        spoken = StepReports(**{name: column[speaks] for name, column in numbers.items()}, payload=payload)
        silent = StepReports(**{name: column[~speaks] for name, column in numbers.items()})
        return single_reports(spoken) + single_reports(silent)

    def put(self, number: int, state: AgentState) -> int | None:
        """Store an agent with this committed state; return its slot, None where the columns cannot hold it."""
        plain = state.decision is None and not state.pending and state.rungs is None and state.failed is None and not state.cut
        if not plain or not state.t_n:
            return None
        slot = int(self._assign([number])[0])
        if not self.states.put(slot, state.algorithm):
            self.release(slot)
            return None
        of = self.of
        for name in ("step", "evaluated", "pulled", "t_n"):
            getattr(of, name)[slot] = getattr(state, name)
        of.worst[slot] = np.nan if state.worst is None else state.worst
        if state.best is not None:
            of.best[slot], of.best_score[slot], of.best_step[slot] = state.best
        return slot

    def take(self, slot: int) -> tuple[AgentState, UncommittedStep | None]:
        """Remove an agent; return its state, and its step that is not committed. Its committed rows stay."""
        state, uncommitted, of = self._state(slot), None, self.of
        if of.uncommitted[slot]:
            reports = self.reports(np.array([slot]))
            (report,) = single_reports(reports) if isinstance(reports, StepReports) else reports
            result = self._result(slot)
            self._turn(np.array([slot]), forth=False)
            uncommitted = UncommittedStep(self._state(slot), report, result)
        of.uncommitted[slot] = False
        self.release(slot)
        return state, uncommitted

    def _state(self, slot: int) -> AgentState:
        of = self.of
        state = AgentState(self.states.state(slot)) if self.single is None else self.single.state(slot)
        for name in ("step", "evaluated", "pulled", "t_n"):
            setattr(state, name, int(getattr(of, name)[slot]))
        if not np.isnan(of.worst[slot]):
            state.worst = float(of.worst[slot])
        if not np.isnan(of.best[slot]):
            state.best = BestObservation(float(of.best[slot]), float(of.best_score[slot]), int(of.best_step[slot]))
        return state

    def _result(self, slot: int) -> StepResult:
        """Return the evaluations of an agent's last step."""
        of = self.of
        places = of.row[slot] + np.arange(of.told[slot])
        first = int(of.evaluated[slot] - of.queries[slot])
        rows = self.rows.all.take(places).rows(self._task.phase)
        queries = [query_of(row, first + row.query) for row in rows]
        pairs = zip(queries, rows, strict=True)
        records = [EvaluationRecord(row.agent, one.number, row.x, row.outcome) for one, row in pairs]
        for record, row in zip(records, rows, strict=True):
            record.started, record.finished = row.started, row.finished
        return StepResult(tuple(queries), tuple(records))

    def _turn(self, slots: Ints, forth: bool) -> None:
        """Undo the last steps of agents, which are not committed, or do them again."""
        of = self.of
        counts, told, step, worst = of.queries[slots], of.told[slots], of.step[slots], of.worst[slots]
        asked = (of.step_before[slots] if forth else step) > 0
        for name, more in (("evaluated", counts), ("pulled", counts), ("t_n", told)):
            getattr(of, name)[slots] += more if forth else -more
        of.step[slots], of.step_before[slots] = of.step_before[slots], step
        of.worst[slots], of.worst_before[slots] = of.worst_before[slots], worst
        self.states.turn(slots, told, asked, forth)

    def save(self, slots: Ints) -> SavedColumns:
        """Return the committed states of agents as plain data."""
        late = slots[self.of.uncommitted[slots]]
        self._turn(late, forth=False)
        columns: dict[str, Any] = {name: getattr(self.of, name)[slots] for name in KEPT}
        found = SavedColumns(**columns, state=self.states.save(slots))
        self._turn(late, forth=True)
        return found

    def load(self, saved: SavedColumns) -> Ints:
        """Assign slots to the agents that `save` returned."""
        slots = self._assign(saved.number.tolist())
        for name, column in zip(KEPT, saved, strict=False):
            getattr(self.of, name)[slots] = column
        self.states.load(slots, saved.state)
        return slots

    def take_rows(self, slots: Ints) -> RowColumns | None:
        """Remove and return the committed rows by agent; `slots` are those of all agents."""
        of = self.of
        late = slots[of.uncommitted[slots]]
        told = of.told[late]
        found = self.rows.take_kept(np.repeat(of.row[late], told) + offsets(told))
        of.row[late] = np.cumsum(told) - told
        return found


def query_of(row: Row, number: int) -> Query:
    """Return the query of an evaluation with this number."""
    query = Query(row.agent, number, row.query, np.array(row.x), row.u)
    query.phase, query.step, query.origin = row.phase, row.step, row.origin
    return query


def _answers(requests: StepRequests) -> AnswerColumns | None:
    letters = requests.letters
    if letters is None:
        return None
    return AnswerColumns(np.arange(len(requests.agent)) if letters.places is None else letters.places, letters.payload)
