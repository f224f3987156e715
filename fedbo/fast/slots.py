"""The bookkeeping of the agents in columns: one number for each agent in each column, by slot."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.columns import Ints
from fedbo.algorithms.base import Array
from fedbo.algorithms.components.feature_columns import enlarged


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


KEPT = SavedColumns._fields[:-1]
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
