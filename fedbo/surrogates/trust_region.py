"""A trust region about the best point (TuRBO: Eriksson et al. 2019), as a function of the observations in their order.

In many inputs most of a cube is far from all observations. A draw from the posterior is nearly a prior draw there, and the
largest of many such values is noise. A box about the best point, which grows with success and shrinks without, avoids this.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedbo.surrogates.draws import Draw
from fedbo.surrogates.kernels import LengthScale

Array = npt.NDArray[np.float64]
FIRST, SHORTEST, LONGEST = 0.8, 0.5**7, 1.6
SUCCESSES = 3  # in a row, after which the side is doubled
LEAST = 1e-3  # the improvement that counts as success, relative to the spread of the values


def side(y: Array, dim: int) -> float:
    """Return the side of the region after the values `y (n,)`, in the order in which they were observed.

    It is halved after as many failures in a row as there are inputs, at least four. Below the shortest side the region
    restarts. It keeps its centre then, since observations are expensive.
    """
    length, successes, failures, best = FIRST, 0, 0, -np.inf
    least = LEAST * float(y.std()) if len(y) else 0.0
    for value in y:
        if value > best + least:
            successes, failures = successes + 1, 0
        else:
            successes, failures = 0, failures + 1
        best = max(best, float(value))
        if successes == SUCCESSES:
            length, successes = min(2.0 * length, LONGEST), 0
        elif failures == max(4, dim):
            length, failures = 0.5 * length, 0
            length = length if length >= SHORTEST else FIRST
    return length


def box(centre: Array, side_length: float, length_scale: LengthScale) -> tuple[Array, Array]:
    """Return the corners `(d,)` of the region within the cube, with sides proportional to the length scales.

    Before it is cut at the cube's faces, its volume is that of a cube with sides `side_length`.
    """
    scales = np.broadcast_to(np.asarray(length_scale, dtype=np.float64), centre.shape)
    half = 0.5 * side_length * scales / np.exp(np.log(scales).mean())
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def within(draw: Draw, low: Array, high: Array) -> Draw:
    """Return the draw as a function of v in the unit cube, at x = low + (high - low) v."""
    wide = high - low
    features, part = draw.features, draw.kernel_part
    if features is not None:
        shift = features.phases + features.frequencies @ low
        features = features._replace(frequencies=features.frequencies * wide, phases=shift)
    if part is not None:
        scales = np.broadcast_to(np.asarray(part.kernel.length_scale, dtype=np.float64), wide.shape) / wide
        kernel = replace(part.kernel, length_scale=tuple(scales.tolist()))
        part = part._replace(kernel=kernel, x=(part.x - low) / wide)
    return draw._replace(features=features, kernel_part=part)
