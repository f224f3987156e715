"""The line search of More and Thuente (1994) as L-BFGS-B uses it: decrease 1e-3, curvature 0.9, relative width 0.1."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from fedbo.surrogates.compiled.jit import compiled

DECREASE, CURVATURE, WIDTH = 1e-3, 0.9, 0.1


class Point(NamedTuple):
    """A step, and the function's value and slope there."""

    step: float
    value: float
    slope: float


class Search(NamedTuple):
    """A search for a step: where it began, its best step, the other end, the next step, and what bounds it."""

    start: Point
    best: Point
    other: Point
    bracketed: bool
    first_stage: bool
    low: float
    high: float
    width: float
    width_before: float


@compiled()
def begin(value: float, slope: float, step: float, longest: float) -> Search:
    """Begin at step 0; the first step that is tried is `step`."""
    start = Point(0.0, value, slope)
    return Search(start, start, start, False, True, 0.0, 5.0 * step, longest, 2.0 * longest)


@compiled()
def has_ended(search: Search, at: Point, longest: float) -> bool:
    """Check whether the step is good enough or no better step can be found."""
    enough = search.start.value + at.step * DECREASE * search.start.slope
    if search.bracketed and (at.step <= search.low or at.step >= search.high):
        return True
    if search.bracketed and search.high - search.low <= WIDTH * search.high:
        return True
    if at.step == longest and at.value <= enough and at.slope <= DECREASE * search.start.slope:
        return True
    if at.step == 0.0 and (at.value > enough or at.slope >= DECREASE * search.start.slope):
        return True
    return at.value <= enough and abs(at.slope) <= -CURVATURE * search.start.slope


@compiled()
def advance(search: Search, at: Point, longest: float) -> tuple[Search, float]:
    """Update the search with the value and slope at a step; return it with the next step."""
    start, best, other = search.start, search.best, search.other
    slope = DECREASE * start.slope
    enough = start.value + at.step * slope
    first = search.first_stage and not (at.value <= enough and at.slope >= 0.0)
    limits = search.low, search.high
    if first and at.value <= best.value and at.value > enough:
        # In the first stage it looks for a step of the function less the line of sufficient decrease.
        tilted = (_tilted(best, slope, 1.0), _tilted(other, slope, 1.0), _tilted(at, slope, 1.0))
        best, other, bracketed, step = _interpolate(tilted[0], tilted[1], tilted[2], search.bracketed, limits)
        best, other = _tilted(best, slope, -1.0), _tilted(other, slope, -1.0)
    else:
        best, other, bracketed, step = _interpolate(best, other, at, search.bracketed, limits)
    width, before = search.width, search.width_before
    if bracketed:
        if abs(other.step - best.step) >= 0.66 * before:
            step = best.step + 0.5 * (other.step - best.step)
        width, before = abs(other.step - best.step), width
        low, high = min(best.step, other.step), max(best.step, other.step)
    else:
        low, high = step + 1.1 * (step - best.step), step + 4.0 * (step - best.step)
    step = max(min(step, longest), 0.0)
    if bracketed and (step <= low or step >= high or high - low <= WIDTH * high):
        step = best.step
    return Search(start, best, other, bracketed, first, low, high, width, before), step


@compiled()
def _tilted(at: Point, slope: float, sign: float) -> Point:
    return Point(at.step, at.value - sign * at.step * slope, at.slope - sign * slope)


@compiled()
def _interpolate(
    best: Point, other: Point, at: Point, bracketed: bool, limits: tuple[float, float]
) -> tuple[Point, Point, bool, float]:
    """Return the next interval and step, by cubic and quadratic interpolation in the four cases of the article."""
    turned = at.slope * (1.0 if best.slope > 0.0 else -1.0) < 0.0
    apart = at.step - best.step
    if at.value > best.value:  # 1: a higher value brackets the minimum
        theta, gamma = _cubic(best, at, False)
        gamma = -gamma if at.step < best.step else gamma
        ratio = ((gamma - best.slope) + theta) / (((gamma - best.slope) + gamma) + at.slope)
        cubic = best.step + ratio * apart
        quadratic = best.step + ((best.slope / ((best.value - at.value) / apart + best.slope)) / 2.0) * apart
        closer = abs(cubic - best.step) < abs(quadratic - best.step)
        step, bracketed = (cubic if closer else cubic + (quadratic - cubic) / 2.0), True
    elif turned:  # 2: a slope of the other sign brackets it
        theta, gamma = _cubic(best, at, False)
        gamma = -gamma if at.step > best.step else gamma
        ratio = ((gamma - at.slope) + theta) / (((gamma - at.slope) + gamma) + best.slope)
        cubic = at.step - ratio * apart
        quadratic = at.step - (at.slope / (at.slope - best.slope)) * apart
        step, bracketed = (cubic if abs(cubic - at.step) > abs(quadratic - at.step) else quadratic), True
    elif abs(at.slope) < abs(best.slope):  # 3: the slope becomes less
        step = _with_less_slope(best, other, at, bracketed, limits)
    elif bracketed:  # 4: it does not
        theta, gamma = _cubic(other, at, False)
        gamma = -gamma if at.step > other.step else gamma
        ratio = ((gamma - at.slope) + theta) / (((gamma - at.slope) + gamma) + other.slope)
        step = at.step + ratio * (other.step - at.step)
    else:
        step = limits[1] if at.step > best.step else limits[0]
    if at.value > best.value:
        return best, at, bracketed, step
    return at, (best if turned else other), bracketed, step


@compiled()
def _with_less_slope(best: Point, other: Point, at: Point, bracketed: bool, limits: tuple[float, float]) -> float:
    """Return the next step in the third case."""
    apart = at.step - best.step
    theta, gamma = _cubic(best, at, True)
    gamma = -gamma if at.step > best.step else gamma
    ratio = ((gamma - at.slope) + theta) / ((gamma + (best.slope - at.slope)) + gamma)
    if ratio < 0.0 and gamma != 0.0:
        cubic = at.step - ratio * apart
    else:
        cubic = limits[1] if at.step > best.step else limits[0]
    quadratic = at.step - (at.slope / (at.slope - best.slope)) * apart
    if bracketed:
        step = cubic if abs(cubic - at.step) < abs(quadratic - at.step) else quadratic
        bound = at.step + 0.66 * (other.step - at.step)
        return min(bound, step) if at.step > best.step else max(bound, step)
    step = cubic if abs(cubic - at.step) > abs(quadratic - at.step) else quadratic
    return max(limits[0], min(limits[1], step))


@compiled()
def _cubic(first: Point, at: Point, floored: bool) -> tuple[float, float]:
    """Return theta and gamma of the cubic through two points, which determine its minimum (Moré and Thuente 1994)."""
    theta = 3.0 * (first.value - at.value) / (at.step - first.step) + first.slope + at.slope
    scale = max(abs(theta), abs(first.slope), abs(at.slope))
    inside = (theta / scale) * (theta / scale) - (first.slope / scale) * (at.slope / scale)
    return theta, scale * sqrt(max(inside, 0.0) if floored else inside)
