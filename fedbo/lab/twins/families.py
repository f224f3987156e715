"""Families of durations for a world, fitted by maximum likelihood to many samples at once.

Samples are rows `(b, n)` of numbers above 0; the parameters of each are a row too, in the order and the meaning of the timing
model with the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special, stats

Array = npt.NDArray[np.float64]


class DurationFamily(NamedTuple):
    """A family of durations: the names of its parameters, its fit `(b, n) -> (b, k)`, its law, and its draws."""

    parameters: tuple[str, ...]
    fit: Callable[[Array], Array]
    law: Callable[[Array], Any]


def _exponential(samples: Array) -> Array:
    return np.asarray(samples.mean(axis=1, keepdims=True))


def _lognormal(samples: Array) -> Array:
    logs = np.log(samples)
    sigma = logs.std(axis=1)
    return np.stack([np.exp(logs.mean(axis=1) + 0.5 * sigma**2), sigma], axis=1)


def _gamma(samples: Array) -> Array:
    """Fit mean and shape k: log k - digamma(k) is the log of the mean minus the mean of the logs (Minka 2002)."""
    mean = samples.mean(axis=1)
    gap = np.maximum(np.log(mean) - np.log(samples).mean(axis=1), 1e-12)
    shape = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(5):
        slope = 1.0 / shape - special.polygamma(1, shape)
        shape = shape / (1.0 + (np.log(shape) - special.digamma(shape) - gap) / (shape * slope))
    return np.stack([mean, shape], axis=1)


def _pareto(samples: Array) -> Array:
    shortest = samples.min(axis=1)
    alpha = samples.shape[1] / np.maximum(np.log(samples / shortest[:, None]).sum(axis=1), 1e-300)
    return np.stack([shortest * alpha / (alpha - 1.0), alpha], axis=1)


FAMILIES: Mapping[str, DurationFamily] = {
    "exponential": DurationFamily(("mean",), _exponential, lambda p: stats.expon(scale=p[:, :1])),
    "lognormal": DurationFamily(
        ("mean", "sigma"), _lognormal, lambda p: stats.lognorm(p[:, 1:], scale=p[:, :1] * np.exp(-0.5 * p[:, 1:] ** 2))
    ),
    "gamma": DurationFamily(("mean", "shape"), _gamma, lambda p: stats.gamma(p[:, 1:], scale=p[:, :1] / p[:, 1:])),
    "pareto": DurationFamily(
        ("mean", "alpha"), _pareto, lambda p: stats.pareto(p[:, 1:], scale=p[:, :1] * (p[:, 1:] - 1.0) / p[:, 1:])
    ),
}
