"""The box of native units and the unit cube: how a point goes from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array, Parameter

Ends = tuple[tuple[float, float], ...]
_FEW = 8  # numbers of which Python's own are faster than an array of them
_FEW_CHECKED = 24  # the same where they are only checked
_MOST_KNOWN = 256


def inside(parameters: Sequence[Parameter], x: npt.ArrayLike) -> Array:
    """Return x `(d,)` or `(n, d)` in native units as floats; ValueError when it is outside the box."""
    box = _box(parameters)
    points = _shaped(len(parameters), np.asarray(x, dtype=np.float64))
    if points.size <= _FEW_CHECKED and _are_inside(rows := _rows(points), box.ranges):
        if all(row[axis].is_integer() for row in rows for axis in box.whole):
            return points
    if not ((points >= box.low) & (points <= box.high)).all():  # written so that NaN is outside
        raise _outside(points, [(p.name, p.low, p.high) for p in parameters])
    for column, parameter in zip(_columns(points), parameters, strict=True):
        if parameter.whole and (column != np.floor(column)).any():
            wrong = np.atleast_1d(column)[np.atleast_1d(column != np.floor(column))][0]
            raise ValueError(f"{parameter.name} = {wrong} is not a whole number")
    return points


def from_unit(parameters: Sequence[Parameter], u: npt.ArrayLike) -> Array:
    """Map points of the unit cube `(d,)` or `(n, d)` to native units; 0 and 1 map to the ends of the range exactly.

    A linear parameter is `low + u (high - low)`, in this order of operations, as in the published experiments. ValueError when
    a coordinate is not in [0, 1].
    """
    box = _box(parameters)
    low, high, ends = box.low, box.high, box.ends
    points = _shaped(len(parameters), np.asarray(u, dtype=np.float64))
    if not points.size:  # of agents that only send
        return points.copy()
    if ends and points.size <= _FEW and _are_inside(rows := _rows(points), box.unit):
        native = [_native(row, ends) for row in rows]
        return np.array(native if points.ndim == 2 else native[0])
    if not ((points >= 0.0) & (points <= 1.0)).all():
        raise _outside(points, [(f"{p.name} (in the unit cube)", 0.0, 1.0) for p in parameters])
    mapped = low + points * (high - low)
    for i in box.curved:
        mapped[..., i] = low[i] * (high[i] / low[i]) ** points[..., i]
    for i, parameter in enumerate(parameters):
        if parameter.whole:
            mapped[..., i] = _whole(parameter, points[..., i])
    # Rounding may step over the edge by one bit, and must not.
    mapped = np.minimum(np.maximum(mapped, low), high)
    return np.where(points == 1.0, high, mapped)


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
    """The lower and upper ends `(d,)` of a box, which parameters have a log range, and pairs of ends if all are linear.

    `unit` are the pairs of ends of the unit cube, `ranges` those of the box, linear or not, `whole` the axes of whole numbers.
    """

    low: Array
    high: Array
    curved: tuple[int, ...]
    ends: Ends
    unit: Ends
    ranges: Ends
    whole: tuple[int, ...]


_KNOWN: dict[int, tuple[Sequence[Parameter], _Box]] = {}


def _box(parameters: Sequence[Parameter]) -> _Box:
    """Return the box of parameters, cached by the identity of the tuple, since hashing would take most of the time."""
    known = _KNOWN.get(id(parameters))
    if known is not None and known[0] is parameters:
        return known[1]
    box = _made(tuple(parameters))
    if type(parameters) is tuple:  # it cannot change
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[id(parameters)] = (parameters, box)
    return box


@lru_cache(maxsize=_MOST_KNOWN)
def _made(parameters: tuple[Parameter, ...]) -> _Box:
    low, high = (np.array([getattr(parameter, end) for parameter in parameters]) for end in ("low", "high"))
    linear = not any(parameter.log or parameter.whole for parameter in parameters)
    ranges = tuple(zip(low.tolist(), high.tolist(), strict=True))
    curved, whole = (tuple(i for i, each in enumerate(parameters) if getattr(each, kind)) for kind in ("log", "whole"))
    return _Box(
        low, high, curved, ends=ranges if linear else (), unit=((0.0, 1.0),) * len(parameters), ranges=ranges, whole=whole
    )


def _rows(points: Array) -> list[list[float]]:
    """Return a small number of points `(d,)` or `(n, d)` as lists of their coordinates."""
    return points.tolist() if points.ndim == 2 else [points.tolist()]


def _are_inside(rows: Sequence[Sequence[float]], ends: Ends) -> bool:
    """Return whether a small number of points are in a box."""
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
        raise ValueError(f"points have shape {points.shape}; use ({dim},) or (n, {dim})")
    return points


def _outside(points: Array, ranges: Sequence[tuple[str, float, float]]) -> ValueError:
    for column, (name, low, high) in zip(_columns(points), ranges, strict=True):
        wrong = np.atleast_1d(~((column >= low) & (column <= high)))
        if wrong.any():
            return ValueError(f"{name} = {np.atleast_1d(column)[wrong][0]} is outside [{low}, {high}]")
    raise AssertionError("no point is outside")


def _whole(parameter: Parameter, u: Array) -> Array:
    """Return the whole numbers whose cells contain the coordinates."""
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
