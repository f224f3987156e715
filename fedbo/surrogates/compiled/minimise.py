"""L-BFGS-B (Byrd, Lu, Nocedal and Zhu 1995; Morales and Nocedal 2011) for hyperparameters and for acquisitions.

There are so few variables that the quasi-Newton matrix is formed explicitly, from a multiple of the identity by the BFGS
updates of the last ten steps. This equals the compact form. The rules are those of SciPy, so that the steps agree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedbo.surrogates.compiled.evidence import negative_log_posterior
from fedbo.surrogates.compiled.improvement import negative_acquisition
from fedbo.surrogates.compiled.jit import compiled
from fedbo.surrogates.compiled.line_search import Point, advance, begin, has_ended

Array = Any


class Workspace(NamedTuple):
    """Workspace space of a descent: matrices `(p, p)` and vectors `(p,)`, since allocation costs more than their use."""

    matrix: Array
    left: Array
    image: Array
    cauchy: Array
    d: Array
    ends: Array
    moved: Array
    target: Array
    free: Array


EPSILON = 2.220446049250313e-16
MEMORY, TRIALS = 10, 20
GRADIENT_TOLERANCE = 1e-5


@compiled()
def _evaluate(model: Any, x: Array, gradient: Array) -> float:
    """Return the value of a model at `x (p,)`, and write its gradient.

    The compiler keeps only the branch of the model's type.
    """
    if len(model) == 8:
        return negative_log_posterior(model, x, gradient)
    return negative_acquisition(model, x, gradient)


@compiled()
def _projected_gradient(x: Array, gradient: Array, bounds: Array) -> float:
    largest = 0.0
    for i in range(len(x)):
        if gradient[i] < 0.0:
            largest = max(largest, -max(x[i] - bounds[i, 1], gradient[i]))
        else:
            largest = max(largest, min(x[i] - bounds[i, 0], gradient[i]))
    return largest


@compiled()
def _product(matrix: Array, x: Array, total: Array) -> None:
    for i in range(len(x)):
        total[i] = 0.0
        for j in range(len(x)):
            total[i] += matrix[i, j] * x[j]


@compiled()
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@compiled()
def _along(gradient: Array, start: Array, end: Array) -> float:
    """Return the slope of a function on the line from one point to another."""
    total = 0.0
    for i in range(len(start)):
        total += gradient[i] * (end[i] - start[i])
    return total


@compiled()
def _copy(a: Array, b: Array) -> None:
    """Copy `b (p,)` to a; for few numbers an assignment of NumPy's takes longer."""
    for i in range(len(a)):
        a[i] = b[i]


@compiled()
def _quasi_newton(steps: Array, changes: Array, count: int, theta: float, room: Workspace) -> None:
    """Write the matrix B `(p, p)`: theta I, updated by `count` steps and changes of the gradient, the oldest first."""
    p, matrix, image = steps.shape[1], room.matrix, room.image
    for i in range(p):
        for j in range(p):
            matrix[i, j] = theta if i == j else 0.0
    for k in range(count):
        _product(matrix, steps[k], image)
        along, bent = 1.0 / _dot(steps[k], image), 1.0 / _dot(steps[k], changes[k])
        for i in range(p):
            to, back = changes[k, i] * bent, image[i] * along
            for j in range(p):
                matrix[i, j] += to * changes[k, j] - back * image[j]


@compiled()
def _cauchy_point(x: Array, gradient: Array, bounds: Array, room: Workspace) -> None:
    """Write the first minimum of the quadratic model along the projected gradient; `free` marks variables off their bounds."""
    p, point, d, ends, moved, free = len(x), room.cauchy, room.d, room.ends, room.moved, room.free
    for i in range(p):
        point[i], moved[i], d[i], ends[i] = x[i], 0.0, 0.0, np.inf
        below, above = x[i] - bounds[i, 0], bounds[i, 1] - x[i]
        pinned = bounds[i, 1] <= bounds[i, 0] or (below <= 0.0 and gradient[i] >= 0.0) or (above <= 0.0 and gradient[i] <= 0.0)
        free[i] = not pinned
        if pinned or gradient[i] == 0.0:
            continue
        d[i] = -gradient[i]
        ends[i] = below / gradient[i] if gradient[i] > 0.0 else above / -gradient[i]
    reached, first = 0.0, 0.0
    while True:
        _product(room.matrix, moved, room.image)
        slope = _dot(gradient, d) + _dot(d, room.image)
        _product(room.matrix, d, room.image)
        bend = _dot(d, room.image)
        first = max(first, bend)
        if slope >= 0.0 or bend <= 0.0:
            return
        step, next_ = -slope / max(bend, EPSILON * first), -1
        for i in range(p):
            if d[i] != 0.0 and (next_ < 0 or ends[i] < ends[next_]):
                next_ = i
        if step < ends[next_] - reached:
            for i in range(p):
                point[i] += step * d[i]
            return
        step = ends[next_] - reached
        for i in range(p):
            if i != next_:
                point[i] += step * d[i]
                moved[i] += step * d[i]
        point[next_] = bounds[next_, 1] if d[next_] > 0.0 else bounds[next_, 0]
        moved[next_] = point[next_] - x[next_]
        reached, d[next_], free[next_] = ends[next_], 0.0, False


@compiled()
def _subspace_step(x: Array, gradient: Array, room: Workspace) -> None:
    """Write the step `d (p,)` from the Cauchy point to the model's minimum over the free inputs."""
    p, right, matrix, free, left = len(x), room.d, room.matrix, room.free, room.left
    for i in range(p):
        room.moved[i] = room.cauchy[i] - x[i]
    _product(matrix, room.moved, right)
    for i in range(p):
        right[i] = -gradient[i] - right[i] if free[i] else 0.0
        for j in range(p):
            left[i, j] = matrix[i, j] if free[i] and free[j] else 1.0 if i == j else 0.0
    for k in range(p):  # by elimination: the matrix is positive definite
        for i in range(k + 1, p):
            weight = left[i, k] / left[k, k]
            for j in range(k, p):
                left[i, j] -= weight * left[k, j]
            right[i] -= weight * right[k]
    for k in range(p - 1, -1, -1):
        for j in range(k + 1, p):
            right[k] -= left[k, j] * right[j]
        right[k] /= left[k, k]


@compiled()
def _aim(x: Array, gradient: Array, bounds: Array, direct: bool, room: Workspace) -> None:
    """Write where the line search leads to: the Cauchy point, or the minimum over the free inputs from there, within bounds."""
    p, cauchy, d, target, free = len(x), room.cauchy, room.d, room.target, room.free
    _cauchy_point(x, gradient, bounds, room)
    _copy(target, cauchy)
    if not direct or not free.any():
        return
    _subspace_step(x, gradient, room)
    slope, inside = 0.0, True
    for i in range(p):
        if free[i]:
            end = cauchy[i] + d[i]
            target[i] = min(max(end, bounds[i, 0]), bounds[i, 1])
            inside = inside and target[i] == end
        slope += (target[i] - x[i]) * gradient[i]
    if inside or slope <= 0.0:
        return
    # The projection does not lead down: go along the step up to the first bound.
    part, first = 1.0, -1
    for i in range(p):
        if not free[i] or d[i] == 0.0:
            continue
        left = bounds[i, 1] - cauchy[i] if d[i] > 0.0 else bounds[i, 0] - cauchy[i]
        if abs(left) < abs(part * d[i]):
            part, first = left / d[i], i
    for i in range(p):
        target[i] = cauchy[i] + part * d[i] if free[i] else cauchy[i]
    if first >= 0:
        target[first] = bounds[first, 1] if d[first] > 0.0 else bounds[first, 0]


@compiled()
def _longest(x: Array, target: Array, bounds: Array) -> float:
    """Return the multiple of the step to the target at which the first bound is reached."""
    longest = 1e10
    for i in range(len(x)):
        d = target[i] - x[i]
        end = bounds[i, 1] - x[i] if d > 0.0 else bounds[i, 0] - x[i]
        if d != 0.0 and abs(d * longest) > abs(end):
            longest = end / d
    return max(longest, 0.0)


@compiled()
def _search(model: Any, start: Array, target: Array, value: float, gradient: Array, longest: float, there: Array) -> Any:
    """Search along the way to the target: whether a step was found, the value and the step; point and gradient are written."""
    bounds = model.bounds
    slope, step = _along(gradient, start, target), min(1.0, longest)
    if slope >= 0.0:
        return False, value, step
    search = begin(value, slope, step, longest)
    for _ in range(TRIALS):
        for i in range(len(start)):
            there[i] = min(max(start[i] + step * (target[i] - start[i]), bounds[i, 0]), bounds[i, 1])
            if step == 1.0:
                there[i] = target[i]
        value = _evaluate(model, there, gradient)
        if not value < np.inf:
            return False, value, step
        at = Point(step, value, _along(gradient, start, target))
        if has_ended(search, at, longest):
            return True, value, step
        search, step = advance(search, at, longest)
    return False, value, step


@compiled()
def _bend(x: Array, start: Array, gradient: Array, before: Array) -> float:
    """Return the product of a step and the change of the gradient."""
    total = 0.0
    for i in range(len(x)):
        total += (x[i] - start[i]) * (gradient[i] - before[i])
    return total


@compiled()
def _remember(steps: Array, changes: Array, count: int, x: Array, start: Array, gradient: Array, before: Array) -> int:
    """Append a step and a change of the gradient, over the oldest pair when the memory is full; return the number of pairs."""
    if count == MEMORY:
        for k in range(MEMORY - 1):
            _copy(steps[k], steps[k + 1])
            _copy(changes[k], changes[k + 1])
        count -= 1
    for i in range(len(x)):
        steps[count, i], changes[count, i] = x[i] - start[i], gradient[i] - before[i]
    return count + 1


@compiled()
def descend(model: Any, theta: Array, most: int, tolerance: float) -> float:
    """Descend from `theta (p,)`, which is moved to where the descent ends, in at most so many steps; the value there.

    The descent ends where a step gains no more than `tolerance` times max(1, |value|).
    """
    p, bounds = len(theta), model.bounds
    gradient, there, start, before = np.empty(p), np.empty(p), np.empty(p), np.empty(p)
    steps, changes, count, scale = np.empty((MEMORY, p)), np.empty((MEMORY, p)), 0, 1.0
    v, off = np.empty((6, p)), np.empty(p, np.bool_)
    room = Workspace(np.empty((p, p)), np.empty((p, p)), v[0], v[1], v[2], v[3], v[4], v[5], off)
    value = _evaluate(model, theta, gradient)
    done = 0
    while value < np.inf and done < most and _projected_gradient(theta, gradient, bounds) > GRADIENT_TOLERANCE:
        _quasi_newton(steps, changes, count, scale, room)
        _aim(theta, gradient, bounds, count > 0, room)
        _copy(start, theta)
        _copy(before, gradient)
        last, target = value, room.target
        longest = _longest(start, target, bounds) if done else 1.0
        found, value, step = _search(model, start, target, last, gradient, longest, there)
        if not value < np.inf:
            return np.inf
        if not found:
            value = last
            _copy(gradient, before)
            if count == 0:
                break
            count, scale = 0, 1.0  # begin again along the gradient
            continue
        _copy(theta, there)
        done += 1
        if last - value <= tolerance * max(abs(last), abs(value), 1.0):
            break
        bent = _bend(there, start, gradient, before)
        if bent > -EPSILON * step * _along(before, start, target):
            count = _remember(steps, changes, count, there, start, gradient, before)
            scale = _dot(changes[count - 1], changes[count - 1]) / bent
    return float(value)
