"""Maximisation of draws and acquisitions: over the unit cube, or over the points that can be evaluated in a typed space.

In a typed space whole numbers and categories are rounded inside the acquisition: what is compared are its values at points that
would be evaluated, after rounding, and not those of the points before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.acquisition import (
    Criterion,
    log_expected_improvement,
    maximise_criterion,
    prediction,
    upper_confidence_bound,
)
from fedbo.surrogates.draws import Draw, derivatives, message_function, value
from fedbo.surrogates.features import Features
from fedbo.surrogates.maximise import MaximiserSettings, maximise, maximise_each, maximise_function, with_curvature
from fedbo.surrogates.posterior import Posterior
from fedbo.surrogates.projected import ProjectedSpace, maximise_projected


def maximise_draw(
    draw: Draw, local: LocalState, coordinates: str | tuple[str, ...], streams: Streams, extra: Array | None = None
) -> Array:
    """Give the point `(d,)`, in coordinates, where a draw is largest; `extra (e, d)` are further starts."""
    dim = local.u.shape[1]
    if local.lattice is None:
        return maximise(draw, maximiser_rng(dim, streams), dim, extra=extra)[0]
    return maximise_projected(partial(value, draw), derivatives(draw), _projected(local, coordinates), local.u)[0]


def maximise_draws(
    features: Features, omega: Array, local: Sequence[LocalState], coordinates: str, streams: Sequence[Streams]
) -> Array:
    """Give the points `(k, d)`, in coordinates, where the functions with weights `omega (k, m)` are largest."""
    if len(features.frequencies[0]) <= 3 and features.normalise and all(one.lattice is None for one in local):
        return maximise_each(features, omega)
    each = zip(omega, local, streams, strict=True)
    return np.array([maximise_draw(message_function(features, weights), one, coordinates, own) for weights, one, own in each])


def maximise_acquisition(
    function: Callable[[Array], tuple[Array, Array]],
    local: LocalState,
    coordinates: str | tuple[str, ...],
    streams: Streams,
    how: MaximiserSettings,
) -> Array:
    """Give the point `(d,)`, in coordinates, where an acquisition is largest: values `(n,)` and gradients `(n, d)`."""
    dim = local.u.shape[1]
    if local.lattice is None:
        return maximise_function(function, maximiser_rng(dim, streams), dim, how, extra=local.u)[0]

    def values(u: Array) -> Array:
        return function(u)[0]

    return maximise_projected(values, with_curvature(function), _projected(local, coordinates), local.u)[0]


def maximise_posterior(
    posterior: Posterior, criterion: Criterion, local: LocalState, coordinates: str | tuple[str, ...], streams: Streams
) -> Array:
    """Give the point `(d,)`, in coordinates, where a criterion of a Gaussian process is largest."""
    if local.lattice is None:
        return maximise_criterion(posterior, criterion, streams.rng("maximiser"))[0]

    def function(u: Array) -> tuple[Array, Array]:
        at = prediction(posterior, u)
        if criterion.bounding:
            return upper_confidence_bound(at, criterion.level)
        return log_expected_improvement(at, criterion.level)

    return maximise_acquisition(function, local, coordinates, streams, MaximiserSettings())


def maximiser_rng(dim: int, streams: Streams) -> np.random.Generator | None:
    """Give the maximiser's random stream where it needs one, beyond three inputs."""
    return streams.rng("maximiser") if dim > 3 else None


def _projected(local: LocalState, coordinates: str | tuple[str, ...]) -> ProjectedSpace:
    assert local.lattice is not None
    return ProjectedSpace(local.lattice, partial(to_coordinates, name=coordinates), partial(from_coordinates, name=coordinates))
