"""The privacy budget of a study, and the filter that refuses releases beyond it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array, Mechanism, Problem
from fedbo.privacy.accounting import Spending
from fedbo.privacy.gaussian import PrivacyCharge, gaussian_epsilon, sensitivities
from fedbo.privacy.ledger import inverse
from fedbo.privacy.noise import secret_key
from fedbo.privacy.secure_aggregation import SecureAggregation

if TYPE_CHECKING:
    from fedbo.privacy.study_table import PrivacyTable
    from fedbo.study.study_tables import StudyTables


@dataclass(slots=True)
class AggregatorState:
    """The mutable state of a run's private aggregation.

    - `held (N, M)`: the messages of the open release, `norms (N,)` their norms, and `bases (N,)` the rounds in which their
      steps began, -1 where there is none.
    - `clip`: the clipping norm S.
    - `spent (N,)`: the sum of the squares of the norms of all charges without amplification.
    - `eligible`: agents that could be sampled for the open release; `sampled`: those that were.
    - `charges`: those with amplification, each for the agent with the highest cost.
    - `release`: the number of the open release.
    - `budget_exhausted`: there will be no more releases; `announced`: the agents that have been notified of it.
    """

    held: Array
    norms: Array
    bases: npt.NDArray[np.int64]
    clip: float
    spent: Array
    eligible: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    charges: list[PrivacyCharge] = field(default_factory=list)
    release: int = 0
    budget_exhausted: bool = False
    announced: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PrivacyBudget:
    """The privacy budget of a study: the `deltas` at which epsilon is reported, and `epsilon_max` at the smallest of them.

    At the smallest delta epsilon is largest, so the limit holds at all of them.

    With `secure_noise` coins and noise come from the system's entropy, and not from the study's seed. With
    `secure_aggregation` the coordinator learns sums of messages alone.
    """

    deltas: tuple[float, ...] = (1e-5,)
    epsilon_max: float | None = None
    secure_noise: bool = False
    secure_aggregation: SecureAggregation | None = None

    @property
    def binding_delta(self) -> float:
        """Return the delta at which `epsilon_max` binds."""
        return min(self.deltas)


DEFAULT_BUDGET = PrivacyBudget()


def budget_of(study: StudyTables) -> PrivacyBudget:
    """Return the privacy budget that a study sets."""
    asked: PrivacyTable = study.privacy
    masks = asked.secure_aggregation.make() if asked.secure_aggregation is not None else None
    return PrivacyBudget(asked.deltas or DEFAULT_BUDGET.deltas, asked.epsilon_max, asked.secure_noise, masks)


def noise_key(budget: PrivacyBudget | None, file: Path) -> bytes | None:
    """Return the key of a run's secure noise, which is in its folder until the run has ended; None for seeded noise."""
    return secret_key(file) if budget is not None and budget.secure_noise else None


class PrivacyFilter:
    """A privacy filter: computes the cost of a release, and refuses it if that is beyond the budget."""

    def __init__(self, mechanism: Mechanism, problem: Problem, budget: PrivacyBudget, amplified: bool) -> None:
        self._mechanism, self._problem, self._budget, self._amplified = mechanism, problem, budget, amplified
        self._spending: Spending | None = None

    def cost(
        self, state: AggregatorState, weights: Array, staleness_weights: Array, arrived: npt.NDArray[np.int64]
    ) -> tuple[PrivacyCharge, npt.NDArray[np.int64], Array]:
        """Return the cost of the open release: the greatest charge, the agents to charge, and their norms."""
        mechanism = self._mechanism
        norms = sensitivities(mechanism, weights)
        if not self._amplified:
            charged, norms = arrived, norms[arrived] * staleness_weights[arrived]
            return PrivacyCharge(1.0, inverse(float(norms.max(initial=0.0)))), charged, norms
        charged = np.union1d(np.array(self._problem.targets), np.array(state.eligible, dtype=np.int64)).astype(np.int64)
        norms = norms[charged]
        population = len(state.eligible) if mechanism.sampling == "fixed" else 0
        if mechanism.sampling == "fixed" and not population:
            return PrivacyCharge(1.0, math.inf), charged[:0], norms[:0]
        if mechanism.sampling == "fixed":  # whom an agent displaces may show by a larger part that it was asked
            norms = np.where(norms > 0, norms.max(), 0.0)
        return PrivacyCharge(mechanism.share, inverse(float(norms.max())), mechanism.sampling, population), charged, norms

    def refusal(self, state: AggregatorState, charge: PrivacyCharge, charged: npt.NDArray[np.int64], norms: Array) -> str:
        """Return why this release may not be made; empty if it may."""
        most = self._budget.epsilon_max
        if state.budget_exhausted:
            return "the privacy budget is spent"
        if most is None or not self._mechanism.noise:  # what is not private has no budget
            return ""
        delta = self._budget.binding_delta
        if not self._amplified:
            mu = math.sqrt(float((state.spent[charged] + norms**2).max(initial=0.0)))
            epsilon = float(gaussian_epsilon(np.array([mu]), delta)[0])
        else:
            epsilon = self._running(state).after(charge)
        if epsilon <= most:
            return ""
        return f"epsilon would be {epsilon:.4g} at delta = {delta:.4g}, but epsilon_max is {most:g}"

    def _running(self, state: AggregatorState) -> Spending:
        if self._spending is None:  # also after a snapshot was read
            self._spending = Spending(
                self._budget.binding_delta, "rdp" if self._mechanism.sampling == "fixed" else "pld", state.charges
            )
        return self._spending

    def spend(self, state: AggregatorState, charge: PrivacyCharge, charged: npt.NDArray[np.int64], norms: Array) -> None:
        """Record the cost of a release."""
        if not self._amplified:
            state.spent[charged] += norms**2
        elif len(charged):
            state.charges.append(charge)
            if self._budget.epsilon_max is not None:
                self._running(state).add(charge)
