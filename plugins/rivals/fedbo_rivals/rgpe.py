"""Ranking-weighted Gaussian process ensemble (Feurer, Letham, Bakshy 2018), with the surrogates of others as messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedbo.algorithms.base import Array
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components import surrogate
from fedbo.algorithms.components.surrogate import Surrogate
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import Prediction, expected_improvement, prediction
from fedbo.surrogates.gp import Posterior
from fedbo_rivals.ensemble import (
    Ensemble,
    combined,
    joint_draws,
    leave_one_out_draws,
    leave_one_out_loss,
    predictions,
    ranking_loss,
)
from fedbo_rivals.transfer import Acquisition, Transfer, TransferState

FEWEST = 3  # below so many points the left-out ranking says nothing of the own surrogate
DILUTION = 95.0  # percentile of the own surrogate's losses


@dataclass(frozen=True, slots=True)
class RGPE(Transfer):
    """Ranking-weighted Gaussian process ensemble; `Transfer` has the settings that are not named here.

    The weight of a surrogate is the share of `samples` joint draws in which it ranks the agent's points best. Surrogates of
    others are drawn at all points. The agent's surrogate is drawn without the point that is compared. A surrogate of others
    whose median loss exceeds the 95th percentile of the agent's has weight 0. The ensemble has mean sum w_n mu_n and variance
    sum w_n^2 sigma_n^2. The search maximises its expected improvement over the largest observed value.
    """

    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.COMPUTABLE

    samples: Annotated[int, Ge(1)] = 100
    """Draws from every surrogate."""

    def _acquisition(
        self, posterior: Posterior, state: TransferState, models: Ensemble, streams: Streams
    ) -> Acquisition | None:
        observed = posterior if state.local.waiting is None else self.own.posterior(changed(state.local, waiting=None))
        weight = self.ensemble_weights(observed, state, models, streams)
        if not weight[:-1].any():
            return None
        others, own, best = combined(models, weight[:-1]), float(weight[-1]), float(observed.y.max())

        def acquisition(u: Array) -> tuple[Array, Array]:
            return expected_improvement(_mixed(prediction(posterior, u), own, predictions(others, u)), best)

        return acquisition

    def ensemble_weights(self, posterior: Posterior, state: TransferState, models: Ensemble, streams: Streams) -> Array:
        """Return the weights `(k + 1,)` of k surrogates of others and, last, the agent's; their sum is 1.

        The posterior is that of the n observations, without pending points, since the ranking uses only observations. Draws in
        which the agent's surrogate is among the best count for it alone; other ties are shared.
        """
        y, rng = state.local.y, streams.rng("ranking")
        if len(y) < FEWEST:
            equal = np.append(state.weight, 1.0)
            return np.asarray(equal / equal.sum())
        others = ranking_loss(joint_draws(models, posterior.x, self.samples, rng), y)
        own = leave_one_out_loss(leave_one_out_draws(posterior, self.samples, rng), y)
        dropped = np.median(others, axis=1) > np.percentile(own, DILUTION)
        losses = np.vstack([np.where(dropped[:, None], np.inf, others), own])
        best = losses == losses.min(axis=0)
        best[:-1] &= ~best[-1]
        weight = (best / best.sum(axis=0)).mean(axis=1) * np.append(state.weight, 1.0)
        return np.asarray(weight / weight.sum())


def _mixed(own: Prediction, share: float, others: Prediction) -> Prediction:
    """Return the prediction of the agent's surrogate `(n,)`, with its weight, combined with that of all others, `(n, 1)`."""
    return Prediction(
        share * own.mean + others.mean[:, 0],
        share**2 * own.variance + others.variance[:, 0],
        share * own.mean_gradient + others.mean_gradient[:, 0],
        share**2 * own.variance_gradient + others.variance_gradient[:, 0],
    )


FAITHFUL = {
    "own": Surrogate(**surrogate.FAITHFUL),  # type: ignore[arg-type]
    "features": 100,
    "kernel": "se",
    "length_scale": 0.01,
    "noise": 1e-6,
    "centre": False,
    "every": 0,
}

ENTRY = Entry(RGPE, presets={"faithful": FAITHFUL}, summary="ranking-weighted ensemble of all agents' surrogates")
