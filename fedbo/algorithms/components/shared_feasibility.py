"""Where evaluations succeed: an agent's probabilities at the design points, and those of others as its prior.

A squared-exponential kernel weights the outcomes near a point, and one outcome of the prior's probability comes on top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.algorithms.components.failures import REACHES

REACH = REACHES[-1]
LEAST = 1e-12


class Outcomes(NamedTuple):
    """An agent's evaluated points `u (n, e)`, and whether they succeeded, `succeeded (n,)`, 0 or 1."""

    u: Array
    succeeded: Array

    @property
    def rate(self) -> float:
        """Return the share of successes, with one success more, so that it is never 0."""
        return float((self.succeeded.sum() + 1.0) / (len(self.succeeded) + 1.0))


class Prior(NamedTuple):
    """The others' probabilities `told (M,)` at design points `design (M, e)`; without points, `rate` everywhere."""

    design: Array
    told: Array
    rate: float

    def at(self, u: Array) -> tuple[Array, Array]:
        """Return the probability at points `u (m, e)`, smoothed between the design points, and its gradient `(m, e)`."""
        if not len(self.told):
            return np.full(len(u), self.rate), np.zeros_like(u)
        near, slopes = _likeness(u, self.design)
        total = near.sum(axis=1) + LEAST  # far from all design points the rate is left
        value = (near @ self.told + LEAST * self.rate) / total
        slope = np.einsum("nme,m->ne", slopes, self.told) - value[:, None] * slopes.sum(axis=1)
        return value, slope / total[:, None]


def outcomes_of(u: Array, failed: Array | None) -> Outcomes:
    """Return the outcomes of observed points `u (n, e)` and of failed ones `(f, e)`."""
    lost = u[:0] if failed is None else failed
    return Outcomes(np.concatenate([u, lost]), np.concatenate([np.ones(len(u)), np.zeros(len(lost))]))


def success(outcomes: Outcomes, prior: Prior, u: Array) -> tuple[Array, Array]:
    """Return the probability of success at points `u (m, e)`, `(m,)`, and its gradient `(m, e)`."""
    value, slope = prior.at(u)
    near, slopes = _likeness(u, outcomes.u)
    total = near.sum(axis=1) + 1.0
    found = (near @ outcomes.succeeded + value) / total
    rise = np.einsum("nme,m->ne", slopes, outcomes.succeeded) + slope - found[:, None] * slopes.sum(axis=1)
    return found, rise / total[:, None]


def _likeness(u: Array, centres: Array) -> tuple[Array, Array]:
    """Return the likeness `(m, c)` of points to centres, and its gradients `(m, c, e)`."""
    apart, square = u[:, None, :] - centres[None, :, :], REACH**2 * u.shape[1]
    near = np.exp(-0.5 * (apart**2).sum(axis=2) / square)
    return near, -near[:, :, None] * apart / square
