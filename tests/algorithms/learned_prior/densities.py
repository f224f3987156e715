"""The density that the parameters of a learned prior maximise, as a function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.algorithms.learned_prior import learned_prior as lp
from fedbo.surrogates.compiled.evidence import evidence_of, negative_log_posterior, squares_of


def density_function(prior: lp.LearnedPrior, x: Array, y: Array) -> Callable[[Array], tuple[float, Array]]:
    """Return minus the log posterior density, with its gradient, as a function of log parameters `(4,)`."""
    number, columns, values, shared, priors = lp.evidence(prior, x, y)
    model = evidence_of(number, squares_of(columns), values[0], priors, lp.LIMITS, shared)

    def density(theta: Array) -> tuple[float, Array]:
        gradient = np.empty(4)
        return negative_log_posterior(model, theta, gradient), gradient

    return density
