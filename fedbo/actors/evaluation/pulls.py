"""Pulls: how often each point of a decision is evaluated, and what is left of a budget that counts them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Decision


def pull_counts(decision: Decision) -> npt.NDArray[np.int64]:
    """Give how often each point is evaluated `(q,)`; ValueError when the decision has no such numbers for its points."""
    pulls = decision.pulls
    if pulls is None:
        return np.ones(len(decision.x), dtype=np.int64)
    if pulls.shape != (len(decision.x),) or pulls.dtype.kind != "i" or (pulls < 1).any():
        raise ValueError(f"pulls of {len(decision.x)} points must be as many whole numbers of at least 1, not {pulls!r}")
    return pulls


def cut_to_budget(decision: Decision, left: int) -> tuple[Decision, bool]:
    """Cut a decision so that `left` evaluations are not exceeded, from its end; say whether its last point has fewer then.

    Algorithms keep count themselves; one that has forgotten some of its evaluations in a crash cannot.
    """
    pulls = pull_counts(decision)
    if int(pulls.sum()) <= left:
        return decision, False
    kept = np.minimum(pulls, np.maximum(0, left - (np.cumsum(pulls) - pulls)))
    some = kept > 0
    cut = bool((kept[some] < pulls[some]).any())
    return decision._replace(x=decision.x[some], pulls=None if decision.pulls is None else kept[some]), cut
