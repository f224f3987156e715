"""Value, gradient and Hessian of a draw at several points at once."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from fedbo.surrogates.compiled.elementary import exponential, sine_cosine
from fedbo.surrogates.compiled.grid import MATERN32, SE
from fedbo.surrogates.compiled.jit import BOOL, INT, MATRIX, VECTOR, Tuple, compiled

Array = Any
Waves = tuple[Array, Array, Array, bool]  # frequencies (m, d), phases (m,), weights (m,), and whether |phi(x)| is constant
Kernels = tuple[int, Array, Array, Array]  # family, centres (n, d) over the length scale, weights (n,), 1 / length scale (d,)
Derivatives = tuple[Array, Array, Array]
WAVES, KERNELS = Tuple((MATRIX, VECTOR, VECTOR, BOOL)), Tuple((INT, MATRIX, VECTOR, VECTOR))


@compiled()
def derivatives(waves: Waves, kernels: Kernels, offset: float, x: Array) -> Derivatives:
    """Return value `(k,)`, gradient `(d, k)` and Hessian `(d, d, k)` at points `x (d, k)`."""
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
    """Add the sums over the features for two inputs in one loop over the points, where |phi(x)| is not constant."""
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
def plane_coefficients(waves: Waves) -> Array:
    """Return the coefficients `(m, 11)` of cosines and sines in `in_the_plane`; a missing second input has frequency 0."""
    frequencies, phases, weights, _ = waves
    found = np.empty((len(phases), 11))
    for j in range(len(phases)):
        w, s = weights[j], frequencies[j, 0]
        t = frequencies[j, 1] if frequencies.shape[1] == 2 else 0.0
        found[j, 0], found[j, 1], found[j, 2], found[j, 3] = w, -(w * s * s), -(w * t * s), -(w * t * t)
        found[j, 4], found[j, 5], found[j, 6], found[j, 7] = -(w * s), -(w * t), s, t
        found[j, 8], found[j, 9], found[j, 10] = 2.0 * s * s, 2.0 * t * s, 2.0 * t * t
    return found


@compiled()
def in_the_plane(waves: Waves, coefficients: Array, at: tuple[float, float], cosine: Array, sine: Array) -> Any:
    """Return value, gradient and Hessian at one point in up to two inputs as six numbers, equal to `derivatives` bit for bit.

    There the loop over the points is vectorised, here that over the features; `cosine` and `sine (m,)` are overwritten.
    """
    frequencies, phases, _, constant = waves
    planar = frequencies.shape[1] == 2
    for j in range(len(phases)):
        cosine[j] = phases[j] + frequencies[j, 0] * at[0]
    for j in range(len(phases) if planar else 0):
        cosine[j] += frequencies[j, 1] * at[1]
    for j in range(len(phases)):
        sine[j], cosine[j] = sine_cosine(cosine[j])
    value, gx, gy, hxx, hxy, hyy = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    norm, u, v, bxx, bxy, byy = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(phases)):
        c, s = cosine[j], sine[j]
        value += coefficients[j, 0] * c
        hxx += coefficients[j, 1] * c
        hxy += coefficients[j, 2] * c
        hyy += coefficients[j, 3] * c
        gx += coefficients[j, 4] * s
        gy += coefficients[j, 5] * s
    if constant:
        for j in range(len(phases)):
            c = cosine[j]
            both, bend = c * sine[j], 1.0 - 2.0 * c * c
            norm += c * c
            u += coefficients[j, 6] * both
            v += coefficients[j, 7] * both
            bxx += coefficients[j, 8] * bend
            bxy += coefficients[j, 9] * bend
            byy += coefficients[j, 10] * bend
        inverse, half = 1.0 / norm, 0.5 * value  # as in `_normalise`
        root = sqrt(inverse)
        u, v = u * (-2.0 * inverse), v * (-2.0 * inverse)
        gx, gy = gx - half * u, gy - half * v
        x, y = gx - 0.5 * half * u, gy - 0.5 * half * v
        hxx = (hxx - (0.5 * (x * u + x * u) + half * inverse * bxx)) * root
        hxy = (hxy - (0.5 * (y * u + x * v) + half * inverse * bxy)) * root
        hyy = (hyy - (0.5 * (y * v + y * v) + half * inverse * byy)) * root
        value, gx, gy = value * root, gx * root, gy * root
    return (value, gx, gy, hxx, hxy, hyy) if planar else (value, gx, 0.0, hxx, 0.0, 0.0)


@compiled()
def _normalise(value: Array, gradient: Array, hessian: Array, norm: Array, slope: Array, bend: Array) -> None:
    """Convert derivatives of g = sum w cos to those of g / sqrt(q); q = sum cos^2 has gradient -2 `slope`, Hessian `bend`."""
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
