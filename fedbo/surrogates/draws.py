"""A function draw as one type that agents maximise: an agent's draw, a mean, or a received message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.features import Derivatives, Features, draw_features, phi
from fedbo.surrogates.kernels import Kernel
from fedbo.surrogates.linear import draw_weights
from fedbo.surrogates.posterior import Hyperparameters, NotPositiveDefinite, Posterior

Array = npt.NDArray[np.float64]


class KernelPart(NamedTuple):
    """The function k(x, X)v: a kernel, points X `(n, d)`, and weights v `(n,)`."""

    kernel: Kernel
    x: Array
    v: Array


class Draw(NamedTuple):
    """The function offset + scale (phi(x)'weights + k(x, X)v); either part may be absent."""

    features: Features | None = None
    weights: Array | None = None
    kernel_part: KernelPart | None = None
    offset: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class WeightSpace:
    """How a draw is made in weight space: number of fresh features, beta_t, and whether |phi(x)| is made constant."""

    features: int = 200
    beta: float = 1.0
    normalise: bool = True


def value(draw: Draw, x: Array) -> Array:
    """Return the values of the draw at `x (n, d)`, shape `(n,)`."""
    total = np.zeros(len(x))
    if draw.features is not None and draw.weights is not None:
        total += phi(draw.features, x) @ draw.weights
    if draw.kernel_part is not None:
        part = draw.kernel_part
        total += part.kernel(x, part.x) @ part.v
    return draw.offset + draw.scale * total


def compiled_surface(draw: Draw, dim: int) -> tuple[Callable[[Array], Array], Callable[[Array], Derivatives]]:
    """Return `value` of a draw of `dim` inputs, and values with gradients and Hessians, as compiled functions."""
    from fedbo.surrogates.compiled.values import derivatives_at, values

    given = compiled_features(draw, dim), compiled_kernel(draw, dim), draw.offset
    return (
        lambda x: np.asarray(values(*given, np.ascontiguousarray(x))),
        lambda x: cast(Derivatives, derivatives_at(*given, np.ascontiguousarray(x))),
    )


def value_and_gradient(draw: Draw, x: Array) -> tuple[Array, Array]:
    """Return values `(n,)` and gradients `(n, d)` of the draw at `x (n, d)`."""
    at_x, gradient, _ = compiled_surface(draw, x.shape[1])[1](x)
    return at_x, gradient


def weight_space_draw(
    hyper: Hyperparameters,
    x: Array,
    y: Array,
    rng: np.random.Generator,
    settings: WeightSpace = WeightSpace(),  # noqa: B008
) -> Draw:
    """Draw f_t ~ GP(mu, beta^2 sigma^2) with fresh features at the learned length scale (FTS Alg. 1, appendix A)."""
    features = draw_features(
        rng,
        x.shape[1],
        settings.features,
        hyper.length_scale,
        hyper.family,
        variance=hyper.variance,
        normalise=settings.normalise,
    )
    standard = (y - hyper.offset) / hyper.scale
    weights = draw_weights(phi(features, x), standard, hyper.noise_variance, rng, settings.beta)
    return Draw(features, weights, None, hyper.offset, hyper.scale)


def pathwise_draw(posterior: Posterior, rng: np.random.Generator, count: int = 200, beta: float = 1.0) -> Draw:
    """Draw from the exact posterior by pathwise conditioning.

    It is a prior draw f_0 of `count` features plus k(x, X)(K + sigma^2 I)^-1 (y - f_0(X) - eps). Only the prior draw
    is approximate (Wilson et al. 2020); f_0 and eps are multiplied by beta.
    """
    hyper, x = posterior.hyper, posterior.x
    scale, family = hyper.length_scale, hyper.family
    features = draw_features(rng, x.shape[1], count, scale, family, variance=hyper.variance, normalise=False)
    weights = beta * rng.standard_normal(count)
    noise = (beta * sqrt(hyper.noise_variance)) * rng.standard_normal(len(x))
    if len(x) == 0:
        return Draw(features, weights, None, hyper.offset, hyper.scale)
    shift = scipy.linalg.lapack.dpotrs(posterior.factor, phi(features, x) @ weights + noise, lower=1)[0]
    return Draw(features, weights, KernelPart(hyper.kernel, x, posterior.alpha - shift), hyper.offset, hyper.scale)


def posterior_draw(
    hyper: Hyperparameters, x: Array, y: Array, rng: np.random.Generator, count: int = 200, beta: float = 1.0
) -> Draw:
    """Draw from the exact posterior given `x (n, d)`, `y (n,)` as `pathwise_draw` does, without forming the posterior.

    Raises NotPositiveDefinite when the jitter ladder ends.
    """
    from fedbo.surrogates.compiled.draws import pathwise

    scale, kernel = hyper.length_scale, hyper.kernel
    features = draw_features(rng, x.shape[1], count, scale, hyper.family, variance=hyper.variance, normalise=False)
    weights = beta * rng.standard_normal(count)
    if len(x) == 0:
        return Draw(features, weights, None, hyper.offset, hyper.scale)
    v = (beta * sqrt(hyper.noise_variance)) * rng.standard_normal(len(x))
    levels = (hyper.variance, hyper.noise_variance)
    standard = (y - hyper.offset) / hyper.scale
    waves = (features.frequencies, features.phases, weights)
    if pathwise(kernel.number, x, standard, _inverse(kernel, x.shape[1]), *levels, *waves, v) < 0.0:
        raise NotPositiveDefinite(f"no Cholesky factor of {(len(x), len(x))} at any rung of the jitter ladder")
    return Draw(features, weights, KernelPart(kernel, x, v), hyper.offset, hyper.scale)


def compiled_features(draw: Draw, dim: int) -> tuple[Array, Array, Array, bool]:
    """Return the features of a draw in the form of `compiled.surface`, with weights in units of the draw."""
    features, weights = draw.features, draw.weights
    if features is None or weights is None:
        return *_nothing(dim)[:3], False
    level = features.variance if features.normalise else 2.0 * features.variance / len(features.phases)
    return features.frequencies, features.phases, weights * (draw.scale * sqrt(level)), features.normalise


def compiled_kernel(draw: Draw, dim: int) -> tuple[int, Array, Array, Array]:
    """Return the kernel part of a draw in the form of `compiled.surface`: scaled points, and weights in units of the draw."""
    part = draw.kernel_part
    if part is None:
        none, empty, _, ones = _nothing(dim)
        return 0, none, empty, ones
    inverse = _inverse(part.kernel, dim)
    return part.kernel.number, part.x * inverse, part.v * (draw.scale * part.kernel.variance), inverse


@lru_cache(maxsize=64)
def _nothing(dim: int) -> tuple[Array, Array, Array, Array]:
    """Return the empty kernel part: no points `(0, d)`, no weights, and a scale of 1 for each input."""
    return np.empty((0, dim)), np.empty(0), np.empty(0), np.ones(dim)


def _inverse(kernel: Kernel, dim: int) -> Array:
    """Return 1 over the length scale, `(d,)`."""
    inverse = np.empty(dim)
    inverse[:] = kernel.length_scale
    return 1.0 / inverse


def message_function(features: Features, omega: Array) -> Draw:
    """Return the function phi(x)'omega of a received message omega `(m,)` (FTS Alg. 1 line 6)."""
    return Draw(features, omega)
