"""Draws under a learned prior against its posterior mean and variance."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.algorithms.learned_prior.learned_prior import Moments, believe, flat_prior, learned_prior, predictor
from fedbo.algorithms.learned_prior.several_prior import drawn_function

DESIGN = np.linspace(0.0, 1.0, 20)[:, None]


@pytest.mark.parametrize("n", [0, 6])
@pytest.mark.parametrize("kind", ["learned", "flat"])
def test_draws_have_the_mean_and_the_variance_of_the_posterior(kind: str, n: int) -> None:
    """600 draws at 5 points, seed 4: within 5 standard errors, 30 % of a variance, and a floor of the features."""
    rng = np.random.default_rng(4)
    moments = Moments(np.sin(4 * DESIGN[:, 0]), 0.5 * np.vstack([np.cos(3 * DESIGN[:, 0]), DESIGN[:, 0]]), 0.05)
    prior = learned_prior(DESIGN, moments, 0.2) if kind == "learned" else flat_prior(1, 0.3, 2.0)
    x = rng.random((n, 1))
    belief = believe(prior, prior.parameters, x, np.sin(4 * x[:, 0]) + 0.1 * rng.standard_normal(n))
    at = np.linspace(0.05, 0.95, 5)[:, None]
    found = np.array([drawn_function(belief, np.random.default_rng([9, k]))(at) for k in range(600)])
    law = predictor(belief)(at)
    mean, variance = prior.centre + prior.scale * law.mean, prior.scale**2 * law.variance
    assert (np.abs(found.mean(axis=0) - mean) < 5 * np.sqrt(variance / len(found)) + 1e-3).all()
    np.testing.assert_allclose(found.var(axis=0), variance, rtol=0.3, atol=0.01 * prior.scale**2 * prior.parameters.variance)
