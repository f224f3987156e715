"""The box of native units and the unit cube: how a point goes from one to the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array, Parameter


def inside(parameters: Sequence[Parameter], x: npt.ArrayLike) -> Array:
    """Give x `(d,)` or `(n, d)` in native units as floats, or refuse it: ValueError when it is outside the box."""
    points = np.asarray(x, dtype=np.float64)
    _shaped(parameters, points)
    for column, parameter in zip(_columns(points), parameters, strict=True):
        _within(column, parameter.low, parameter.high, parameter.name)
    return points


def from_unit(parameters: Sequence[Parameter], u: npt.ArrayLike) -> Array:
    """Map points of the unit cube `(d,)` or `(n, d)` to native units; 0 and 1 give the ends of the range exactly.

    A linear parameter is `low + u (high - low)`, in this order of operations, which is also that of the published
    experiments. ValueError when a coordinate is not in [0, 1].
    """
    points = np.asarray(u, dtype=np.float64)
    _shaped(parameters, points)
    native = np.empty_like(points)
    for i, (column, parameter) in enumerate(zip(_columns(points), parameters, strict=True)):
        _within(column, 0.0, 1.0, f"{parameter.name} (in the unit cube)")
        native[..., i] = _stretch(parameter, column)
    return native


def to_unit(parameters: Sequence[Parameter], x: npt.ArrayLike) -> Array:
    """Map points `(d,)` or `(n, d)` in native units to the unit cube; ValueError when one is outside the box."""
    points = inside(parameters, x)
    unit = np.empty_like(points)
    for i, (column, parameter) in enumerate(zip(_columns(points), parameters, strict=True)):
        unit[..., i] = _shrink(parameter, column)
    return unit


def _columns(points: Array) -> list[Array]:
    return [points[..., i] for i in range(points.shape[-1])]


def _shaped(parameters: Sequence[Parameter], points: Array) -> None:
    for parameter in parameters:
        if not (np.isfinite([parameter.low, parameter.high]).all() and parameter.low < parameter.high):
            raise ValueError(f"parameter {parameter.name}: [{parameter.low}, {parameter.high}] is not a finite range")
        if parameter.log and parameter.low <= 0.0:
            raise ValueError(f"parameter {parameter.name}: a log range must start above 0, got {parameter.low}")
    if points.ndim not in (1, 2) or points.shape[-1] != len(parameters):
        raise ValueError(f"points have shape {points.shape}: ({len(parameters)},) or (n, {len(parameters)}) would do")


def _within(column: Array, low: float, high: float, name: str) -> None:
    outside = ~((column >= low) & (column <= high))  # written so that NaN is outside
    if np.any(outside):
        raise ValueError(f"{name} = {np.atleast_1d(column)[np.atleast_1d(outside)][0]} is outside [{low}, {high}]")


def _stretch(parameter: Parameter, u: Array) -> Array:
    low, high = parameter.low, parameter.high
    native = low * (high / low) ** u if parameter.log else low + u * (high - low)
    # rounding may step over the edge by one bit, and must not
    return np.where(u == 1.0, high, np.where(u == 0.0, low, np.clip(native, low, high)))


def _shrink(parameter: Parameter, x: Array) -> Array:
    low, high = parameter.low, parameter.high
    unit = np.log(x / low) / np.log(high / low) if parameter.log else (x - low) / (high - low)
    return np.where(x == high, 1.0, np.where(x == low, 0.0, np.clip(unit, 0.0, 1.0)))
