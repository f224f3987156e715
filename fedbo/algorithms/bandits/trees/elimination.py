"""Phased elimination in a tree of boxes (Li et al. 2024): pulls of each node, their confidence, and the surviving nodes.

paper                code            meaning
M, T                 clients, rounds number of clients, and pulls of each
nu_1 rho^h           reach(h)        largest variation of the function in a node at depth h
c, c_1               c, c1           constants of the confidence; sqrt(1/2) and 2 hold for rewards in [0, 1] (Hoeffding)
log(c_1 T / delta)   log             with delta = 1 / M by default
tau_h                tau(h)          pulls of all clients together after which the confidence is below the reach
t_{m,h,i}            pulls(h)        pulls of each client
b_{h,i}              width(h, n)     half the width of the confidence interval with n clients
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.bandits.trees.partitions import Nodes, Partition
from fedbo.algorithms.base import Array


@dataclass(frozen=True, slots=True)
class Elimination:
    """The rule of one run. With a finite `epsilon` each client's means carry Laplace noise of the scale 1 / (epsilon t).

    The noise is in the width, and t is large enough for its part of the width to stay below the reach.
    """

    partition: Partition
    nu: float
    rho: float
    c: float
    log: float
    clients: int
    rounds: int
    epsilon: float = math.inf

    def reach(self, depth: int) -> float:
        """Return nu_1 rho^h."""
        return self.nu * self.rho**depth

    def tau(self, depth: int) -> int:
        """Return tau_h = ceil(c^2 log(c_1 T / delta) rho^(-2 h) / nu_1^2)."""
        return math.ceil(self.c**2 * self.log / self.reach(depth) ** 2)

    def noise_width(self, n: Array | float) -> Array:
        """Return the bound of the mean of n Laplace draws of scale 1, which fails with probability 2 exp(-log).

        By Chernoff, with 1 / (1 - s^2) <= exp(2 s^2) up to s^2 = 1/2, it is 2 sqrt(2 log / n) where n is at least `log`.
        Otherwise it is sqrt(2) (1 + log / n). They meet at n = log.
        """
        n = np.asarray(n, dtype=np.float64)
        few = math.sqrt(2.0) * (1.0 + self.log / n)
        return np.where(n >= self.log, 2.0 * np.sqrt(2.0 * self.log / n), few)

    def _unhidden(self, depth: int) -> float:
        """Return the pulls of each client after which the noise part of the width is at most the reach."""
        if math.isinf(self.epsilon):
            return 0.0
        return float(self.noise_width(self.clients)) / (self.epsilon * self.reach(depth))

    def pulls(self, depth: int) -> int:
        """Return t = max(ceil(tau_h / M), the pulls that noise requires)."""
        return max(-(-self.tau(depth) // self.clients), math.ceil(self._unhidden(depth)))

    def width(self, depth: int, n: Array | float) -> Array:
        """Return the width of a mean over n clients: c sqrt(log / (n t)), plus the width of their noise."""
        t = self.pulls(depth)
        width = self.c * np.sqrt(self.log / (np.asarray(n, dtype=np.float64) * t))
        return width if math.isinf(self.epsilon) else width + self.noise_width(n) / (self.epsilon * t)

    def survivors(self, depth: int, mean: Array, width: Array) -> npt.NDArray[np.bool_]:
        """Return which nodes `(K,)` are not eliminated, by means and widths `(K,)`; without a mean (NaN) a node stays."""
        if np.isnan(mean).all():
            return np.ones(len(mean), dtype=bool)
        best = int(np.nanargmax(mean))
        with np.errstate(invalid="ignore"):
            dropped = np.less(mean + width + self.reach(depth), mean[best] - width[best])
        return np.asarray(~dropped, dtype=np.bool_)

    def descend(self, depth: int, nodes: Nodes, mean: Array) -> tuple[int, Nodes]:
        """Return the depth and the nodes of the next phase, the children of those with the largest `mean (n,)` first.

        A depth that needs fewer pulls than there are clients is skipped.
        """
        order = np.argsort(-np.where(np.isnan(mean), -np.inf, mean), kind="stable")
        if depth >= self.partition.deepest:
            return depth, nodes[order]
        depth, nodes = depth + 1, self.partition.below(nodes[order])
        while self._passed_over(depth, len(nodes)):
            depth, nodes = depth + 1, self.partition.below(nodes)
        return depth, nodes

    def _passed_over(self, depth: int, count: int) -> bool:
        needed = max(self.tau(depth), self.clients * self._unhidden(depth))
        return depth < self.partition.deepest and count * needed <= self.clients

    def start(self) -> tuple[int, Nodes]:
        """Return the depth and the nodes of the first phase; the root is never pulled."""
        return self.descend(0, np.zeros(1, dtype=np.int64), np.zeros(1))

    @property
    def most_phases(self) -> int:
        """Bound the number of phases, the last one included, which may be cut short.

        Each is at least one depth below the one before, and all but the last have pulls(h) <= T.
        """
        square = self.rounds * self.clients * self.nu**2 / (self.c**2 * self.log)
        return 1 + max(0, math.floor(math.log(square) / (2.0 * math.log(1.0 / self.rho)))) if square > 0 else 1
