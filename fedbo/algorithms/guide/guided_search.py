"""Acquisitions whose standard deviation Gaussians widen: these in the surrogate's coordinates, and the search for a maximum."""

from __future__ import annotations

import numpy as np

from fedbo.algorithms.base import Array, Payload
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.inner_search import maximise_acquisition, maximise_typed_acquisition
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.components.typed_coordinates import APART, columns, embedded
from fedbo.algorithms.gp import SEARCH
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.acquisition import widening
from fedbo.surrogates.draws import Draw, KernelPart, pathwise_draw, value_and_gradient
from fedbo.surrogates.gp import Posterior


def guide_rows(guides: Payload, coordinates: str | tuple[str, ...], seen: LocalState) -> Array:
    """Return Gaussians of the unit cube as `guides` of a criterion, `(p, 2 e + 1)`, in the coordinates of `seen`.

    A Gaussian stays one: its standard deviation is scaled by the mean slope of the coordinates over one of them on either side,
    which is exact for plain ones.
    """
    mean, sd = guides["mean"], np.sqrt(guides["variance"])
    low, high = np.maximum(mean - sd, 0.0), np.minimum(mean + sd, 1.0)
    width = sd * (to_coordinates(high, coordinates) - to_coordinates(low, coordinates)) / (high - low)
    centre, inverse = to_coordinates(mean, coordinates), 1.0 / np.maximum(width, 1e-9)
    if seen.lattice is not None and isinstance(coordinates, tuple):
        centre, inverse = _typed(mean, sd, inverse, coordinates, seen)
    return np.column_stack([guides["weight"], centre, inverse])


def _typed(mean: Array, sd: Array, inverse: Array, axes: tuple[str, ...], seen: LocalState) -> tuple[Array, Array]:
    """Return means and inverse standard deviations `(p, e)` in a typed space; an inactive axis has no influence.

    A category has the columns of its choices, and the standard deviation counts choices.
    """
    lattice = seen.lattice
    assert lattice is not None
    off, blocks = lattice.inactive(mean), []
    for axis, (first, last) in enumerate(columns(lattice)):
        count = last - first
        along = inverse[:, axis] if count == 1 else 1.0 / (APART * np.maximum(sd[:, axis] * count, 1.0))
        blocks.append(np.repeat(np.where(off[:, axis], 0.0, along)[:, None], count, axis=1))
    return embedded(mean, axes, lattice), np.hstack(blocks)


def maximise_guided_draw(
    posterior: Posterior,
    rows: Array | None,
    seen: LocalState,
    coordinates: str | tuple[str, ...],
    count: int,
    streams: Streams,
) -> Array:
    """Return the point `(e,)` where the mean plus S times the rest of a posterior draw of `count` features is largest."""
    draw = pathwise_draw(posterior, streams.rng("own draw"), count)
    part = draw.kernel_part
    assert part is not None
    mean = Draw(kernel_part=KernelPart(part.kernel, part.x, posterior.alpha))
    rest = draw._replace(kernel_part=part._replace(v=part.v - posterior.alpha))

    def function(u: Array) -> tuple[Array, Array]:
        expected, apart = value_and_gradient(mean, u), value_and_gradient(rest, u)
        if rows is None:
            return expected[0] + apart[0], expected[1] + apart[1]
        factor, slope = widening(rows, u)
        gradient = expected[1] + factor[:, None] * apart[1] + apart[0][:, None] * slope
        return expected[0] + factor * apart[0], gradient

    if seen.lattice is not None and isinstance(coordinates, tuple):
        return maximise_typed_acquisition(lambda u: function(u)[0], function, seen, coordinates, streams)
    name = coordinates if isinstance(coordinates, str) else "plain"  # all of the cube, whatever its coordinates are
    return maximise_acquisition(function, seen, name, streams, SEARCH)
