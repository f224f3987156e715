"""The NumPy reference of the compiled maximiser: `maximise` by matrix products, and the climb of all starts at once.

It gives candidates and climbs in the same order by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
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
from fedbo.surrogates.compiled.grid import PROMISE
from fedbo.surrogates.draws import Draw, KernelPart, value
from fedbo.surrogates.kernels import SE
from fedbo.surrogates.maximise import EXTRA, FEW, MaximiserSettings
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
    starts = best_candidates(
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
    if dim > 3 and rng is not None:
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
        return np.asarray((kernel.slopes(from_u)[0] * weights) @ kernel.slopes(from_v)[0].T)
    rows = [kernel.slopes(row + from_v)[0] @ weights for row in from_u]
    return np.array(rows)


def best_extra(at_extra: Array, extra: Array) -> Array:
    return extra[np.argsort(-at_extra, kind="stable")[:EXTRA]]


def scattered(
    values: Callable[[Array], Array],
    starts: Array,
    rng: np.random.Generator,
    step_bound: Array,
    settings: MaximiserSettings,
) -> Array:
    """Return the starts and the best of some points scattered about the first: candidates are sparse in many inputs."""
    cloud = starts[0] + rng.standard_normal((settings.scatter, starts.shape[1])) * np.minimum(step_bound, 0.2)
    cloud = np.clip(cloud, 0.0, 1.0)
    order = np.argsort(-values(cloud), kind="stable")[: max(settings.starts // 4, 1)]
    return np.vstack([starts, cloud[order]])


def best_candidates(at_candidates: Array, grid: Product, count: int) -> Array:
    """Return at most `count` points `(q, d)` to climb from, the most promising first.

    Without a grid they are the points with the largest values `(A, B)`. On a grid they are the points that no axis neighbour
    exceeds, moved to the top of the parabola through the neighbours. Points that this move cannot make the best are left out.
    """
    flat = at_candidates.ravel()
    if not grid.shape:
        top = np.argpartition(flat, -count)[-count:] if count < flat.size else np.arange(flat.size)
        return grid.points(top[np.argsort(-flat[top], kind="stable")])
    return peaks(at_candidates.reshape(grid.shape), count)


def peaks(grid: Array, count: int) -> Array:
    """Return points `(q, d)` of at most `count` peaks of values on a grid, refined by one parabola per axis."""
    # Mirrored at the edges, so that every point has two neighbours along every axis.
    padded = np.empty([size + 2 for size in grid.shape])
    padded[(slice(1, -1),) * grid.ndim] = grid
    is_peak = np.ones(padded.shape, dtype=np.bool_)
    for axis in range(grid.ndim):
        layers, marks = padded.swapaxes(0, axis), is_peak.swapaxes(0, axis)
        layers[0], layers[-1] = layers[2], layers[-3]
        marks[0] = marks[-1] = False
        marks[1:-1] &= (layers[1:-1] > layers[:-2]) & (layers[1:-1] >= layers[2:])
    flat, peak = padded.ravel(), np.flatnonzero(is_peak)
    if not peak.size:
        return np.full((1, grid.ndim), 0.5)
    height = flat[peak]
    promise, shifts = np.zeros(len(peak)), []
    for stride in padded.strides:
        step = stride // padded.itemsize
        below, above = flat[peak - step], flat[peak + step]
        bend = 2.0 * height - below
        bend -= above
        shifts.append((above - below) / np.maximum(2.0 * bend, 1e-300))
        promise += 0.125 * bend
    # A parabola rises at most bend / 8 above the grid; the factor allows for diagonal ridges and higher orders.
    contender = np.flatnonzero(height + PROMISE * promise >= height.max())
    contender = contender[np.argsort(-(height + promise)[contender], kind="stable")[:count]]
    places = np.unravel_index(peak[contender], padded.shape)
    axes = zip(places, shifts, grid.shape, strict=True)
    return np.column_stack([(place - 1.0 + shift[contender]) / (size - 1.0) for place, shift, size in axes])
