"""Transfer acquisition function with ranking weights (Wistuba, Schilling, Schmidt-Thieme 2018), surrogates as messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt

from fedbo.algorithms.base import Array
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.gp import Posterior
from fedbo_rivals import rgpe
from fedbo_rivals.ensemble import Ensemble, discordance, means, means_with_gradients
from fedbo_rivals.transfer import Acquisition, Transfer, TransferState, own_improvement


@dataclass(frozen=True, slots=True)
class TAF(Transfer):
    """Transfer acquisition function; `Transfer` has the settings that are not named here.

    The method maximises a weighted mean of two kinds of improvements. One is the agent's expected improvement over the largest
    value observed. The others are each agent's predicted improvement max(0, mu_n(x) - best_n) over the largest value that it
    has seen. The weight of an agent is 3/4 (1 - (d / `bandwidth`)^2) below `bandwidth` and 0 above (Epanechnikov's kernel). d
    is the share of pairs of the agent's points that mu_n puts in another order, 0 for the agent itself.
    """

    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.COMPUTABLE

    bandwidth: Annotated[float, Gt(0)] = 0.5
    """Share of wrong pairs from which an agent has no weight."""

    @property
    def _incumbents(self) -> bool:
        return True

    def _acquisition(
        self, posterior: Posterior, state: TransferState, models: Ensemble, streams: Streams
    ) -> Acquisition | None:
        seen = len(state.local.y)  # points under way come after these
        apart = discordance(means(models, posterior.x[:seen]).T, state.local.y) / self.bandwidth
        weight = state.weight * np.maximum(1.0 - apart**2, 0.0)  # in units of the own surrogate's weight
        if not weight.any():
            return None
        own, total = own_improvement(posterior, seen), 1.0 + float(weight.sum())

        def acquisition(u: Array) -> tuple[Array, Array]:
            value, gradient = own(u)
            predicted, slope = means_with_gradients(models, u)
            gain = predicted - state.best
            value = value + np.maximum(gain, 0.0) @ weight
            gradient = gradient + np.einsum("nkd,nk->nd", slope, weight * (gain > 0))
            return value / total, gradient / total

        return acquisition


ENTRY = Entry(
    TAF,
    presets={"faithful": rgpe.FAITHFUL},
    summary="expected improvement combined with predictions of other agents' surrogates",
)
