"""All points of a decision in one call, where an objective can do that: a thousand clients ask for a million points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.evaluation.pulls import counted
from fedbo.actors.storage.rows import Batch, Kept, Row, checked
from fedbo.algorithms.base import Array, Decision
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Batched, Objective

LEAST = 16  # points in a batch: of fewer, rows cost less than columns


class Made(NamedTuple):
    """What was seen of every point of a decision, the mean of its pulls, and its score, each `(q,)`."""

    means: Array
    scores: Array

    def of(self, point: int) -> tuple[float, float]:
        """Give those of one point."""
        return float(self.means[point]), float(self.scores[point])

    def batch(self, step: tuple[int, str, int], decision: Decision, natives: Array, t_n: int) -> Batch:
        """Make the rows of a `step` (agent, phase, step) of an agent with `t_n` observations before it."""
        q, pulls, untimed = len(natives), counted(decision), np.zeros(len(natives))
        seen = t_n + np.cumsum(pulls)
        rest = (natives, decision.x, self.means, self.scores, untimed, untimed, seen, pulls)
        return Batch(*step, np.arange(q), checked(decision.origin), *rest, note=decision.note)


class StepObservations(NamedTuple):
    """The observations of a step: the points that succeeded, in ascending order, their values, and the step's rows.

    `evaluated` counts the points with those that were `retried`, and `failed` says what was wrong with evaluations that failed.
    """

    points: npt.NDArray[np.int64]
    values: Array
    rows: tuple[Kept, ...]
    evaluated: int
    retried: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()


def timed(rows: tuple[Kept, ...], times: Sequence[float]) -> tuple[Kept, ...]:
    """Say of rows when their evaluations began and ended: each ended at one of the `times`, of which the first began all."""
    if len(rows) == 1 and isinstance(rows[0], Batch):
        moments = np.array(times)
        return (rows[0]._replace(started=moments[:-1], finished=moments[1:]),)
    ends: Any = zip(rows, times[:-1], times[1:], strict=True)
    return tuple(row._replace(started=started, finished=finished) for row, started, finished in ends)


def highest(kept: Kept) -> Row:
    """Give the row of the largest value, the first of equals."""
    return kept.row(int(np.argmax(kept.value))) if isinstance(kept, Batch) else kept


def made_at_once(objective: Objective, decision: Decision, natives: Array, noise: float, streams: Streams) -> Made | None:
    """Give each point's mean and score; None where the objective evaluates point by point, or some evaluation fails.

    `noise` is the variance of what is added. All draws come from the stream of the first evaluation.
    """
    if not isinstance(objective, Batched) or not len(natives):
        return None
    pulls = counted(decision)
    try:
        seen = np.asarray(objective.evaluate_points(natives, pulls, streams.rng("evaluation")), dtype=np.float64)
        scores = np.asarray(objective.scores(natives), dtype=np.float64)
    except Exception:  # point by point, it shows at which one
        return None
    if seen.shape != (pulls.sum(),) or not np.isfinite(seen).all():
        return None
    if noise:
        seen = seen + np.sqrt(noise) * streams.at(streams.step + 1).rng("added noise").standard_normal(len(seen))
    if decision.clip is not None:
        seen = np.clip(seen, *decision.clip)
    means = np.add.reduceat(seen, np.cumsum(pulls) - pulls) / pulls
    return Made(means, scores)
