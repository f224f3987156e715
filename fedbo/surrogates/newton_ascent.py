"""Newton's method inside the unit cube, for all starts at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
TINY = 1e-300
Surface = Callable[[Array], tuple[Array, Array, Array]]


class _Starts(NamedTuple):
    """Points `(k, d)`, value, gradient, Hessian there, and the longest step allowed, `(k,)`, in units of `step_bound`."""

    x: Array
    value: Array
    gradient: Array
    hessian: Array
    radius: Array

    def keep(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> _Starts:
        return _Starts(**{name: part[which] for name, part in self._asdict().items()})


def newton_ascent(surface: Surface, x: Array, step_bound: Array, tolerance: float, iterations: int) -> tuple[Array, float]:
    """Return the best local maximum in `[0, 1]^d` reached from the starts `x (k, d)`: the point `(d,)` and its value.

    `surface` returns values `(k,)`, gradients `(k, d)` and Hessians `(k, d, d)`. A step is at first at most `step_bound (d,)`
    long. A start is dropped when four times its promised gain would not make it the best. The climb ends when no start promises
    more than `tolerance` times max(1, |value|), or after `iterations` evaluations.
    """
    starts = _starts_at(surface, x, np.ones(len(x)))
    for _ in range(iterations):
        step, gain = _steps(starts, step_bound)
        best = float(starts.value.max())
        small = tolerance * max(1.0, abs(best))
        live = (gain > small) & (starts.value + 4.0 * gain > best)
        if not live.any():
            break
        if not live.all():
            # The best start stays even when it has arrived: it is what the others must beat.
            live[starts.value.argmax()] = True
            starts, step = starts.keep(live), step[live]
        starts = _advance(surface, starts, step, step_bound)
    winner = int(starts.value.argmax())
    return starts.x[winner], float(starts.value[winner])


def _advance(surface: Surface, starts: _Starts, step: Array, step_bound: Array) -> _Starts:
    """Move the starts whose step rises; shorten the step bound of the others to a quarter of their step."""
    x = starts.x + step
    np.maximum(x, 0.0, out=x)
    np.minimum(x, 1.0, out=x)
    moved = _starts_at(surface, x, 2.0 * starts.radius)
    rises = moved.value > starts.value
    if rises.all():
        return moved
    stay = starts._replace(radius=0.25 * np.abs(step / step_bound).max(axis=1))

    def chosen(new: Array, old: Array) -> Array:
        return np.where(rises.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return _Starts(**{name: chosen(getattr(moved, name), getattr(stay, name)) for name in _Starts._fields})


def _starts_at(surface: Surface, x: Array, radius: Array) -> _Starts:
    value, gradient, hessian = surface(x)
    return _Starts(x, value, gradient=gradient, hessian=hessian, radius=radius)


def _steps(starts: _Starts, step_bound: Array) -> tuple[Array, Array]:
    """Return Newton steps `(k, d)` within the cube and the step_bound, and the first-order gain of each, `(k,)`."""
    x, gradient, hessian = starts.x, starts.gradient, starts.hessian
    edge = (x <= 0.0) | (x >= 1.0)
    held = edge & ((x < 0.5) == (gradient < 0.0)) if edge.any() else edge
    if held.any():
        gradient = np.where(held, 0.0, gradient)
        hessian = np.where(held[:, :, None] | held[:, None, :], 0.0, hessian)
    # Directions of positive curvature are turned round: |H|^-1 g always rises.
    curvature, axes = np.linalg.eigh(hessian)
    size = np.maximum(np.abs(curvature), TINY)
    size = np.maximum(size, 1e-9 * np.maximum(size[:, :1], size[:, -1:]))
    along = np.matmul(gradient[:, None, :], axes) / size[:, None, :]
    step = np.matmul(along, axes.transpose(0, 2, 1))[:, 0]
    longest = np.abs(step / step_bound).max(axis=1)
    step *= np.minimum(1.0, starts.radius / np.maximum(longest, TINY))[:, None]
    inside = np.minimum(np.maximum(x + step, 0.0), 1.0) - x
    gain = np.einsum("ij,ij->i", gradient, inside)
    lost = gain <= 0.0
    if lost.any():
        # The cube cut the step short and turned it downhill, or there is no slope left: follow the plain gradient.
        steepest = gradient / np.maximum(np.abs(gradient / step_bound).max(axis=1, keepdims=True), TINY)
        plain = np.minimum(np.maximum(x + steepest * starts.radius[:, None], 0.0), 1.0) - x
        inside = np.where(lost[:, None], plain, inside)
        gain = np.where(lost, np.einsum("ij,ij->i", gradient, plain), gain)
    return inside, gain
