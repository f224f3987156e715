"""Truncated hierarchical optimistic optimisation (Bubeck, Munos, Stoltz and Szepesvari 2011, T-HOO), every agent alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.box_tree import Bounds, deepest
from fedbo.algorithms.components.tree_search import TreeSearch


@dataclass(frozen=True, slots=True)
class THOO(TreeSearch):
    """T-HOO; `TreeSearch` has the settings, and rewards in [0, 1] are supposed.

    U = mean + nu rho^h + sqrt(2 log(n) / pulls) with n for all pulls that there will be; a value counts for every node that
    the point's node is part of. A leaf is split when it has been pulled, but not at depth D = ceil((log(n) / 2 - log(1 / nu)) /
    log(1 / rho)), where it is pulled again instead.
    """

    ancestors: ClassVar[bool] = True

    def bounds(self, told: int, horizon: int, dim: int) -> Bounds:
        """Take them from the horizon; they stay."""
        return _bounds(self.nu, self.rho, self.branching, dim, horizon)


@lru_cache(maxsize=64)
def _bounds(nu: float, rho: float, k: int, dim: int, horizon: int) -> Bounds:
    n = math.log(max(horizon, 2))
    depths = deepest(k, dim)
    cap = min(max(math.ceil((n / 2 - math.log(1 / nu)) / math.log(1 / rho)), 1), depths)
    tau = (0.0, *[1.0] * (cap - 1), *[math.inf] * (depths + 1 - cap))  # the root is not pulled itself
    return Bounds(2.0 * n, tuple(nu * rho**h for h in range(depths + 1)), tau)


ALGORITHMS = {"t_hoo": Entry(THOO, summary="truncated HOO: bandits on a tree of boxes, every agent alone")}
