"""The penalty rho of ADMM from round to round, its residuals, and when they are small enough to stop.

A round is as many messages as there are agents: where an answer follows on fewer, as in asynchronous exchange, it counts for
that share of one. Boyd et al. 2011 (Foundations and Trends in Machine Learning 3(1)) is the source of what is not in the text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbo.algorithms.base import Array


class PenaltyState(NamedTuple):
    """The progress of ADMM: rounds closed, the factor by which rho is balanced, residuals, and whether it has converged.

    `primal` and `dual` are the norms r and s of the last round, in native units; `settled` counts the rounds since they were
    last above the tolerance.
    """

    rounds: float = 0.0
    factor: float = 1.0
    primal: float = math.inf
    dual: float = math.inf
    settled: float = 0.0
    done: bool = False


@dataclass(frozen=True, slots=True)
class PenaltySchedule:
    """The schedule of the penalty rho, and the stopping criterion.

    rho_k = `start`^max(0, 1 - k / `reached`) `rho`: it grows from a share of rho, since agents that are pulled together before
    they know their objectives agree in the wrong basin. With `balance` m > 0 it is then doubled when r > m s, and halved when
    s > m r (Boyd et al. 2011, (3.13)), until `balanced` rounds have passed, so that it ends up constant.

    It is over when r <= `tolerance` sqrt(p) and s <= rho `tolerance` sqrt(p), where p is the number of coupled quantities of
    all agents, in `patience` rounds one after another; with tolerance 0 it never is.
    """

    rho: float
    start: float
    reached: float
    balance: float
    balanced: float
    tolerance: float
    patience: int

    def at(self, progress: PenaltyState) -> float:
        """Give rho for the coming round."""
        return self._grown(progress) * self.rho * progress.factor

    def _grown(self, progress: PenaltyState) -> float:
        return 1.0 if self.start == 1 else float(self.start ** max(0.0, 1.0 - progress.rounds / self.reached))

    def next(self, progress: PenaltyState, residuals: tuple[float, float], count: int, share: float) -> PenaltyState:
        """Take in what a round, or a `share` of one, has come to: r and s of `count` coupled quantities."""
        primal, dual = residuals
        factor = progress.factor
        if self.balance and self.reached <= progress.rounds < self.balanced:
            if primal > self.balance * dual:
                factor *= 2.0**share
            elif dual > self.balance * primal:
                factor /= 2.0**share
        limit = self.tolerance * math.sqrt(count)
        settled = progress.settled + share if primal <= limit and dual <= self.at(progress) * limit else 0.0
        done = progress.done or (self.tolerance > 0 and settled >= self.patience - 1e-9)
        return PenaltyState(progress.rounds + share, factor, primal, dual, settled, done)


def penalty_payload(penalty: PenaltySchedule, progress: PenaltyState, used: float) -> dict[str, Array]:
    """Write what every answer says beside the values themselves: rho used and next, r and s, and whether it is over."""
    residuals = np.array([min(progress.primal, 1e300), min(progress.dual, 1e300)])
    return {
        "rho": np.array([used, penalty.at(progress)]),
        "residuals": residuals,
        "done": np.array([float(progress.done)]),
    }
