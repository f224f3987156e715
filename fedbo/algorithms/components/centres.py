"""Aggregation of many agents' vectors: their mean, or a robust centre, which some of them cannot move far (Yin et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt
from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt

from fedbo.algorithms.base import Array
from fedbo.settings.ranges import Marked, OneOf

RULES = ("mean", "median", "trimmed_mean", "median_of_means")


@dataclass(frozen=True, slots=True)
class Aggregation(Marked):
    """The aggregation of vectors, number by number; weights count as so many agents.

    A single agent moves the "mean" as far as it likes. The "median" stays among the honest numbers as long as liars have less
    than half of the weight. The "trimmed_mean" leaves out the share `trim` of the weight at either end, and withstands as much.
    "median_of_means" is the weighted median of the means of `groups` of agents, the n-th being in group n modulo `groups`: it
    withstands liars in groups with less than half of the weight.
    """

    rule: Annotated[str, OneOf(RULES)] = "mean"
    """Centre of each number of the messages."""
    trim: Annotated[float, Ge(0), Lt(0.5)] = 0.2
    """Share of the weight that `trimmed_mean` leaves out at either end."""
    groups: Annotated[int, Ge(1)] = 5
    """Groups of `median_of_means`; agent n is in group n mod groups."""

    @property
    def is_mean(self) -> bool:
        """Return whether the rule is the mean."""
        return self.rule == "mean"

    @property
    def widening(self) -> float:
        """Return the scatter relative to that of the mean, when all agents are honest.

        It is sqrt(pi / 2) for a median of many normal numbers, and at most 1 / (1 - 2 trim) for any trimmed mean (Stigler).
        """
        if self.rule == "trimmed_mean":
            return 1.0 / (1.0 - 2.0 * self.trim)
        return 1.0 if self.is_mean else sqrt(pi / 2.0)

    def of(self, values: Array, weights: Array) -> Array:
        """Aggregate `values (n, m)` with weights `(n,)` or `(n, m)`, all at least 0 and some above 0 in each column."""
        weights = np.broadcast_to(weights if weights.ndim == 2 else weights[:, None], values.shape)
        values = np.where(weights > 0, values, 0.0)  # who counts for nothing may have said anything
        if self.rule == "median_of_means":
            values, weights = self._by_group(values, weights)
        if self.rule in ("median", "median_of_means"):
            return _median(values, weights)
        return self._trimmed(values, weights)

    def _by_group(self, values: Array, weights: Array) -> tuple[Array, Array]:
        """Return the means `(g, m)` of the groups, and their weights."""
        member = np.arange(len(values)) % self.groups == np.arange(min(self.groups, len(values)))[:, None]
        total = member @ weights
        return np.divide(member @ (weights * values), total, out=np.zeros_like(total), where=total > 0), total

    def _trimmed(self, values: Array, weights: Array) -> Array:
        """Average the values between two quantiles; a value at a quantile counts in part."""
        values, reach, weights = _ascending(values, weights)
        cut = (self.trim if self.rule == "trimmed_mean" else 0.0) * reach[-1]
        left = np.clip(np.minimum(reach, reach[-1] - cut) - np.maximum(reach - weights, cut), 0.0, None)
        return np.asarray((left * values).sum(axis=0) / left.sum(axis=0))


def _ascending(values: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Sort every column; return its values, the cumulative sums of their weights, and the weights."""
    order = np.argsort(values, axis=0, kind="stable")
    weights = np.take_along_axis(weights, order, axis=0)
    return np.take_along_axis(values, order, axis=0), np.cumsum(weights, axis=0), weights


def _median(values: Array, weights: Array) -> Array:
    """Return the weighted median of every column: the midpoint of all values with half of the weight on either side."""
    values, reach, weights = _ascending(values, weights)
    half = 0.5 * reach[-1]
    near = 1e-12 * reach[-1]  # rounding may move a half by so much
    low = np.argmax(reach >= half - near, axis=0)
    high = np.argmax((reach > half + near) & (weights > 0), axis=0)
    columns = np.arange(values.shape[1])
    return np.asarray(0.5 * (values[low, columns] + values[high, columns]))


def bounded_products(apart: Array, weights: Array) -> Array:
    """Return the weighted sum of squares `(m, m)` of vectors `(n, m)` with weights `(n,)`, with bounded influence.

    Vectors longer than the median length are shortened to it. Adversaries then add no more to the sum than others, as long as
    they have less than half of the weight.
    """
    far = np.linalg.norm(apart, axis=1)
    most = float(_median(far[:, None], weights[:, None])[0])
    apart = apart * np.divide(most, far, out=np.ones_like(far), where=far > most)[:, None]
    return np.asarray((apart * weights[:, None]).T @ apart)
