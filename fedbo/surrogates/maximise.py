"""Maximisers over the unit cube: candidates first, then Newton's method from the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.surrogates import candidates
from fedbo.surrogates.candidates import Product
from fedbo.surrogates.draws import Draw, compiled_features, compiled_kernel, message_function
from fedbo.surrogates.features import Features
from fedbo.surrogates.newton_ascent import Surface, newton_ascent

Array = npt.NDArray[np.float64]
STEP = 1e-5
EXTRA = 2
FEW = 10  # starts in up to two inputs that are climbed from one by one, each giving up as soon as it cannot win
ROUGH = 20.0  # the frequency of any function: that of length scale 0.05
_NO_TABLES = (np.empty((0, 0)),) * 5
_MOST_KNOWN = 64
# By the identity of an array, which is kept with it.
_KNOWN: dict[int, tuple[Array, Array, tuple[int, float], Array, Product, Any]] = {}


@dataclass(frozen=True, slots=True)
class MaximiserSettings:
    """The settings of a maximiser.

    spacing: step of the candidates, times the draw's typical frequency.
    starts: number of climbs; twice that in more than three inputs.
    tolerance: a climb ends when the promised gain is below this (relative beyond 1).
    iterations: most iterations of a climb.
    scatter: further candidates near the best one, in more than three inputs.
    """

    spacing: float = 0.8
    starts: int = 24
    tolerance: float = 1e-8
    iterations: int = 30
    scatter: int = 64


def maximise(
    draw: Draw,
    rng: np.random.Generator | None,
    dim: int,
    settings: MaximiserSettings = MaximiserSettings(),  # noqa: B008
    extra: Array | None = None,
) -> tuple[Array, float]:
    """Return the point `(d,)` of `[0, 1]^d` where the draw is largest, and its value there.

    `extra (e, d)` are further starts, such as incumbents. `rng` is used in more than three inputs only. Raises
    ValueError when the draw is not finite.
    """
    features, part = draw.features, draw.kernel_part
    if features is not None and features.normalise and part is None:
        bounds, grid, tables = _candidates_of_shared(features, dim, settings.spacing)
    else:
        rough = np.maximum(candidates.frequencies(draw, dim), 1.0)
        bounds, tables = 1.0 / rough, _NO_TABLES
        grid = candidates.product(dim, candidates.grid_sizes(rough, settings.spacing))
    shape: Any = (*grid.shape, 1, 1)[:3] if grid.shape else (0, 0, 0)
    known = _none(dim) if extra is None else np.ascontiguousarray(extra)
    points = (grid.u, grid.v, known, _cloud(rng, dim, settings))
    limits = (_count(dim, settings), EXTRA, FEW if features is not None else 0, settings.iterations)
    point = np.empty(dim)
    top = _compiled().maximum(
        compiled_features(draw, dim),
        compiled_kernel(draw, dim),
        draw.offset,
        tables,
        points,
        shape,
        bounds,
        limits,
        settings.tolerance,
        point,
    )
    if isnan(top):
        raise ValueError("the draw has values that are not finite")
    return point, top


def maximise_each(features: Features, omega: Array, settings: MaximiserSettings = MaximiserSettings()) -> Array:  # noqa: B008
    """Return the points `(k, d)` where functions with weights `omega (k, m)` are largest, d <= 3, equal to `maximise`.

    Raises ValueError when a value is not finite.
    """
    dim = features.frequencies.shape[1]
    bounds, grid, tables = _candidates_of_shared(features, dim, settings.spacing)
    points = (grid.u, grid.v, _none(dim), _none(dim))
    limits = (_count(dim, settings), EXTRA, FEW, settings.iterations)
    found, shape = np.empty((len(omega), dim)), (*grid.shape, 1, 1)[:3]
    top = _compiled_block().maxima(tuple(features), omega, tables, points, shape, bounds, limits, settings.tolerance, found)
    if isnan(top):
        raise ValueError("a draw has values that are not finite")
    return found


@cache
def _compiled() -> Any:
    """Import the compiled routines. The module is cached, since even a repeated import takes half a microsecond."""
    from fedbo.surrogates.compiled import maximise

    return maximise


@cache
def _compiled_block() -> Any:
    from fedbo.surrogates.compiled import block

    return block


def _candidates_of_shared(features: Features, dim: int, spacing: float) -> tuple[Array, Product, Any]:
    """Return 1 over typical frequencies, candidates and tables of a feature set; cached, because all agents share one."""
    frequencies, phases = features.frequencies, features.phases
    known = _KNOWN.get(id(frequencies))
    if known is not None and known[0] is frequencies and known[1] is phases and known[2] == (dim, spacing):
        return known[3], known[4], known[5]
    if len(_KNOWN) >= _MOST_KNOWN:
        _KNOWN.clear()
    found = _candidates_of_equal(frequencies.tobytes(), phases.tobytes(), dim, spacing)
    _KNOWN[id(frequencies)] = (frequencies, phases, (dim, spacing), *found)
    return found


@lru_cache(maxsize=_MOST_KNOWN)
def _candidates_of_equal(frequencies: bytes, phases: bytes, dim: int, spacing: float) -> tuple[Array, Product, Any]:
    """Return the same, cached by the bits of the numbers."""
    b = np.frombuffer(phases)
    s = np.frombuffer(frequencies).reshape(b.size, dim)
    rough = np.maximum(candidates.frequencies(Draw(Features(s, b), b), dim), 1.0)
    grid = candidates.product(dim, candidates.grid_sizes(rough, spacing))
    return 1.0 / rough, grid, _compiled().tables(s, b, True, grid.u, grid.v)


@lru_cache(maxsize=64)
def _none(dim: int) -> Array:
    return np.empty((0, dim))


def _cloud(rng: np.random.Generator | None, dim: int, settings: MaximiserSettings) -> Array:
    """Return normal draws `(c, d)` for the points that are scattered about the best candidate, none in up to three inputs."""
    if dim <= 3:
        return _none(dim)
    if rng is None:
        raise ValueError("more than three inputs require a random generator; pass one")
    return rng.standard_normal((settings.scatter, dim))


def maximise_pieces(
    features: Features, omega: Array, low: Array, high: Array, rng: np.random.Generator | None
) -> tuple[Array, float]:
    """Return the point `(d,)` where phi(x)'omega_i, x in box i, is largest over all boxes, and the value there.

    `omega (P, m)` are the weights in the boxes with corners `low` and `high`, each `(P, d)`; faces belong to both sides. `rng`
    is used in more than three inputs only. Raises ValueError when a weight is not finite.
    """
    best, place = -np.inf, low[0]
    for weights, start, end in zip(omega, low, high, strict=True):
        # In v with x = start + (end - start) v the features are features again, and the box is the unit cube.
        frequencies = features.frequencies * (end - start)
        inside = features._replace(frequencies=frequencies, phases=features.phases + features.frequencies @ start)
        v, top = maximise(message_function(inside, weights), rng, len(start))
        if top > best:
            best, place = top, np.minimum(start + (end - start) * v, end)
    return place, best


def maximise_from(
    function: Callable[[Array], tuple[Array, Array]],
    points: Array,
    settings: MaximiserSettings = MaximiserSettings(),  # noqa: B008
) -> tuple[Array, float]:
    """Return the best end `(d,)` of climbs from the best of `points (c, d)`, and its value.

    `function` returns values `(n,)` and gradients `(n, d)` at `x (n, d)`; curvature comes from differences of gradients, up to
    1e-5 outside the cube. Climbs begin at points outside each other's `step_bound`.

    Raises ValueError when a value is not finite.
    """
    left = function(points)[0]
    if not np.isfinite(left).all():
        raise ValueError("the function has values that are not finite")
    starts: list[int] = []
    while len(starts) < settings.starts and np.isfinite(left).any():
        starts.append(int(left.argmax()))
        near = np.abs(points - points[starts[-1]]).max(axis=1) < 1.0 / ROUGH
        left = np.where(near, -np.inf, left)
    step_bound = np.full(points.shape[1], 1.0 / ROUGH)
    return newton_ascent(with_curvature(function), points[starts], step_bound, settings.tolerance, settings.iterations)


def _count(dim: int, settings: MaximiserSettings) -> int:
    return settings.starts if dim <= 3 else 2 * settings.starts  # candidates are sparse in more than three inputs


def with_curvature(function: Callable[[Array], tuple[Array, Array]]) -> Surface:
    """Return a function with Hessians by central differences, from one of values `(k,)` and gradients `(k, d)`."""

    def surface(x: Array) -> tuple[Array, Array, Array]:
        k, d = x.shape
        shifts = STEP * np.vstack([np.zeros((1, d)), np.eye(d), -np.eye(d)])
        value, gradient = function((x[None] + shifts[:, None]).reshape(-1, d))
        slopes = gradient.reshape(2 * d + 1, k, d)
        hessian = ((slopes[1 : d + 1] - slopes[d + 1 :]) / (2.0 * STEP)).transpose(1, 0, 2)
        return value[:k], gradient[:k], 0.5 * (hessian + hessian.transpose(0, 2, 1))

    return surface
