"""Aggregation with missing clients: the mean over those that responded, and the effective number of clients in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.algorithms.components.centres import Aggregation

POLICIES = ("flag", "wait")


@dataclass(frozen=True, slots=True)
class MissingPolicy:
    """A policy for missing clients.

    - "flag": the mean over the clients that responded, with a report of the number of missing ones. Where clients differ it is
      biased. Suppose no client's function is more than `heterogeneity` z from the mean of all, at any point, and N - n of N
      clients are missing. Then the bias is at most min(1, (N - n) / n) z, since deviations of all clients sum to zero. The
      width grows by that bound.
    - "wait": no client is missing, since a phase ends after all have responded.

    With a robust `aggregation` a centre replaces the mean; it is within z of the mean of all.
    """

    policy: str
    heterogeneity: float
    aggregation: Aggregation = Aggregation()

    def mean(self, means: Array) -> tuple[Array, Array]:
        """Average means `(n, K)` of n clients; return `(K,)`, NaN where no client has one, and their counts.

        A count is the number of clients, or of equally weighted clients with the same scatter.
        """
        there = ~np.isnan(means)
        weights = there.astype(np.float64)
        total, squares = weights.sum(axis=0), (weights**2).sum(axis=0)
        if not self.aggregation.is_mean:
            centre, count, known = np.full(len(total), np.nan), np.zeros(len(total)), total > 0
            centre[known] = self.aggregation.of(means[:, known], weights[:, known])
            count[known] = total[known] ** 2 / squares[known] / self.aggregation.widening**2
            return centre, count
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.nansum(weights * np.where(there, means, 0.0), axis=0) / total, np.where(
                total > 0, total**2 / squares, 0.0
            )

    def bias(self, n: Array, clients: int) -> Array | float:
        """Bound the bias of a mean over n of N clients."""
        if not self.aggregation.is_mean:
            return self.heterogeneity
        if not self.heterogeneity:
            return 0.0
        with np.errstate(divide="ignore"):
            return np.minimum(1.0, (clients - n) / n) * self.heterogeneity
