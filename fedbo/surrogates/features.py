"""Random Fourier features: phi(x)'phi(z) approximates a stationary kernel (FTS appendix A)."""

from __future__ import annotations

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
