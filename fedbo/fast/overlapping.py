"""Plain steps of many agents of which evaluations overlap: a step decides, and learns from those that have ended by its end.

An evaluation is made with its decision, and is under way until the coordinator says that it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.actors.agent_state import AgentState
from fedbo.actors.columns import Ints, StepRequests, rows_of
from fedbo.actors.storage.rows import Row
from fedbo.actors.task import BudgetUse
from fedbo.algorithms.base import Array
from fedbo.algorithms.components.feature_columns import offsets
from fedbo.algorithms.returned import updated
from fedbo.fast.column_agents import ColumnAgents, query_of
from fedbo.fast.row_columns import RowColumns
from fedbo.fast.slots import Flags, SavedColumns
from fedbo.settings.records import changed

UnderWay = dict[tuple[int, int], tuple[int, Row]]  # by step and point: the number of the evaluation, and its row without times


class OverlappingAgents(ColumnAgents):
    """Agents in columns of which evaluations are under way, in the order in which they were decided on."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._left, self._before = dict[int, UnderWay](), dict[int, UnderWay]()  # by slot, now and before the last step

    def _assign(self, numbers: Sequence[int]) -> Ints:
        slots = super()._assign(numbers)
        self._left |= {slot: {} for slot in slots.tolist()}
        return slots

    def run(self, requests: StepRequests, slots: Ints) -> Flags:
        """Run steps that are over with the evaluations that ended; return the other agents, and those that fail.

        A step that was done already is among them, since other evaluations may have ended than was foreseen.
        """
        of = self.of
        of.touched[slots], of.lease[slots] = True, requests.lease
        left = of.uncommitted[slots] & (of.step[slots] >= requests.step)
        left |= ~np.array([self._is_over(requests, place, slot) for place, slot in enumerate(slots.tolist())])
        if not left.all():
            left[~left] = self._run(rows_of(requests, ~left), slots[~left])
        return left

    def _is_over(self, requests: StepRequests, place: int, slot: int) -> bool:
        """Check whether a step is over with the ends that its agent is told of, if no evaluation fails."""
        agent, step, ended = requests.agent.item(place), requests.step.item(place), requests.ended
        assert ended is not None
        count, t_n = len(ended[place]), self.of.t_n.item(slot)
        pending = len(self._left[slot]) + (1 if step else self.initial_count(agent))
        least = self._task.least_pending(agent, step, pending, t_n + count, BudgetUse())
        return pending - count < least and all([end.in_time for end in ended[place]])

    def _asked(self, requests: StepRequests, slots: Ints) -> tuple[Array, npt.NDArray[np.int8]]:
        left, none = [self._left[slot].values() for slot in slots.tolist()], np.empty((0, self._task.problem.dim))
        self.states.pending(slots, [np.array([row.u for _, row in each]) if each else none for each in left])
        return super()._asked(requests, slots)

    def _learn(self, requests: StepRequests, slots: Ints, counts: Ints, made: RowColumns) -> Flags:
        """Pass the observations that have ended to the algorithm, one by one, and store their rows."""
        of, decided, first, every = self.of, made.rows(self._task.phase), 0, list[tuple[Row, Any]]()
        numbers = (of.evaluated[slots].repeat(counts) + made.query).tolist()
        assert requests.ended is not None
        for slot, count, ended in zip(slots.tolist(), counts.tolist(), requests.ended, strict=True):
            new = zip(numbers[first : first + count], decided[first : first + count], strict=True)
            left = self._left[slot] | {(row.step, row.query): (number, row) for number, row in new}
            every += [(left.pop((end.step, end.point))[1], end) for end in ended]
            self._before[slot], self._left[slot], first = self._left[slot], left, first + count
        told = np.array(list(map(len, requests.ended)))
        place, rows = offsets(told), RowColumns.of([row for row, _ in every], self._task.problem.dim)
        rows.started, rows.finished = (np.array([getattr(end, name) for _, end in every]) for name in ("started", "finished"))
        rows.t_n = of.t_n[slots].repeat(told) + place + 1
        for which in range(int(told.max())):
            some, one = told > which, place == which
            self.states.tell(slots[some], np.ones(int(some.sum()), np.int64), rows.u[one], rows.value[one])
        self._enter(requests, slots, counts, rows, told)
        return np.zeros(len(slots), bool)

    def put(self, number: int, state: AgentState) -> int | None:
        """Store an agent with this committed state; return its slot, None where the columns cannot hold it."""
        if state.pending:
            return None
        none = np.empty((0, self._task.problem.dim))
        return super().put(number, changed(state, algorithm=updated(self._task.algorithm, "pending", state.algorithm, none)))

    def _state(self, slot: int) -> AgentState:
        state = super()._state(slot)
        state.pending = tuple([query_of(row, number) for number, row in self._left[slot].values()])
        return state

    def _turn(self, slots: Ints, forth: bool) -> None:
        super()._turn(slots, forth)
        for slot in slots.tolist():
            self._left[slot], self._before[slot] = self._before[slot], self._left[slot]

    def save(self, slots: Ints) -> SavedColumns:
        """Return the committed states of agents as plain data."""
        late = self.of.uncommitted[slots].tolist()
        left = [(self._before if before else self._left)[slot] for slot, before in zip(slots.tolist(), late, strict=True)]
        found = super().save(slots)
        return found._replace(state=(found.state, left))

    def load(self, saved: SavedColumns) -> Ints:
        """Assign slots to the agents that `save` returned."""
        state, left = saved.state
        slots = super().load(saved._replace(state=state))
        self._left |= zip(slots.tolist(), left, strict=True)
        return slots
