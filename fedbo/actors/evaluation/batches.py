"""Batched evaluation: all points of a decision in one call, where the objective supports it, and repeated pulls of a point.

A thousand clients may evaluate a million points in a phase.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array, Decision
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import LARGEST_VALUE, Batched, Objective
from fedbo.objectives.outcome import Outcome
from fedbo.settings.own_code import ends_process


def pull_counts(decision: Decision) -> npt.NDArray[np.int64]:
    """Return how often each point is evaluated, `(q,)`."""
    return np.ones(len(decision.x), dtype=np.int64) if decision.pulls is None else decision.pulls


def cut_to_budget(decision: Decision, left: int) -> tuple[Decision, bool]:
    """Cut a decision from its end to at most `left` evaluations; return it, and whether a point kept only some of its pulls.

    Algorithms count their evaluations themselves, but after a crash one may have lost count.
    """
    pulls = pull_counts(decision)
    if int(pulls.sum()) <= left:
        return decision, False
    kept = np.minimum(pulls, np.maximum(0, left - (np.cumsum(pulls) - pulls)))
    some = kept > 0
    cut = bool((kept[some] < pulls[some]).any())
    return decision._replace(x=decision.x[some], pulls=None if decision.pulls is None else kept[some]), cut


MIN_BATCH = 16  # points in a batch: of fewer, rows cost less than columns


class BatchEvaluation(NamedTuple):
    """The values of all points of a decision, each the mean of its pulls, and their scores, each `(q,)`."""

    values: Array
    scores: Array

    def of(self, point: int) -> Outcome:
        """Return the outcome of one point."""
        return Outcome(float(self.values[point]), float(self.scores[point]))

    @property
    def outcome(self) -> Outcome:
        """Return one outcome whose value and score are arrays of all points."""
        values: Any = self.values
        scores: Any = self.scores
        return Outcome(values, scores)


def evaluate_batch(
    objective: Objective, decision: Decision, natives: Array, noise: float, streams: Streams
) -> BatchEvaluation | None:
    """Evaluate all points; None where the objective evaluates point by point, or some evaluation fails.

    `noise` is the variance of the added noise. All draws come from the stream of the first evaluation.
    """
    if not isinstance(objective, Batched) or not len(natives):
        return None
    pulls = pull_counts(decision)
    try:
        seen = np.asarray(objective.evaluate_points(natives, pulls, streams.rng("evaluation")), dtype=np.float64)
        scores = np.asarray(objective.scores(natives), dtype=np.float64)
    except BaseException as error:  # point by point, it shows at which one
        if ends_process(error):
            raise
        return None
    if seen.shape != (pulls.sum(),) or not (np.abs(seen) <= LARGEST_VALUE).all():
        return None
    if noise:
        # The noise stream of single evaluations, so that a batch of one point draws the same noise.
        seen = seen + np.sqrt(noise) * streams.at(streams.step + 1).rng("added noise").standard_normal(len(seen))
    if decision.clip is not None:
        seen = np.clip(seen, *decision.clip)
    means = np.add.reduceat(seen, np.cumsum(pulls) - pulls) / pulls
    return BatchEvaluation(means, scores)
