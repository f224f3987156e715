"""The box of native units and the unit cube: how a point goes from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array, Parameter

Ends = tuple[tuple[float, float], ...]
_FEW = 8  # numbers of which Python's own are faster than an array of them


def inside(parameters: Sequence[Parameter], x: npt.ArrayLike) -> Array:
    """Give x `(d,)` or `(n, d)` in native units as floats, or refuse it: ValueError when it is outside the box."""
    low, high, _, ends = _box(tuple(parameters))
    points = _shaped(len(parameters), np.asarray(x, dtype=np.float64))
    if ends and points.size <= _FEW and _are_inside(points, ends):
        return points
    if not ((points >= low) & (points <= high)).all():  # written so that NaN is outside
        raise _outside(points, [(p.name, p.low, p.high) for p in parameters])
    for column, parameter in zip(_columns(points), parameters, strict=True):
        if parameter.whole and (column != np.floor(column)).any():
            wrong = np.atleast_1d(column)[np.atleast_1d(column != np.floor(column))][0]
            raise ValueError(f"{parameter.name} = {wrong} is no whole number")
    return points


def from_unit(parameters: Sequence[Parameter], u: npt.ArrayLike) -> Array:
    """Map points of the unit cube `(d,)` or `(n, d)` to native units; 0 and 1 give the ends of the range exactly.

    A linear parameter is `low + u (high - low)`, in this order of operations, which is also that of the published
    experiments. ValueError when a coordinate is not in [0, 1].
    """
    low, high, curved, ends = _box(tuple(parameters))
    points = _shaped(len(parameters), np.asarray(u, dtype=np.float64))
    if ends and points.size <= _FEW and _are_inside(points, ((0.0, 1.0),) * len(ends)):
        return np.array([_native(row, ends) for row in points.tolist()] if points.ndim == 2 else _native(points.tolist(), ends))
    if not ((points >= 0.0) & (points <= 1.0)).all():
        raise _outside(points, [(f"{p.name} (in the unit cube)", 0.0, 1.0) for p in parameters])
    native = low + points * (high - low)
    for i in curved:
        native[..., i] = low[i] * (high[i] / low[i]) ** points[..., i]
    for i, parameter in enumerate(parameters):
        if parameter.whole:
            native[..., i] = _whole(parameter, points[..., i])
    # Rounding may step over the edge by one bit, and must not.
    native = np.minimum(np.maximum(native, low), high)
    return np.where(points == 1.0, high, native)


def to_unit(parameters: Sequence[Parameter], x: npt.ArrayLike) -> Array:
    """Map points `(d,)` or `(n, d)` in native units to the unit cube; ValueError when one is outside the box.

    A whole number goes to the middle of its cell, with `log` to its own place on the geometric axis.
    """
    points = inside(parameters, x)
    unit = np.empty_like(points)
    for i, (column, parameter) in enumerate(zip(_columns(points), parameters, strict=True)):
        unit[..., i] = _shrink(parameter, column)
    return unit


def _columns(points: Array) -> list[Array]:
    return [points[..., i] for i in range(points.shape[-1])]


class _Box(NamedTuple):
    """The lower and upper ends `(d,)` of a box, which parameters have a log range, and pairs of ends if all are linear."""

    low: Array
    high: Array
    curved: tuple[int, ...]
    ends: Ends


@lru_cache(maxsize=256)
def _box(parameters: tuple[Parameter, ...]) -> _Box:
    low, high = (np.array([getattr(parameter, end) for parameter in parameters]) for end in ("low", "high"))
    linear = not any(parameter.log or parameter.whole for parameter in parameters)
    ends = tuple(zip(low.tolist(), high.tolist(), strict=True)) if linear else ()
    return _Box(low, high, tuple(i for i, parameter in enumerate(parameters) if parameter.log), ends)


def _are_inside(points: Array, ends: Ends) -> bool:
    """Say whether few points are in a box."""
    rows: Any = points.tolist() if points.ndim == 2 else [points.tolist()]
    for row in rows:
        for number, (low, high) in zip(row, ends, strict=True):
            if not low <= number <= high:
                return False
    return True


def _native(u: list[float], ends: Ends) -> list[float]:
    """Map a point in a linear box, with the same operations as an array of many."""
    return [
        high if number == 1.0 else min(max(low + number * (high - low), low), high)
        for number, (low, high) in zip(u, ends, strict=True)
    ]


def _shaped(dim: int, points: Array) -> Array:
    if points.ndim not in (1, 2) or points.shape[-1] != dim:
        raise ValueError(f"points have shape {points.shape}: ({dim},) or (n, {dim}) would do")
    return points


def _outside(points: Array, ranges: Sequence[tuple[str, float, float]]) -> ValueError:
    for column, (name, low, high) in zip(_columns(points), ranges, strict=True):
        wrong = np.atleast_1d(~((column >= low) & (column <= high)))
        if wrong.any():
            return ValueError(f"{name} = {np.atleast_1d(column)[wrong][0]} is outside [{low}, {high}]")
    raise AssertionError("no point is outside")


def _whole(parameter: Parameter, u: Array) -> Array:
    """Give the whole numbers in whose cells coordinates lie."""
    low, high = parameter.low, parameter.high
    if parameter.log:
        start, end = low - 0.5, high + 0.5
        return np.clip(np.floor(start * (end / start) ** u + 0.5), low, high)
    return np.minimum(low + np.floor(u * (high - low + 1.0)), high)


def _shrink(parameter: Parameter, x: Array) -> Array:
    low, high = parameter.low, parameter.high
    if parameter.whole and parameter.log:
        return np.asarray(np.log(x / (low - 0.5)) / np.log((high + 0.5) / (low - 0.5)))
    if parameter.whole:
        return np.asarray((x - low + 0.5) / (high - low + 1.0))
    unit = np.log(x / low) / np.log(high / low) if parameter.log else (x - low) / (high - low)
    return np.where(x == high, 1.0, np.where(x == low, 0.0, np.clip(unit, 0.0, 1.0)))
