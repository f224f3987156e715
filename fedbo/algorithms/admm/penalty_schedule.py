"""The penalty rho of ADMM from round to round, its residuals, and when they are small enough to stop.

A round is as many messages as there are agents. An answer after fewer messages, as in asynchronous exchange, counts as that
share of a round. Rules that are not in the text come from Boyd et al. 2011 (Foundations and Trends in Machine Learning 3(1)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbo.algorithms.base import Array


class PenaltyState(NamedTuple):
    """The progress of ADMM.

    rounds: closed rounds.
    factor: the factor by which rho is balanced.
    primal, dual: the norms r and s of the last round, in native units.
    settled: rounds since r or s was last above the tolerance.
    done: whether ADMM has converged.
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

    rho_k = `start`^max(0, 1 - k / `reached`) `rho`. It starts small, since agents that agree before they know their objectives
    agree in the wrong basin. With `balance` m > 0, rho is then doubled when r > m s, and halved when s > m r (Boyd et al. 2011,
    (3.13)). Balancing ends after `balanced` rounds, so that rho becomes constant.

    ADMM ends when r <= `tolerance` sqrt(p) and s <= rho `tolerance` sqrt(p) in `patience` consecutive rounds. p is the number
    of coupled quantities of all agents. With tolerance 0 it never ends.
    """

    rho: float
    start: float
    reached: float
    balance: float
    balanced: float
    tolerance: float
    patience: int

    def at(self, progress: PenaltyState) -> float:
        """Return rho for the coming round."""
        return self._grown(progress) * self.rho * progress.factor

    def _grown(self, progress: PenaltyState) -> float:
        return 1.0 if self.start == 1 else float(self.start ** max(0.0, 1.0 - progress.rounds / self.reached))

    def next(self, progress: PenaltyState, residuals: tuple[float, float], count: int, share: float) -> PenaltyState:
        """Update the progress with the residuals r and s of `count` coupled quantities, after a round or a `share` of one."""
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
        return PenaltyState(progress.rounds + share, factor, primal, dual=dual, settled=settled, done=done)


def penalty_payload(penalty: PenaltySchedule, progress: PenaltyState, used: float) -> dict[str, Array]:
    """Return the fields of every answer besides the values: rho used and next, r and s, and whether ADMM has ended."""
    residuals = np.array([min(progress.primal, 1e300), min(progress.dual, 1e300)])
    return {"rho": np.array([used, penalty.at(progress)]), "residuals": residuals, "done": np.array([float(progress.done)])}
