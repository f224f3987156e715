"""Random Fourier features: phi(x)'phi(z) approximates a stationary kernel (FTS appendix A)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Derivatives = tuple[Array, Array, Array]
DEGREES_OF_FREEDOM = {"matern32": 3.0, "matern52": 5.0}
KERNELS = ("se", *DEGREES_OF_FREEDOM)


class Features(NamedTuple):
    """One set of features: frequencies s `(m, d)`, phases b `(m,)`, signal variance, and whether |phi(x)|^2 is it."""

    frequencies: Array
    phases: Array
    variance: float = 1.0
    normalise: bool = True


def draw_features(
    rng: np.random.Generator,
    dim: int,
    count: int,
    length_scale: float | Array | tuple[float, ...],
    kernel: str = "se",
    *,
    variance: float = 1.0,
    normalise: bool = True,
) -> Features:
    """Draw `count` features of `dim` inputs: s ~ N(0, l^-2 I) for "se", b ~ U(0, 2 pi) (FTS appendix A).

    The spectral density of a Matern kernel is a multivariate t. Frequencies are unit frequencies divided by the length
    scale, so another length scale with the same generator state is the same set, rescaled. Raises ValueError when the
    kernel is none of "se", "matern32", "matern52".
    """
    if kernel not in KERNELS:
        raise ValueError(f"no features for kernel {kernel!r}; available: {', '.join(KERNELS)}")
    unit = rng.standard_normal((count, dim))
    phases = rng.uniform(0.0, 2.0 * np.pi, count)
    if kernel != "se":
        freedom = DEGREES_OF_FREEDOM[kernel]
        unit *= np.sqrt(freedom / rng.chisquare(freedom, (count, 1)))
    return Features(unit / np.asarray(length_scale), phases, float(variance), normalise)


def phi(features: Features, x: Array) -> Array:
    """Return the feature rows of the points `x (n, d)`, shape `(n, m)` (FTS appendix A)."""
    c: Array = x @ features.frequencies.T
    c += features.phases
    np.cos(c, out=c)
    if features.normalise:
        norm: Array = np.sqrt(np.einsum("ij,ij->i", c, c))
        c *= (sqrt(features.variance) / norm)[:, None]
    else:
        c *= sqrt(2.0 * features.variance / features.phases.size)
    return c


def derivatives(features: Features, omega: Array) -> Callable[[Array], Derivatives]:
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

    These give q = sum cos^2 and its Hessian from cos^2. The result is cached, since all agents share one feature set; the key
    is the bits of the numbers.
    """
    return _second_moments(s.tobytes(), len(s))


@lru_cache(maxsize=32)
def _second_moments(frequencies: bytes, m: int) -> tuple[Array, Array, Array]:
    s = np.frombuffer(frequencies).reshape(m, -1)
    squares = (s[:, :, None] * s[:, None, :]).reshape(m, -1)
    ones = np.ones((m, 1))
    constant = 2.0 * squares.sum(axis=0).reshape(s.shape[1], s.shape[1])
    return np.hstack([ones, -squares]), np.hstack([ones, -4.0 * squares]), constant
