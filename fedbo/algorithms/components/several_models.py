"""The models of several metrics: one Gaussian process for each, in the coordinates that the first objective learns.

Values are transformed by a power and standardised for each metric and agent, so that no metric rules by its units. Margins are
transformed by sign(y) log(1 + |y| / s), s their median size, which keeps the bound at 0 (Eriksson and Poloczek 2021, "bilog").
No values are clipped: a point that is bad in one metric may be on the front, or the only one that keeps a bound.

Expected improvement decides by them: constrained, or of the hypervolume of two objectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from fedbo.algorithms.base import Array, Decision, Problem
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.draw_search import CENTRES, Judge
from fedbo.algorithms.components.inner_search import maximise_several
from fedbo.algorithms.components.several import Several, scoped
from fedbo.algorithms.components.surrogate import WARPED, LocalState, Surrogate, first_point
from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed
from fedbo.surrogates.gp import POWERS, Posterior, mean, median, warp_like
from fedbo.surrogates.several import SeveralCriterion, Strips, strips

LINEAR = (1.0,)  # the powers of margins: another one would move what is near the bound
Own = TypeVar("Own", bound=Surrogate)


@lru_cache(maxsize=64)
def unclipped(own: Own) -> Own:
    """Return the settings of a surrogate without clipping."""
    return replace(own, clip=0.0)


def resolved_margins(margins: Array, known: Array) -> Array:
    """Transform margins `(k,)` by the transform of those that an agent knows, `(n,)`; signs stay."""
    size = median(np.abs(known)) if len(known) else 1.0
    return np.sign(margins) * np.log1p(np.abs(margins) / (size or 1.0))


def fitted(own: Surrogate, several: Several, streams: Streams) -> tuple[LocalState, ...]:
    """Fit the process of each metric when enough observations have arrived; values of margins are transformed.

    The states are those to decide by: failed points are observations of supposed values.
    """
    known: list[LocalState] = []
    for metric, state in enumerate(several.states):
        known.append(state.cautious())
        if metric >= several.objectives:
            known[-1] = changed(known[-1], y=resolved_margins(known[-1].y, state.y))
        along, powers = (known[0], POWERS if metric < several.objectives else LINEAR) if metric else (None, POWERS)
        known[-1] = own.fit(known[-1], scoped(streams, metric), along, powers)
    return tuple(known)


def with_fits(states: Sequence[LocalState], known: Sequence[LocalState]) -> tuple[LocalState, ...]:
    """Return the states with the hyperparameters and coordinates of others, and their own values."""
    return tuple(
        changed(state, hyper=fit.hyper, fitted=fit.fitted, power=fit.power, axes=fit.axes)
        for state, fit in zip(states, known, strict=True)
    )


def standard(own: Surrogate, known: LocalState, values: Array) -> Array:
    """Turn values `(k,)` of a metric into those of its standardised model; margins are given transformed."""
    if known.hyper is None:  # the surrogate "features" of `ts`
        if not (own.standardise and len(known.y)):
            return values
        return np.asarray((values - known.y.mean()) / (known.y.std() or 1.0))
    if own.kind(known.dim) in WARPED:
        values = warp_like(values, known.y, known.power)
    return (values - known.hyper.offset) / known.hyper.scale


def standard_units(own: Surrogate, several: Several, known: Sequence[LocalState]) -> tuple[Array, Array, Array]:
    """Return all known metrics `(n, k)`, references `(m,)` and thresholds `(c,)` in units of the models."""
    m, columns = several.objectives, []
    for metric, state in enumerate(known):
        column = several.values[:, metric]
        if metric >= m:
            column = resolved_margins(column, column[~np.isnan(column)])
        columns.append(standard(own, state, column))
    references = [float(standard(own, state, np.array([r]))[0]) for state, r in zip(known, several.references, strict=False)]
    thresholds = [float(standard(own, state, np.zeros(1))[0]) for state in known[m:]]
    return np.column_stack(columns), np.array(references), np.array(thresholds)


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
    return np.column_stack([mean(each, u) for each in posteriors])
