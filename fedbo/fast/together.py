"""Evaluation of the points of several agents: in one call where their objectives can be, else one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.storage.evaluations import Query
from fedbo.actors.task import Task
from fedbo.algorithms.base import ORIGINS_IN_ORDER, Array
from fedbo.algorithms.streams import Numbers
from fedbo.fast.row_columns import RowColumns
from fedbo.objectives.base import LARGEST_VALUE, Objective


class JointEvaluator:
    """Evaluates points of several agents of a task."""

    def __init__(self, task: Task, evaluator: Evaluator, clock: Callable[[], float]) -> None:
        self._task, self._evaluator, self._clock = task, evaluator, clock

    def evaluate(self, objectives: Sequence[Objective], rows: RowColumns, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Set values and scores of rows, whose evaluations have these numbers; return which are plain: a value and a score.

        The evaluator knows the others when the agents are asked to evaluate them one by one.
        """
        found = _joint_scores(objectives, rows.x)
        if found is not None:
            plain = np.abs(found) <= LARGEST_VALUE
            rows.value, rows.score = found, found
        else:
            plain = self._one_by_one(objectives, rows, numbers)
        if self._task.noise:
            streams = self._task.streams.each(rows.agent.astype(np.int64), numbers + 1)
            rows.value = rows.value + np.sqrt(self._task.noise) * streams.normals("added noise")
        return plain

    def _one_by_one(self, objectives: Sequence[Objective], rows: RowColumns, numbers: Numbers) -> npt.NDArray[np.bool_]:
        records = []
        agents, steps, points, units = rows.agent.tolist(), rows.step.tolist(), rows.query.tolist(), rows.u.tolist()
        for place, (objective, number) in enumerate(zip(objectives, numbers.tolist(), strict=True)):
            query = Query(agents[place], number, points[place], rows.x[place], units[place])
            query.phase, query.step = self._task.phase_of(steps[place]), steps[place]
            query.origin = ORIGINS_IN_ORDER[rows.origin[place]]
            streams = self._task.streams.of(query.agent).at(number)
            records.append(self._evaluator(objective, query, streams, self._clock))
        rows.value = np.array([record.outcome.value for record in records])
        rows.score = np.array([record.outcome.score for record in records])
        usual = [
            one.error is None and one.rungs is None and not one.outcome.metrics and not one.outcome.reports for one in records
        ]
        plain = np.array(usual, bool)
        others = set(rows.agent[~plain].tolist())
        for record in records if others else ():
            if record.agent in others:
                self._evaluator.ahead[record.agent, record.number] = record
        return plain


def _joint_scores(objectives: Sequence[Any], x: Array) -> Array | None:
    """Return the scores `(k,)`, which are the values too; None where they cannot be computed in one call."""
    kinds: set[Any] = set(map(type, objectives))
    if len(kinds) != 1 or not all(map(_is_joint, kinds)) or not all(one.is_exact for one in objectives):
        return None
    try:
        return np.asarray(kinds.pop().scores_each(objectives, x))
    except Exception:  # one by one, it shows at which one
        return None


@cache
def _is_joint(kind: type) -> bool:
    return hasattr(kind, "scores_each") and agree(kind, "scores_each", ("score", "evaluate"))


def agree(kind: type, joint: str, singles: Sequence[str]) -> bool:
    """Return whether no subclass has a rule of its own for one agent, which the inherited one for several would ignore."""
    order = [next((at for at, base in enumerate(kind.__mro__) if name in vars(base)), -1) for name in (joint, *singles)]
    return all(order[0] <= at for at in order[1:])
