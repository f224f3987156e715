"""The decision of expected improvement with several metrics: constrained, or of the hypervolume of two objectives."""

from __future__ import annotations

import numpy as np

from fedbo.algorithms.base import Array, Decision, Problem
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.draw_search import CENTRES, Judge
from fedbo.algorithms.components.inner_search import maximise_several
from fedbo.algorithms.components.several import Several
from fedbo.algorithms.components.several_models import fitted, standard_units, unclipped, with_fits
from fedbo.algorithms.components.surrogate import Surrogate, first_point
from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed
from fedbo.surrogates.gp import Posterior, predict
from fedbo.surrogates.several import SeveralCriterion, Strips, strips


def improve(own: Surrogate, state: Several, streams: Streams, incumbent: str = "mean") -> tuple[Decision, Several]:
    """Maximise the constrained improvement of one objective, or of the hypervolume of two.

    The improvement is over the posterior "mean" or the "observed" values at points that were observed to keep all bounds.
    Pending points count with their expected values, else a promising one would be chosen again.
    """
    if not all(len(each.u) for each in state.states):
        return Decision(first_point(state.states[0], streams), "own"), state
    settings, known, m = unclipped(own), fitted(unclipped(own), state, streams), state.objectives
    seen = [settings.seen(each) for each in known]
    posteriors = tuple(settings.posterior(each) for each in seen)
    observed, references, thresholds = standard_units(settings, state, known)
    u = settings.seen(changed(known[0], u=to_coordinates(state.x[state.complete], own.coordinates))).u
    metrics = observed[state.complete]
    if incumbent == "mean":
        # Not of margins: where a model takes them for noise, its mean keeps the bound nowhere, and no objective would count.
        metrics[:, :m] = _means(posteriors[:m], u)
    waiting = seen[0].waiting
    if waiting is not None and own.pending_values != "ignore":
        u, metrics = np.vstack([u, waiting]), np.vstack([metrics, _means(posteriors, waiting)])
    judge = Judge("pareto", thresholds, np.ones(m), references, np.zeros(m))
    order = judge.order(metrics)
    front = metrics[order, :m][judge.violations(metrics[order]) == 0.0]  # of the feasible points
    over: float | Strips | None = None
    if len(front):
        over = float(front.max()) if m == 1 else strips(front, references)
    criterion = SeveralCriterion(posteriors[:m], posteriors[m:], thresholds, over)
    place = maximise_several(criterion, seen[0], u[order[:CENTRES]], own.coordinates, streams)
    return settings.chosen(place, known[0], streams), state._replace(states=with_fits(state.states, known))


def unsuitable_for_improvement(problem: Problem) -> str:
    """Return why expected improvement does not suit the objectives of a problem; empty where it does."""
    if problem.objectives > 2:
        return f"expected hypervolume improvement is for two objectives, not {problem.objectives}; use 'ts'"
    if problem.objectives > 1 and len(problem.references) != problem.objectives:
        return "expected hypervolume improvement needs a reference for each objective"
    if len(set(problem.weights)) > 1:
        return "expected hypervolume improvement has no weights of objectives; use 'ts', or equal weights"
    return ""


def _means(posteriors: tuple[Posterior, ...], u: Array) -> Array:
    return np.column_stack([predict(each, u)[0] for each in posteriors])
