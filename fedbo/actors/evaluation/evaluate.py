"""One evaluation of an objective, in whichever process it is made."""

from __future__ import annotations

import numpy as np

from fedbo.actors.storage.evaluations import NAN, Pulls
from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Measured, MultiFidelity, Objective, observe


def evaluate(
    objective: Objective, x: Array, streams: Streams, pulls: Pulls | None = None, fidelity: int | None = None
) -> tuple[float, float]:
    """Give one observation, or the mean of several, and the score by which it is judged; at the largest fidelity if at none."""
    if fidelity is not None:
        assert isinstance(objective, MultiFidelity), "a study whose objectives declare no fidelity has no stopper"
        value, exact = objective.evaluate_at(x, fidelity, streams.rng("evaluation")), objective.score_at(x, fidelity)
        return float(value), float(value if exact is None else exact)
    if pulls is not None:
        return _mean(objective, x, streams, pulls)
    seen = objective.evaluate(x, streams.rng("evaluation"))
    value = seen if isinstance(seen, Measured) else float(seen)
    score = objective.score(x)
    return value, float(value if score is None else score)


def _mean(objective: Objective, x: Array, streams: Streams, pulls: Pulls) -> tuple[float, float]:
    """Give the mean of several observations and its score; all of one point's draws come from one stream."""
    seen = observe(objective, x, pulls.times, streams.rng("evaluation"))
    if not np.isfinite(seen).all():  # which clipping would hide
        return NAN, NAN
    score = objective.score(x)
    score = float(seen.mean()) if score is None else float(score)
    if pulls.noise:
        # The stream of the noise of single evaluations, so that one pull sees what one evaluation does.
        noise = streams.at(streams.step + 1).rng("added noise").standard_normal(pulls.times)
        seen = seen + np.sqrt(pulls.noise) * noise
    if pulls.clip is not None:
        seen = np.clip(seen, *pulls.clip)
    return float(seen.mean()), score
