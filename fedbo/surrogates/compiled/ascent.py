"""Newton's method inside the unit cube: `newton_ascent` and, for few starts in one or two inputs, `newton_ascent_2d`."""

from __future__ import annotations

from math import hypot, sqrt
from typing import Any

import numpy as np

from fedbo.surrogates.compiled.jit import compiled
from fedbo.surrogates.compiled.surface import Kernels, Waves, derivatives, in_the_plane, plane_coefficients

Array = Any
TINY = 1e-300


@compiled()
def ascent(
    waves: Waves, kernels: Kernels, offset: float, x: Array, bounds: Array, tolerance: float, iterations: int, place: Array
) -> float:
    """Return the best local maximum of a draw that the starts `x (d, k)` reach; write its point to `place (d,)`."""
    d = len(x)
    value, gradient, hessian = derivatives(waves, kernels, offset, x)
    radius, step, gain = np.ones(x.shape[1]), np.empty(x.shape), np.empty(x.shape[1])
    for _ in range(iterations):
        for i in range(x.shape[1]):
            gain[i] = _step(x, gradient, hessian, i, bounds, radius[i], step)
        kept = _live(value, gain, tolerance)
        if len(kept) == 0:
            break
        there = np.empty((d, len(kept)))
        for i in range(len(kept)):
            for k in range(d):
                there[k, i] = min(max(x[k, kept[i]] + step[k, kept[i]], 0.0), 1.0)
        new_value, new_gradient, new_hessian = derivatives(waves, kernels, offset, there)
        new_radius = np.empty(len(kept))
        for i in range(len(kept)):
            old = kept[i]
            new_radius[i] = 2.0 * radius[old]
            if new_value[i] > value[old]:
                continue
            new_value[i], new_radius[i] = value[old], 0.0  # it does not rise: a quarter of the step is allowed next
            for k in range(d):
                new_radius[i] = max(new_radius[i], 0.25 * abs(step[k, old] / bounds[k]))
                there[k, i], new_gradient[k, i] = x[k, old], gradient[k, old]
                for other in range(d):
                    new_hessian[k, other, i] = hessian[k, other, old]
        x, value, gradient, hessian, radius = there, new_value, new_gradient, new_hessian, new_radius
    winner = np.argmax(value)
    for k in range(d):
        place[k] = x[k, winner]
    return float(value[winner])


@compiled()
def _live(value: Array, gain: Array, tolerance: float) -> Array:
    """Return the starts to climb on from: the best one and those that may overtake it; none if none can gain."""
    first = np.argmax(value)
    best = value[first]
    small = tolerance * max(1.0, abs(best))
    kept, count, promising = np.empty(len(value), np.int64), 0, 0
    for i in range(len(value)):
        promises = gain[i] > small and value[i] + 4.0 * gain[i] > best
        promising += promises
        if promises or i == first:  # the best stays even when it has arrived: it is what the others must beat
            kept[count] = i
            count += 1
    return kept[: count if promising else 0]


@compiled()
def _step(x: Array, gradient: Array, hessian: Array, i: int, bounds: Array, radius: float, step: Array) -> float:
    """Write the Newton step of start i within the cube and the bounds; return its first-order gain."""
    d = len(x)
    slope, bend = np.empty(d), np.empty((d, d))
    for k in range(d):
        slope[k] = gradient[k, i]
        for other in range(d):
            bend[k, other] = hessian[k, other, i]
    for k in range(d):
        at = x[k, i]
        if (at <= 0.0 or at >= 1.0) and (at < 0.5) == (gradient[k, i] < 0.0):
            slope[k] = 0.0
            bend[k, :] = 0.0
            bend[:, k] = 0.0
    along = _uphill(slope, bend)
    longest = 0.0
    for k in range(d):
        longest = max(longest, abs(along[k] / bounds[k]))
    shrink = min(1.0, radius / max(longest, TINY))
    gain = 0.0
    for k in range(d):
        step[k, i] = min(max(x[k, i] + along[k] * shrink, 0.0), 1.0) - x[k, i]
        gain += slope[k] * step[k, i]
    if gain > 0.0:
        return gain
    # The cube cut the step short and turned it downhill, or there is no slope left: follow the plain gradient.
    longest, gain = 0.0, 0.0
    for k in range(d):
        longest = max(longest, abs(slope[k] / bounds[k]))
    for k in range(d):
        step[k, i] = min(max(x[k, i] + slope[k] / max(longest, TINY) * radius, 0.0), 1.0) - x[k, i]
        gain += slope[k] * step[k, i]
    return gain


@compiled()
def _uphill(slope: Array, bend: Array) -> Array:
    """Return |H|^-1 g, where |H| has the absolute eigenvalues of H, which reverses steps of positive curvature."""
    d = len(slope)
    axes = np.eye(d)
    _diagonalise(bend, axes)
    largest, along = TINY, np.zeros(d)
    for k in range(d):
        largest = max(largest, abs(bend[k, k]))
    for k in range(d):
        projected = 0.0
        for other in range(d):
            projected += axes[other, k] * slope[other]
        projected /= max(abs(bend[k, k]), TINY, 1e-9 * largest)
        for other in range(d):
            along[other] += axes[other, k] * projected
    return along


@compiled()
def _diagonalise(a: Array, axes: Array) -> None:
    """Turn a symmetric matrix `(d, d)` into a diagonal one by Jacobi's rotations, and `axes` with it."""
    d = len(a)
    for _ in range(30):
        off, on = 0.0, 0.0
        for p in range(d):
            on += a[p, p] * a[p, p]
            for q in range(p):
                off += a[p, q] * a[p, q]
        if off <= 1e-34 * on or off < 1e-300:
            return
        for p in range(d):
            for q in range(p):
                if a[p, q] == 0.0:
                    continue
                theta = 0.5 * (a[q, q] - a[p, p]) / a[p, q]
                t = (1.0 if theta >= 0.0 else -1.0) / (abs(theta) + sqrt(1.0 + theta * theta))
                c = 1.0 / sqrt(1.0 + t * t)
                s = t * c
                for k in range(d):
                    first, second = a[k, p], a[k, q]
                    a[k, p], a[k, q] = c * first - s * second, s * first + c * second
                for k in range(d):
                    first, second = a[p, k], a[q, k]
                    a[p, k], a[q, k] = c * first - s * second, s * first + c * second
                    first, second = axes[k, p], axes[k, q]
                    axes[k, p], axes[k, q] = c * first - s * second, s * first + c * second
                a[p, q] = a[q, p] = 0.0


@compiled()
def ascent_one_by_one(waves: Waves, starts: Array, bounds: Array, tolerance: float, iterations: int, place: Array) -> float:
    """Maximise waves alone, as `ascent`, from starts `(k, d)` with d <= 2; finish each climb before the next."""
    d = starts.shape[1]
    bound = bounds[0], (bounds[1] if d == 2 else 1.0)
    coefficients, cosine, sine = plane_coefficients(waves), np.empty(len(waves[1])), np.empty(len(waves[1]))
    best, highest = -np.inf, (0.0, 0.0)
    for i in range(len(starts)):
        at = starts[i, 0], (starts[i, 1] if d == 2 else 0.0)
        here, radius = in_the_plane(waves, coefficients, at, cosine, sine), 1.0
        for _ in range(iterations):
            dx, dy, gain = _plane_step(here, at, (radius * bound[0], radius * bound[1]))
            if gain <= tolerance * max(1.0, abs(here[0])) or here[0] + 4.0 * gain <= best:
                break
            there = in_the_plane(waves, coefficients, (at[0] + dx, at[1] + dy), cosine, sine)
            if there[0] > here[0]:
                at, here, radius = (at[0] + dx, at[1] + dy), there, 2.0 * radius
            else:
                radius = 0.25 * max(abs(dx) / bound[0], abs(dy) / bound[1])
        if here[0] > best:
            best, highest = here[0], at
    for k in range(d):
        place[k] = highest[k]
    return best


@compiled()
def _plane_step(here: Any, at: tuple[float, float], limit: tuple[float, float]) -> Any:
    """Return a Newton step within the square and the limits, and its first-order gain."""
    x, y = at
    _, gx, gy, hxx, hxy, hyy = here
    if (x <= 0.0 and gx < 0.0) or (x >= 1.0 and gx > 0.0):
        gx = hxx = hxy = 0.0
    if (y <= 0.0 and gy < 0.0) or (y >= 1.0 and gy > 0.0):
        gy = hyy = hxy = 0.0
    dx, dy = _plane_uphill(gx, gy, hxx, hxy, hyy)
    shrink = max(abs(dx) / limit[0], abs(dy) / limit[1], 1.0)
    dx, dy = _inside(x, dx / shrink), _inside(y, dy / shrink)
    gain = gx * dx + gy * dy
    if gain <= 0.0:
        longest = max(abs(gx) / limit[0], abs(gy) / limit[1], TINY)
        dx, dy = _inside(x, gx / longest), _inside(y, gy / longest)
        gain = gx * dx + gy * dy
    return dx, dy, gain


@compiled()
def _plane_uphill(gx: float, gy: float, hxx: float, hxy: float, hyy: float) -> tuple[float, float]:
    """Return |H|^-1 g as a combination of g and Hg."""
    middle, half = 0.5 * (hxx + hyy), hypot(0.5 * (hxx - hyy), hxy)
    high, low = middle + half, middle - half
    floor = max(1e-9 * max(abs(high), abs(low)), TINY)
    f_high, f_low = 1.0 / max(abs(high), floor), 1.0 / max(abs(low), floor)
    slope = (f_high - f_low) / (high - low) if half > 1e-9 * abs(middle) else 0.0
    level = f_low - slope * low
    return level * gx + slope * (hxx * gx + hxy * gy), level * gy + slope * (hxy * gx + hyy * gy)


@compiled()
def _inside(at: float, step: float) -> float:
    return min(max(at + step, 0.0), 1.0) - at
