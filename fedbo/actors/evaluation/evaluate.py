"""One evaluation of an objective, in any process."""

from __future__ import annotations

import os
import sys

import numpy as np

from fedbo.actors.storage.evaluations import NAN, Pulls
from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import MultiFidelity, Objective, observe
from fedbo.objectives.outcome import Outcome, outcome_of


def evaluate(
    objective: Objective, x: Array, streams: Streams, pulls: Pulls | None = None, fidelity: int | None = None
) -> Outcome:
    """Return the outcome of one observation, or of the mean of several pulls; at the largest fidelity unless one is set.

    A process that the objective forks ends when the objective returns or raises in it. Otherwise it would run the study too.
    """
    process = os.getpid()
    try:
        return _outcome(objective, x, streams, pulls, fidelity)
    finally:
        if os.getpid() != process:
            error = sys.exception()
            code = error.code if isinstance(error, SystemExit) else int(error is not None)
            os._exit(code if isinstance(code, int) else int(code is not None))


def _outcome(objective: Objective, x: Array, streams: Streams, pulls: Pulls | None, fidelity: int | None) -> Outcome:
    if fidelity is not None:
        assert isinstance(objective, MultiFidelity), "a study whose objectives declare no fidelity has no stopper"
        returned, score = objective.evaluate_at(x, fidelity, streams.rng("evaluation")), objective.score_at(x, fidelity)
        return outcome_of(returned, score, objective)
    if pulls is not None:
        return _mean(objective, x, streams, pulls)
    return outcome_of(objective.evaluate(x, streams.rng("evaluation")), objective.score(x), objective)


def _mean(objective: Objective, x: Array, streams: Streams, pulls: Pulls) -> Outcome:
    """Return the mean of several observations as an outcome. All draws of a point come from one stream."""
    seen = observe(objective, x, pulls.times, streams.rng("evaluation"))
    if not np.isfinite(seen).all():  # which clipping would hide
        return Outcome(NAN)
    score = objective.score(x)
    score = float(seen.mean()) if score is None else float(score)
    if pulls.noise:
        # The stream of the noise of single evaluations, so that one pull sees what one evaluation does.
        noise = streams.at(streams.step + 1).rng("added noise").standard_normal(pulls.times)
        seen = seen + np.sqrt(pulls.noise) * noise
    if pulls.clip is not None:
        seen = np.clip(seen, *pulls.clip)
    return Outcome(float(seen.mean()), score)
