"""Values, gradients and Hessians of draws in NumPy, against which the compiled ones are tested."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import numpy.typing as npt

from fedbo.surrogates.draws import Draw, KernelPart
from fedbo.surrogates.features import Derivatives, Features

Array = npt.NDArray[np.float64]


def derivatives(draw: Draw) -> Callable[[Array], Derivatives]:
    """Return a function that computes value `(n,)`, gradient `(n, d)` and Hessian `(n, d, d)` of the draw at `x (n, d)`."""
    parts = []
    if draw.features is not None and draw.weights is not None:
        parts.append(feature_derivatives(draw.features, draw.scale * draw.weights))
    if draw.kernel_part is not None:
        parts.append(kernel_derivatives(draw.kernel_part._replace(v=draw.scale * draw.kernel_part.v)))
    if len(parts) == 1 and draw.offset == 0.0:
        return parts[0]

    def together(x: Array) -> Derivatives:
        at_x = [part(x) for part in parts]
        first = at_x[0] if len(at_x) == 1 else tuple(a + b for a, b in zip(*at_x, strict=True))
        return first[0] + draw.offset, first[1], first[2]

    return together


def kernel_derivatives(part: KernelPart) -> Callable[[Array], Derivatives]:
    """Return value, gradient and Hessian of k(x, X)v."""
    kernel = part.kernel
    inverse = 1.0 / np.broadcast_to(np.asarray(kernel.length_scale), (part.x.shape[1],))
    centres, v = part.x * inverse, kernel.variance * part.v
    spread = 2.0 * np.diag(inverse**2)

    def at(x: Array) -> Derivatives:
        apart = (x * inverse)[:, None, :] - centres
        correlation, slope, bend = kernel.slopes(np.einsum("ijd,ijd->ij", apart, apart))
        apart *= inverse
        pull = slope * v
        gradient = 2.0 * np.matmul(pull[:, None, :], apart)[:, 0]
        outer = np.matmul(apart.transpose(0, 2, 1), (4.0 * bend * v)[:, :, None] * apart)
        return correlation @ v, gradient, outer + pull.sum(axis=1)[:, None, None] * spread

    return at


def feature_derivatives(features: Features, omega: Array) -> Callable[[Array], Derivatives]:
    """Return a function that computes value `(n,)`, gradient `(n, d)` and Hessian `(n, d, d)` of phi(x)'omega at `x (n, d)`."""
    s, b = features.frequencies, features.phases
    m, d = s.shape
    products, norm_even, norm_constant = second_moments(s)
    weighted = (omega * sqrt(features.variance * (1.0 if features.normalise else 2.0 / m)))[:, None]
    even, odd, transposed = weighted * products, weighted * -s, s.T

    def plain(x: Array) -> tuple[Array, Array, Array, Array, Array]:
        angle = x @ transposed
        angle += b
        cosine, sine = np.cos(angle), np.sin(angle)
        at_even = cosine @ even
        return cosine, sine, at_even[:, 0], sine @ odd, at_even[:, 1:].reshape(-1, d, d)

    if not features.normalise:
        return lambda x: plain(x)[2:]

    def normalised(x: Array) -> Derivatives:
        # phi'omega = g / sqrt(q) with q = sum cos^2 = |raw phi|^2 m / 2; u is the gradient of log q.
        cosine, sine, g, rise, bend = plain(x)
        q_even = (cosine * cosine) @ norm_even
        inverse = 1.0 / q_even[:, 0]
        root, half = np.sqrt(inverse), 0.5 * g
        u = ((cosine * sine) @ s) * (-2.0 * inverse)[:, None]
        rise -= half[:, None] * u
        cross = (rise - (0.5 * half)[:, None] * u)[:, :, None] * u[:, None, :]
        bend -= 0.5 * (cross + cross.transpose(0, 2, 1))
        bend -= (half * inverse)[:, None, None] * (q_even[:, 1:].reshape(-1, d, d) + norm_constant)
        return g * root, rise * root[:, None], bend * root[:, None, None]

    return normalised


def second_moments(s: Array) -> tuple[Array, Array, Array]:
    """Return [1, -s s'] and [1, -4 s s'], `(m, 1 + d^2)`, and 2 sum s s', `(d, d)`.

    These give q = sum cos^2 and its Hessian from cos^2.
    """
    squares, ones = (s[:, :, None] * s[:, None, :]).reshape(len(s), -1), np.ones((len(s), 1))
    constant = 2.0 * squares.sum(axis=0).reshape(s.shape[1], s.shape[1])
    return np.hstack([ones, -squares]), np.hstack([ones, -4.0 * squares]), constant
