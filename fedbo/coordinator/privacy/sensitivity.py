"""The Gaussian mechanism: clipping, the deviations of the noise, and the sensitivity that the noise hides."""

from __future__ import annotations

import math

import numpy as np

from fedbo.algorithms.base import Array, Mechanism

LARGEST_NOISE = 1e150  # noise multiplier whose square is still finite


def clip_factors(norms: Array, bound: float) -> tuple[Array, int]:
    """Return the factors `(n,)` that clip messages with `norms (n,)` to the norm `bound`, and the number of those clipped."""
    if math.isinf(bound):
        return np.ones(len(norms)), 0
    return bound / np.maximum(norms, bound), int((norms > bound).sum())


def noise_stds(mechanism: Mechanism, weights: Array, clip: float) -> Array:
    """Return the standard deviations `(P,)` of the noise in the blocks of a release, at the clipping norm `clip`."""
    if not mechanism.noise:
        return np.zeros(len(weights))
    largest = weights.max(axis=1) if mechanism.per_block else np.full(len(weights), weights.max())
    return _vector_noise(mechanism) * largest * clip / mechanism.share


def sensitivities(mechanism: Mechanism, weights: Array) -> Array:
    """Return each agent's sensitivity `(N,)`: its largest contribution to a release, each block over its noise's deviation.

    At most 1 / z, and less where an agent's weights are small in some blocks: with the actual weights, a release costs less
    than its bound S phi_max / q.
    """
    if not mechanism.noise:
        return np.where(weights.max(axis=0) > 0, math.inf, 0.0)
    largest = weights.max(axis=1, keepdims=True) if mechanism.per_block else weights.max()
    squares = ((weights / largest) ** 2).mean(axis=0) / min(_vector_noise(mechanism), LARGEST_NOISE) ** 2
    if mechanism.quantile is not None:
        squares = squares + (0.5 / mechanism.count_noise) ** 2
    return np.asarray(np.sqrt(squares))


def _vector_noise(mechanism: Mechanism) -> float:
    """Return the noise multiplier of the vectors alone: the noisy count uses its part of z (Andrew et al. 2021, Theorem 1)."""
    if mechanism.quantile is None:
        return mechanism.noise
    return float((mechanism.noise**-2 - (2 * mechanism.count_noise) ** -2) ** -0.5)
