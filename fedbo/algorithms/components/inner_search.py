"""Maximisation of draws and acquisitions: over the unit cube, or over the points that can be evaluated in a typed space.

In a typed space whole numbers and categories are rounded inside the acquisition. The search compares its values at the rounded
points, which would be evaluated, and not at the points before rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.components.draw_search import CENTRES, NEAR, SearchBox, Values
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.components.typed_coordinates import embedded, movable, restored
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.acquisition import Criterion, climbing, criterion_values, maximise_criterion, process
from fedbo.surrogates.draws import Draw, compiled_surface, message_function
from fedbo.surrogates.features import Features
from fedbo.surrogates.maximise import ROUGH, maximise, maximise_each, with_curvature
from fedbo.surrogates.newton_ascent import newton_ascent
from fedbo.surrogates.posterior import Posterior
from fedbo.surrogates.projected import ProjectedSpace, maximise_projected, newton
from fedbo.surrogates.several import SeveralCriterion

Surface = Callable[[Array], tuple[Array, Array]]
CLIMBS, STEPS, TOLERANCE = 3, 12, 1e-4  # climbs from either kind of candidates, steps of each, and the gain that ends them


def maximise_draw(
    draw: Draw, local: LocalState, coordinates: str | tuple[str, ...], streams: Streams, extra: Array | None = None
) -> Array:
    """Return the point `(d,)`, in coordinates, where a draw is largest; `extra (e, d)` are further starts."""
    dim = local.u.shape[1]
    if local.lattice is None:
        return maximise(draw, maximiser_rng(dim, streams), dim, extra=extra)[0]
    space, (values, derivatives) = projected(local, coordinates), compiled_surface(draw, dim)
    return maximise_projected(values, newton(derivatives, space), space, local.u)[0]


def maximise_typed_draw(draw: Draw, local: LocalState, space: ProjectedSpace, streams: Streams) -> Array:
    """Return the point `(e,)`, in the surrogate's coordinates, where a draw is largest in a typed space or a part of it."""
    values, derivatives = compiled_surface(draw, local.u.shape[1])
    return maximise_projected(values, newton(derivatives, space), space, local.u, streams.rng("maximiser"))[0]


def maximise_in_cube(features: Features, omega: Array, streams: Iterable[Streams]) -> Array:
    """Return the points `(k, d)`, in coordinates, where the functions with weights `omega (k, m)` are largest in the cube."""
    dim = features.frequencies.shape[1]
    if dim <= 3 and features.normalise:
        return maximise_each(features, omega)
    each = zip(omega, streams, strict=True)
    found = [maximise(message_function(features, weights), maximiser_rng(dim, own), dim)[0] for weights, own in each]
    return np.array(found).reshape(-1, dim)


def maximise_acquisition(
    function: Surface,
    local: LocalState,
    coordinates: str | tuple[str, ...],
    streams: Streams,
    alone: Values | None = None,
) -> Array:
    """Return the point `(d,)`, in coordinates, where an acquisition with values `(n,)` and gradients `(n, d)` is largest.

    `alone` returns the values alone, if that costs less.
    """
    values = alone or (lambda u: function(u)[0])
    if local.lattice is None:
        return maximise_about(values, function, local.u[np.argsort(-values(local.u), kind="stable")[:CENTRES]], streams)
    return maximise_typed_acquisition(values, function, local, coordinates, streams)


def maximise_typed_acquisition(
    values: Values, function: Surface, local: LocalState, coordinates: str | tuple[str, ...], streams: Streams
) -> Array:
    """Return the point `(e,)`, in coordinates, that can be evaluated and where an acquisition is largest.

    `values` returns its values `(n,)`, `function` these and its gradients `(n, e)`.
    """
    space = projected(local, coordinates)
    return maximise_projected(values, newton(with_curvature(function), space), space, local.u, streams.rng("maximiser"))[0]


def maximise_posterior(
    posterior: Posterior, criterion: Criterion, local: LocalState, coordinates: str | tuple[str, ...], streams: Streams
) -> Array:
    """Return the point `(d,)`, in coordinates, where a criterion of a Gaussian process is largest."""
    if local.lattice is None:
        return maximise_criterion(posterior, criterion, streams.rng("maximiser"))[0]
    space, model = projected(local, coordinates), process(posterior)
    values = partial(criterion_values, posterior, criterion, model=model)
    climb = climbing(model, posterior, criterion, space.free)
    return maximise_projected(values, climb, space, local.u, streams.rng("maximiser"))[0]


def maximise_several(
    criterion: SeveralCriterion, local: LocalState, centres: Array, coordinates: str | tuple[str, ...], streams: Streams
) -> Array:
    """Return the point `(e,)`, in coordinates, where a criterion of several metrics is largest.

    In a cube there are candidates about the `centres (r, e)`, too.
    """
    values = lambda u: criterion(u, slopes=False)[0]  # noqa: E731
    if local.lattice is None:
        return maximise_about(values, criterion, centres, streams)
    space = projected(local, local.axes or coordinates)
    climb = newton(with_curvature(criterion), space)
    return maximise_projected(values, climb, space, local.u, streams.rng("maximiser"))[0]


def maximise_about(values: Values, function: Surface, centres: Array, streams: Streams) -> Array:
    """Return the point `(d,)` of the cube where a function is largest.

    The candidates are points everywhere and about the `centres (r, d)`; Newton's method climbs from the best of each.
    """
    dim, rng, starts = centres.shape[1], streams.rng("maximiser"), []
    room = SearchBox(np.zeros(dim), np.ones(dim))
    for points in (room.candidates(rng), room.about(centres, NEAR, 1.0, rng)):
        found = values(points)
        if not np.isfinite(found).all():
            raise ValueError("the acquisition has values that are not finite")
        starts.append(points[np.argsort(-found, kind="stable")[:CLIMBS]])
    surface = with_curvature(function)
    return newton_ascent(surface, np.vstack(starts), np.full(dim, 1.0 / ROUGH), TOLERANCE, STEPS)[0]


def maximiser_rng(dim: int, streams: Streams) -> np.random.Generator | None:
    """Return the maximiser's random stream if it needs one, beyond three inputs."""
    return streams.rng("maximiser") if dim > 3 else None


def projected(local: LocalState, coordinates: str | tuple[str, ...]) -> ProjectedSpace:
    """Return an agent's typed space in the named coordinates, or, for a tuple of axes, as its surrogate sees it."""
    lattice = local.lattice
    assert lattice is not None
    if isinstance(coordinates, str):
        into, back = partial(to_coordinates, name=coordinates), partial(from_coordinates, name=coordinates)
        return ProjectedSpace(lattice, into, back, taken=local.taken)
    into, back = partial(embedded, axes=coordinates, lattice=lattice), partial(restored, axes=coordinates, lattice=lattice)
    return ProjectedSpace(lattice, into, back, partial(movable, axes=coordinates, lattice=lattice), taken=local.taken)
