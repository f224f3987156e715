"""The models of several metrics: one Gaussian process for each, in the coordinates that the first objective learns.

Values are transformed by a power and standardised for each metric and agent, so that no metric rules by its units. Margins are
transformed by sign(y) log(1 + |y| / s), s their median size, which keeps the bound at 0 (Eriksson and Poloczek 2021, "bilog").
No values are clipped: a point that is bad in one metric may be on the front, or the only one that keeps a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.algorithms.components.several import Several, scoped
from fedbo.algorithms.components.surrogate import WARPED, LocalState, Surrogate
from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed
from fedbo.surrogates.gp import POWERS, median, warp_like

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
