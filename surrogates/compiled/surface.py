"""Value, gradient and Hessian of a draw at several points at once: `draws.derivatives`."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from fedbo.surrogates.compiled.elementary import exponential, sine_cosine
from fedbo.surrogates.compiled.grid import MATERN32, SE
from fedbo.surrogates.compiled.jit import compiled

Array = Any
Waves = tuple[Array, Array, Array, bool]  # frequencies (m, d), phases (m,), weights (m,), and whether |phi(x)| is constant
Kernels = tuple[int, Array, Array, Array]  # family, centres (n, d) over the length scale, weights (n,), 1 / length scale (d,)
Derivatives = tuple[Array, Array, Array]


@compiled()
def derivatives(waves: Waves, kernels: Kernels, offset: float, x: Array) -> Derivatives:
    """Value `(k,)`, gradient `(d, k)` and Hessian `(d, d, k)` at points `x (d, k)`."""
    d, count = x.shape
    value, gradient, hessian = np.zeros(count), np.zeros((d, count)), np.zeros((d, d, count))
    if d == 2 and not waves[3]:
        _add_waves_in_the_plane(waves, x, value, gradient, hessian)
    else:
        _add_waves(waves, x, value, gradient, hessian)
    _add_kernels(kernels, x, value, gradient, hessian)
    for k in range(d):
        for other in range(k):
            hessian[other, k] = hessian[k, other]
    value += offset
    return value, gradient, hessian


@compiled()
def _add_waves(waves: Waves, x: Array, value: Array, gradient: Array, hessian: Array) -> None:
    frequencies, phases, weights, constant = waves
    d, count = x.shape
    cosine, sine = np.empty(count), np.empty(count)
    norm, slope, bend = np.zeros(count), np.zeros((d, count)), np.zeros((d, d, count))
    for j in range(len(phases)):
        w = weights[j]
        for i in range(count):
            cosine[i] = phases[j]
        for k in range(d):
            for i in range(count):
                cosine[i] += frequencies[j, k] * x[k, i]
        for i in range(count):
            sine[i], cosine[i] = sine_cosine(cosine[i])
        for i in range(count):
            value[i] += w * cosine[i]
        for k in range(d):
            s = frequencies[j, k]
            for i in range(count):
                gradient[k, i] -= w * s * sine[i]
            for other in range(k + 1):
                rise = w * s * frequencies[j, other]
                for i in range(count):
                    hessian[k, other, i] -= rise * cosine[i]
        if constant:
            for i in range(count):
                norm[i] += cosine[i] * cosine[i]
            for k in range(d):
                s = frequencies[j, k]
                for i in range(count):
                    slope[k, i] += s * (cosine[i] * sine[i])
                for other in range(k + 1):
                    rise = 2.0 * s * frequencies[j, other]
                    for i in range(count):  # the Hessian of cos^2 is 2 s s' (1 - 2 cos^2)
                        bend[k, other, i] += rise * (1.0 - 2.0 * cosine[i] * cosine[i])
    if constant:
        _normalise(value, gradient, hessian, norm, slope, bend)


@compiled()
def _add_waves_in_the_plane(waves: Waves, x: Array, value: Array, gradient: Array, hessian: Array) -> None:
    """The same sums for two inputs in one loop over the points, where |phi(x)| is not constant."""
    frequencies, phases, weights, _ = waves
    for j in range(len(phases)):
        w, s, t = weights[j], frequencies[j, 0], frequencies[j, 1]
        for i in range(len(value)):
            sine, cosine = sine_cosine(phases[j] + s * x[0, i] + t * x[1, i])
            value[i] += w * cosine
            gradient[0, i] -= w * s * sine
            gradient[1, i] -= w * t * sine
            hessian[0, 0, i] -= w * s * s * cosine
            hessian[1, 0, i] -= w * t * s * cosine
            hessian[1, 1, i] -= w * t * t * cosine


@compiled()
def _normalise(value: Array, gradient: Array, hessian: Array, norm: Array, slope: Array, bend: Array) -> None:
    """From g = sum w cos to g / sqrt(q) with q = sum cos^2, of gradient -2 `slope` and Hessian `bend`."""
    d, count = gradient.shape
    for i in range(count):
        inverse, half = 1.0 / norm[i], 0.5 * value[i]
        root = sqrt(inverse)
        for k in range(d):
            slope[k, i] *= -2.0 * inverse  # the gradient of log q
            gradient[k, i] -= half * slope[k, i]
        for k in range(d):
            for other in range(k + 1):
                cross = (gradient[k, i] - 0.5 * half * slope[k, i]) * slope[other, i]
                cross += (gradient[other, i] - 0.5 * half * slope[other, i]) * slope[k, i]
                hessian[k, other, i] -= 0.5 * cross + half * inverse * bend[k, other, i]
                hessian[k, other, i] *= root
        for k in range(d):
            gradient[k, i] *= root
        value[i] *= root


@compiled()
def _radial(family: int, v: float, value: Array, slope: Array, bend: Array) -> None:
    """Add v times the correlation at the squared distances in `slope (k,)`, and write v times its two derivatives by them."""
    count = len(value)
    if family == SE:
        for i in range(count):
            c = v * exponential(-0.5 * slope[i])
            value[i] += c
            slope[i], bend[i] = -0.5 * c, 0.25 * c
    elif family == MATERN32:
        for i in range(count):
            r = sqrt(3.0) * sqrt(slope[i])
            e = v * exponential(-r)
            value[i] += (1.0 + r) * e
            slope[i], bend[i] = -1.5 * e, 2.25 * e / max(r, 1e-12)
    else:
        for i in range(count):
            r = sqrt(5.0) * sqrt(slope[i])
            e = v * exponential(-r)
            value[i] += (1.0 + r + r * r / 3.0) * e
            slope[i], bend[i] = (-5.0 / 6.0) * (1.0 + r) * e, (25.0 / 12.0) * e


@compiled()
def _add_kernels(kernels: Kernels, x: Array, value: Array, gradient: Array, hessian: Array) -> None:
    family, centres, weights, inverse = kernels
    d, count = x.shape
    apart, slope, bend = np.empty((d, count)), np.empty(count), np.empty(count)
    for j in range(len(weights)):
        for i in range(count):
            slope[i] = 0.0
        for k in range(d):
            for i in range(count):
                apart[k, i] = x[k, i] * inverse[k] - centres[j, k]
                slope[i] += apart[k, i] * apart[k, i]
        _radial(family, weights[j], value, slope, bend)
        for k in range(d):
            for i in range(count):
                apart[k, i] *= inverse[k]
                gradient[k, i] += 2.0 * slope[i] * apart[k, i]
            for other in range(k + 1):
                for i in range(count):
                    hessian[k, other, i] += 4.0 * bend[i] * apart[k, i] * apart[other, i]
            for i in range(count):
                hessian[k, k, i] += 2.0 * slope[i] * inverse[k] * inverse[k]
