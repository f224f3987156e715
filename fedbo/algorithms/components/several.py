"""An agent with several objectives or constraints: one state of the method for each metric, as it has it for one objective.

The metrics are the objectives, to be maximised, and then the margins, which are at least 0 where a bound is kept. Each state is
told the evaluations at which its metric is known. The others count as failures for that metric alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.base import Array, Problem
from fedbo.algorithms.streams import Streams

Tell = Callable[[Any, Array, Array], Any]
Note = Callable[[Any, Array], Any]


class Several(NamedTuple):
    """An agent's state with k = m + c metrics.

    states: the method's states, one for each metric.
    x `(n, d)`: evaluated points of the unit cube.
    values `(n, k)`: the metrics there; NaN where one is not known.
    objectives: m.
    references, weights: those of `Problem`, empty or `m` numbers.
    failed `(f, d)`: points at which nothing is known, since their evaluation failed.
    history_x `(t_n, d)`, history_values `(t_n, k)`: an earlier task.
    """

    states: tuple[Any, ...]
    x: Array
    values: Array
    objectives: int
    references: tuple[float, ...]
    weights: tuple[float, ...]
    failed: Array
    history_x: Array
    history_values: Array

    @property
    def complete(self) -> Any:
        """Return a mask `(n,)` of the evaluations with all metrics."""
        return ~np.isnan(self.values).any(axis=1)


def metrics(problem: Problem) -> int:
    """Count the metrics of a problem, k: objectives and bounds."""
    return problem.objectives + problem.constraints


def is_several(problem: Problem) -> bool:
    """Return whether a problem has more than one objective, or a bound."""
    return metrics(problem) > 1


def scoped(streams: Streams, metric: int) -> Streams:
    """Return the streams of one metric; the first one has those of a method with one objective."""
    return streams.within(f"{streams.scope}metric {metric} ") if metric else streams


def begin(problem: Problem, start: Callable[[Problem], Any]) -> Several:
    """Start without observations, with the outcomes of an earlier task if there are any."""
    k = metrics(problem)
    none, nothing = np.empty((0, problem.dim)), np.empty((0, k))
    columns, history = [(none[:0], none[:0, 0])] * k, (none, nothing)
    if problem.history_x is not None and problem.history_values is not None:
        parts = [problem.history_values] + ([] if problem.history_margins is None else [problem.history_margins])
        known = np.hstack(parts)
        history = (problem.history_x, known)
        columns = [(problem.history_x[rows], known[rows, j]) for j, rows in enumerate(~np.isnan(known.T))]
    alone = replace(problem, objectives=1, constraints=0, references=(), weights=(), history_values=None, history_margins=None)
    states = tuple(start(replace(alone, history_x=x, history_y=y)) for x, y in columns)
    return Several(
        states,
        x=none,
        values=nothing,
        objectives=problem.objectives,
        references=problem.references,
        weights=problem.weights,
        failed=none,
        history_x=history[0],
        history_values=history[1],
    )


def told(several: Several, x: Array, values: Array, tell: Tell, avoid: Note) -> Several:
    """Append the metrics `values (q, k)` at points `x (q, d)`, each to the state of its metric."""
    states = []
    for state, column in zip(several.states, values.T, strict=True):
        rows = ~np.isnan(column)
        states.append(tell(state, x[rows], column[rows]) if rows.any() else state)
    x, known = np.concatenate([several.x, x]), np.concatenate([several.values, values])
    after = several._replace(states=tuple(states), x=x, values=known)
    return avoiding(after, after.failed, avoid) if np.isnan(values).any() else after


def avoiding(several: Several, failed: Array, avoid: Note) -> Several:
    """Record the points `(f, d)` whose evaluations failed, in place of those of the last call."""
    missing = np.isnan(several.values).T
    states = [
        avoid(state, np.concatenate([failed, several.x[rows]])) for state, rows in zip(several.states, missing, strict=True)
    ]
    return several._replace(states=tuple(states), failed=failed)


def noting(several: Several, x: Array, note: Note) -> Several:
    """Record the points `(p, d)` that are being evaluated."""
    return several._replace(states=tuple(note(state, x) for state in several.states))
