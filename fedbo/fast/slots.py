"""The bookkeeping of the agents in columns: one number for each agent in each column, by slot.

Where a method has no columns, so are the states of its agents, and its functions are called for one agent after another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.agent_state import AgentState
from fedbo.actors.columns import Ints, StepRequests, single_requests
from fedbo.actors.task import Task
from fedbo.algorithms.base import ORIGINS_IN_ORDER, Array, Decision, Payload
from fedbo.algorithms.components.feature_columns import enlarged
from fedbo.algorithms.returned import asked, outgoing, updated
from fedbo.fast.row_columns import RowColumns
from fedbo.settings.own_code import ends_process, note_step


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


Flags = npt.NDArray[np.bool_]
KEPT = SavedColumns._fields[:-1]
_FLOATS = ("worst", "worst_before", "best", "best_score")
_INTS = ("number", "step", "step_before", "lease", "evaluated", "pulled", "t_n", "best_step", "queries", "told", "row")
_FLAGS = ("uncommitted", "speaks", "touched")


class Slots:
    """Numbers of the agents in columns, each `(s,)`.

    - `queries`: points of the last step; `told`: observations that it learned from; `row`: the first row of these.
    - `uncommitted`: whether the last step counts only when it is committed.
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
    told: Ints
    row: Ints
    worst: Array
    worst_before: Array
    best: Array
    best_score: Array
    uncommitted: Flags
    speaks: Flags
    touched: Flags

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


_PLAIN = (None, None, None, False)  # what a plain decision has beside its points and their origin


def is_single(task: Task) -> bool:
    """Check whether a method's decisions, by what it declares, are always of as many points and made of a state alone."""
    method = task.algorithm
    asks_more = getattr(method, "hides", False) or getattr(method, "needs_costs", False)
    return bool(method.queries) and task.problem.lattice is None and not asks_more


class SingleStates:
    """States by slot, each with that before its last step, its decision while it is not told, and its message."""

    def __init__(self, task: Task, of: Slots) -> None:
        self._task, self._of = task, of
        self._states, self._before = list[Any](), list[Any]()
        self._decisions, self._sent = list[Decision | None](), list[tuple[Payload | None] | None]()
        self.says_more = False  # whether a decision has said more than its points and their origin

    def grow(self, count: int) -> None:
        """Make room for `count` agents."""
        for column in (self._states, self._before, self._decisions, self._sent):
            column += [None] * (count - len(column))

    def start(self, slots: Ints) -> None:
        """Store the states before the first evaluation."""
        task = self._task
        for slot, number in zip(slots.tolist(), self._of.number[slots].tolist(), strict=True):
            try:
                self.put(slot, task.algorithm.agent_init(replace(task.problem, agent=number), task.streams.of(number).at(0)))
            except Exception as error:
                note_step(error, number, 0)
                raise

    def put(self, slot: int, state: Any) -> bool:
        """Store an agent's state."""
        self._states[slot] = self._before[slot] = state
        self._decisions[slot] = self._sent[slot] = None
        return True

    def state(self, slot: int) -> AgentState:
        """Return an agent's state, with its decision if it has not learned of the values."""
        state = AgentState(self._states[slot])
        if (decision := self._decisions[slot]) is not None:
            state.decision, state.before_decision = decision, self._before[slot]
        return state

    def ask(self, slots: Ints, requests: StepRequests) -> Flags:
        """Make the decisions of all agents; return which of them fail, or say more than points and their origin."""
        left, task = np.zeros(len(slots), bool), self._task
        for place, (slot, request) in enumerate(zip(slots.tolist(), single_requests(requests), strict=True)):
            streams = task.streams.of(request.agent).at(request.step)
            try:
                decision, own = asked(task.algorithm, self._states[slot], request.inbox, streams, task.problem.dim)
            except BaseException as error:
                if ends_process(error):
                    raise
                left[place] = True  # its agent alone raises the error again
                continue
            self._before[slot], self._states[slot], self._decisions[slot] = self._states[slot], own, decision
            if decision[2:] != _PLAIN:
                left[place] = self.says_more = True
        return left

    def decided(self, slots: Ints) -> tuple[Array, npt.NDArray[np.int8]]:
        """Return the points of the agents' decisions, and the number of each one's origin."""
        decisions = [decision for slot in slots.tolist() if (decision := self._decisions[slot]) is not None]
        origins = np.array([ORIGINS_IN_ORDER.index(one.origin) for one in decisions], np.int8)
        return np.concatenate([one.x for one in decisions]), origins.repeat(self._task.algorithm.queries or 0)

    def learn(self, slots: Ints, requests: StepRequests, counts: Ints, made: RowColumns, speaks: Flags) -> Flags:
        """Pass observations to the method, and write messages; return which agents fail, with the state before the step."""
        first, failed, task = 0, np.zeros(len(slots), bool), self._task
        numbers = (one.tolist() for one in (slots, requests.agent, requests.step, counts, speaks))
        for place, (slot, number, step, count, sends) in enumerate(zip(*numbers, strict=True)):
            decision, own, part, sent = self._decisions[slot], self._states[slot], slice(first, first + count), None
            points, before = (made.u[part].copy(), own) if decision is None else (decision.x, self._before[slot])
            first += count
            try:
                own = updated(task.algorithm, "tell", own, points, made.value[part].copy())
                if sends:
                    payload, own = outgoing(task.algorithm, own, task.streams.of(number).at(step), task.problem)
                    sent = (payload,)
            except BaseException as error:
                if ends_process(error):
                    raise
                own, sent, failed[place] = before, None, True
            self._states[slot], self._before[slot], self._decisions[slot], self._sent[slot] = own, before, None, sent
        return failed

    def messages(self, slots: Ints) -> list[Payload | None]:
        """Return the messages that agents wrote after their last steps."""
        return [payload for slot in slots.tolist() for payload in self._sent[slot] or ()]

    def turn(self, slots: Ints, counts: Ints, asked: Flags, forth: bool) -> None:
        """Undo a step that was told, or do it again; a decision that was not told stays."""
        for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
            if count:
                self._states[slot], self._before[slot] = self._before[slot], self._states[slot]

    def forget(self, slots: Ints) -> None:
        """Forget what was before the last steps, which are committed."""
        for slot in slots.tolist():
            self._before[slot] = self._sent[slot] = None

    def save(self, slots: Ints) -> Any:
        """Return states as plain data."""
        return [self._states[slot] for slot in slots.tolist()]

    def load(self, slots: Ints, saved: Any) -> None:
        """Store what `save` returned."""
        for slot, state in zip(slots.tolist(), saved, strict=True):
            self.put(slot, state)
