"""Quantile transfer (Salinas, Shen, Perrone 2020): values as Gaussian-copula scores, and a prior that all agents fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import scipy
from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.collaborative import CollaborativeState, Surface
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import Prediction, log_expected_improvement, prediction
from fedbo_rivals.ensemble import Ensemble
from fedbo_rivals.feature_sums import FeatureStatistics, FeatureSums, global_mean, linear_posterior

NARROWEST = 0.05  # the least standard deviation of scores about the prior mean


@dataclass(frozen=True, slots=True)
class QuantileTransfer(FeatureSums):
    """Quantile transfer; `FeatureSums` has the settings that are not named here.

    Every agent turns its values into scores z, the normal quantiles of their ranks, which need no common scale. All agents fit
    the prior z ~ N(mu(x), sigma^2) to the scores of all. mu is a linear model on shared random features, fitted by sums alone.

    search: "gp" models (z - mu(x)) / sigma by the agent's surrogate and maximises the expected improvement of z (Gaussian
      copula process with prior). "thompson" draws a score from the prior at each of `candidates` uniform points and evaluates
      the best one (copula Thompson sampling). It never uses the agent's observations.
    """

    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.COMPUTABLE

    search: Annotated[str, OneOf(("gp", "thompson"))] = "gp"
    """Expected improvement under prior and own surrogate, or draws from the prior."""
    candidates: Annotated[int, Ge(1)] = 2000
    """Uniform candidates of the draws."""

    def _scores(self, y: Array) -> Array:
        return scores(y)

    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        local = state.local
        if state.answer is None:
            return self._own_query(state, streams)
        sums = FeatureStatistics(**state.answer)
        prior = linear_posterior(self.shared(streams, local.u.shape[1]), sums, self.noise)
        sigma = residual_deviation(sums, prior.nu[0])
        if self.search == "thompson":
            rng = streams.rng("candidates")
            u = to_coordinates(rng.random((self.candidates, local.u.shape[1])), self.own.coordinates)
            drawn = global_mean(prior, u)[0] + sigma * rng.standard_normal(self.candidates)
            return self.own.fresh(u[int(drawn.argmax())], local, streams, "federated"), state
        return self._maximise(self._improvement(state, prior, sigma, streams), local, streams, "federated"), state

    def _improvement(self, state: CollaborativeState, prior: Ensemble, sigma: float, streams: Streams) -> Surface:
        """Return the logarithm of the expected improvement of the score: without observations the prior mean."""
        local = state.local
        if not len(local.u):
            return lambda u: global_mean(prior, u)
        z = scores(local.y)
        # Every value changes the scores of all others: no fit of before is kept. Nothing is clipped, for scores have no tail.
        own = replace(self.own, clip=0.0)
        residual = own.fit(changed(local, y=(z - global_mean(prior, local.u)[0]) / sigma, hyper=None), streams)
        posterior = own.posterior(residual)
        assert residual.hyper is not None
        offset, scale = sigma * residual.hyper.offset, sigma * residual.hyper.scale

        def score(u: Array, at: Prediction) -> Prediction:
            mean, gradient = global_mean(prior, u)
            return Prediction(
                mean + offset + scale * at.mean,
                scale**2 * at.variance,
                gradient + scale * at.mean_gradient,
                scale**2 * at.variance_gradient,
            )

        best = float(score(local.u, prediction(posterior, local.u)).mean.max())
        return lambda u: log_expected_improvement(score(u, prediction(posterior, u)), best)


def scores(y: Array) -> Array:
    """Turn values `(n,)` into scores: the normal quantiles of the shares of values that are not larger.

    Shares are kept delta away from 0 and 1, delta = 1 / (4 n^(1/4) sqrt(pi log n)) (section 4.1: the Winsorised distribution
    of Liu et al. 2009). A single value has the score 0.
    """
    n = len(y)
    if n < 2:
        return np.zeros(n)
    delta = 1.0 / (4.0 * n**0.25 * np.sqrt(np.pi * np.log(n)))
    share = np.searchsorted(np.sort(y), y, side="right") / n
    return np.asarray(scipy.special.ndtri(np.clip(share, delta, 1.0 - delta)))


def residual_deviation(sums: FeatureStatistics, nu: Array) -> float:
    """Return the root mean square of the scores about phi(x)'nu, from their statistics alone, clipped to [NARROWEST, 1]."""
    squares = float(sums.square[0] - 2.0 * nu @ sums.moment + nu @ sums.gram @ nu)
    return float(np.sqrt(np.clip(squares / max(sums.number[0], 1.0), NARROWEST**2, 1.0)))


ENTRY = Entry(QuantileTransfer, summary="rank scores, comparable over agents, with a prior that all agents fit together")
