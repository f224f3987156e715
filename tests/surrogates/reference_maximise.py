"""The NumPy reference of the compiled maximiser: `maximise` by matrix products, and the climb of all starts at once.

It gives candidates and climbs in the same order by the same rules.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from newton_ascent_2d import newton_ascent_2d, plane
from reference_derivatives import derivatives
from scipy.spatial.distance import cdist

from fedbo.surrogates import candidates
from fedbo.surrogates.candidates import Product, Sizes, product
from fedbo.surrogates.draws import Draw, KernelPart, value
from fedbo.surrogates.kernels import SE
from fedbo.surrogates.maximise import FEW, MaximiserSettings, best_extra, scattered
from fedbo.surrogates.newton_ascent import newton_ascent

Array = npt.NDArray[np.float64]


class Tables(NamedTuple):
    """[cos, -sin] of s.u + b `(A, 2m)`, [cos; sin] of s.v `(2m, B)`, and what makes phi of cosines, `(A, B)` or ()."""

    u: Array
    v: Array
    norm: Array | float


def reference_maximise(
    draw: Draw,
    rng: np.random.Generator | None,
    dim: int,
    settings: MaximiserSettings = MaximiserSettings(),  # noqa: B008
    extra: Array | None = None,
) -> tuple[Array, float]:
    """The point `(d,)` of `[0, 1]^d` where the draw is largest, and its value there.

    `extra (e, d)` are further starts, such as incumbents. `rng` is used in more than three inputs only. Raises
    ValueError when the draw is not finite.
    """
    rough = np.maximum(candidates.frequencies(draw, dim), 1.0)
    sizes = candidates.grid_sizes(rough, settings.spacing)
    at_candidates = draw.scale * values(draw, dim, sizes)
    if not np.isfinite(at_candidates).all():
        raise ValueError("the draw has values that are not finite")
    starts = candidates.best_candidates(
        at_candidates, candidates.product(dim, sizes), settings.starts if dim <= 3 else 2 * settings.starts
    )
    if extra is not None and len(extra):
        starts = np.vstack([starts, best_extra(value(draw, extra), extra)])
    step_bound = 1.0 / rough
    if dim <= 2 and len(starts) <= FEW and draw.kernel_part is None and draw.features is not None and draw.weights is not None:
        function = plane(draw.features, draw.scale * draw.weights)
        point, top = newton_ascent_2d(function, starts, step_bound, settings.tolerance, settings.iterations)
        return point, draw.offset + top
    surface = derivatives(draw)
    if dim > 3:
        starts = scattered(lambda x: surface(x)[0], starts, rng, step_bound, settings)
    return newton_ascent(surface, starts, step_bound, settings.tolerance, settings.iterations)


def values(draw: Draw, dim: int, sizes: Sizes) -> Array:
    """Values of the draw at every candidate, `(A, B)`, less its offset and divided by its scale."""
    grid = product(dim, sizes)
    total = np.zeros((len(grid.u), len(grid.v)))
    if draw.features is not None and draw.weights is not None:
        features = draw.features
        raw = (features.frequencies.tobytes(), features.phases.tobytes())
        tables = _tables(*raw, features.variance, features.normalise, sizes)
        total = (tables.u * np.concatenate([draw.weights, draw.weights])) @ tables.v
        total *= tables.norm
    if draw.kernel_part is not None and len(draw.kernel_part.v):
        total += _kernel_values(draw.kernel_part, grid)
    return total


@lru_cache(maxsize=32)
def _tables(frequencies: bytes, phases: bytes, variance: float, normalise: bool, sizes: Sizes) -> Tables:
    """Tables of a feature set, remembered because all agents share one; the key is the numbers, to the bit."""
    b = np.frombuffer(phases)
    s = np.frombuffer(frequencies).reshape(b.size, -1)
    grid = product(s.shape[1], sizes)
    split = grid.u.shape[1]
    at_u = grid.u @ s[:, :split].T + b
    at_v = s[:, split:] @ grid.v.T
    cos_u, sin_u, cos_v, sin_v = np.cos(at_u), np.sin(at_u), np.cos(at_v), np.sin(at_v)
    tables = Tables(np.hstack([cos_u, -sin_u]), np.vstack([cos_v, sin_v]), sqrt(2.0 * variance / b.size))
    if not normalise:
        return tables
    # |raw phi|^2 = sum cos^2 = m / 2 + sum cos(2 (s.x + b)) / 2, and doubled angles need no new cosines.
    double_u = np.hstack([2.0 * cos_u * cos_u - 1.0, -2.0 * sin_u * cos_u])
    double_v = np.vstack([2.0 * cos_v * cos_v - 1.0, 2.0 * sin_v * cos_v])
    squares = np.maximum(0.5 * (b.size + double_u @ double_v), 1e-300)
    return tables._replace(norm=np.sqrt(variance / squares))


def _kernel_values(part: KernelPart, grid: Product) -> Array:
    """k(x, X)v at every candidate, `(A, B)`; the squared exponential splits into a product, the others do not."""
    split, kernel = grid.u.shape[1], part.kernel
    scale = np.broadcast_to(np.asarray(kernel.length_scale), (part.x.shape[1],))
    x = part.x / scale
    from_u = cdist(grid.u / scale[:split], x[:, :split], "sqeuclidean")
    from_v = cdist(grid.v / scale[split:], x[:, split:], "sqeuclidean") if grid.v.shape[1] else np.zeros((1, len(x)))
    weights = kernel.variance * part.v
    if isinstance(kernel, SE):
        return np.asarray((kernel.correlation(from_u) * weights) @ kernel.correlation(from_v).T)
    rows = [kernel.correlation(row + from_v) @ weights for row in from_u]
    return np.array(rows)
