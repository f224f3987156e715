"""Draws from the posterior of a Gaussian process with a learned prior, by pathwise conditioning (Wilson et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.learned_prior import Belief, residual_kernel, rows_of

Array = npt.NDArray[np.float64]
FEATURES = 200  # of the prior draw of the residual process


def drawn_function(belief: Belief, rng: np.random.Generator) -> Callable[[Array], Array]:
    """Draw a function from a belief: values `(n,)` at points `(n, e)`, in the units of the observations.

    The prior draw has normal weights of the directions, and random features in place of the residual process; only these are
    approximate.
    """
    prior, parameters = belief.prior, belief.parameters
    kernel, dim = residual_kernel(prior, parameters), belief.x.shape[1]
    features = draw_features(rng, dim, FEATURES, kernel.length_scale, "matern52", variance=parameters.variance, normalise=False)
    weights, along = rng.standard_normal(FEATURES), sqrt(parameters.tau) * rng.standard_normal(prior.rank)
    noise = sqrt(parameters.noise_variance) * rng.standard_normal(len(belief.x))
    v = belief.alpha
    if len(belief.x):
        drawn = belief.rows[:, 1:] @ along + phi(features, belief.x) @ weights + noise
        v = v - scipy.linalg.cho_solve((belief.factor, True), drawn)

    def values(u: Array) -> Array:
        rows = rows_of(prior, u)
        found = rows[:, 0] + rows[:, 1:] @ along + phi(features, u) @ weights
        if len(belief.x):
            found = found + (parameters.tau * rows[:, 1:] @ belief.rows[:, 1:].T + kernel(u, belief.x)) @ v
        return np.asarray(prior.centre + prior.scale * found)

    return values
