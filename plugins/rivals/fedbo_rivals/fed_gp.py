"""Additive federated Gaussian process: the sums of all agents' statistics on shared features are one global surrogate.

After FBO-FedGP (2025, withdrawn from ICLR 2026), without its encryption, and with random features for its support set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbo.algorithms.base import Array, Decision
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.collaborative import CollaborativeState, Surface
from fedbo.algorithms.components.schedules import Schedule, check_probability, probability
from fedbo.algorithms.components.surrogate import LocalState, scaled
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import check
from fedbo.surrogates.acquisition import Prediction, log_expected_improvement, prediction
from fedbo.surrogates.posterior import predict
from fedbo_rivals.ensemble import Ensemble, means, predictions
from fedbo_rivals.feature_sums import FeatureStatistics, FeatureSums, global_mean, linear_posterior


@dataclass(frozen=True, slots=True)
class FedGP(FeatureSums):
    """Additive federated Gaussian process; `FeatureSums` has the settings that are not named here.

    The global surrogate is the posterior given all others' observations as if of one function, with values shifted and scaled
    by each agent. The agent maximises the expected improvement of a mixture: p_t times the mean and variance of its posterior
    and 1 - p_t times the global ones.

    p: the schedule of p_t, which rises with t.
    """

    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.COMPUTABLE

    p: Schedule = "1-1/sqrt(t)"
    """Share of the own surrogate in iteration t: a number or a schedule."""

    def __post_init__(self) -> None:
        check(self)
        check_probability(self.p, "p")

    def _scores(self, y: Array) -> Array:
        centred, spread = scaled(self.own.clipped(y))
        return centred / spread

    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        if state.answer is None:
            return self._own_query(state, streams)
        sums = FeatureStatistics(**state.answer)
        state = self._fitted(state, streams)
        local = state.local
        others = linear_posterior(self.shared(streams, local.u.shape[1]), sums, self.noise)
        share = probability(self.p, state.t)
        return self._maximise(self._improvement(local, others, share), local, streams, "federated"), state

    def _improvement(self, local: LocalState, others: Ensemble, share: float) -> Surface:
        """Return the acquisition: without observations the mean of the others."""
        if not len(local.u):
            return lambda u: global_mean(others, u)
        posterior = self.own.posterior(local)
        mean = share * predict(posterior, local.u)[0] + (1.0 - share) * means(others, local.u)[:, 0]
        best = float(mean.max())

        def surface(u: Array) -> tuple[Array, Array]:
            return log_expected_improvement(mixed(prediction(posterior, u), predictions(others, u), share), best)

        return surface


def mixed(own: Prediction, others: Prediction, share: float) -> Prediction:
    """Mix means and variances, with this share of the own prediction `(n,)`; those of the others are `(n, 1)`."""

    def mix(mine: Array, theirs: Array) -> Array:
        return share * mine + (1.0 - share) * theirs[:, 0]

    return Prediction(
        mean=mix(own.mean, others.mean),
        variance=mix(own.variance, others.variance),
        mean_gradient=mix(own.mean_gradient, others.mean_gradient),
        variance_gradient=mix(own.variance_gradient, others.variance_gradient),
    )


ENTRY = Entry(FedGP, summary="a global surrogate from sums of shared random features, mixed with each agent's own")
