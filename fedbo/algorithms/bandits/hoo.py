"""Hierarchical optimistic optimisation on a tree of boxes, every agent alone: truncated HOO, and the high-confidence tree.

T-HOO is that of Bubeck, Munos, Stoltz and Szepesvari 2011; HCT is HCT-iid of Azar, Lazaric and Brunskill 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

from annotated_types import Gt, Lt

from fedbo.algorithms.bandits.trees.box_tree import Bounds, deepest
from fedbo.algorithms.bandits.trees.tree_search import TreeSearch
from fedbo.algorithms.catalog import Entry


@dataclass(frozen=True, slots=True)
class THOO(TreeSearch):
    """T-HOO, for rewards in [0, 1]; `TreeSearch` has the settings.

    U = mean + nu rho^h + sqrt(2 log(n) / pulls), where n is the number of all pulls of the run. A value counts for the point's
    node and all its ancestors. A leaf is split after its pull, except at depth D = ceil((log(n) / 2 - log(1 / nu)) / log(1 /
    rho)), where it is pulled again.
    """

    horizon_use: ClassVar[str] = "has bounds that hold for this number of pulls"

    ancestors: ClassVar[bool] = True

    def bounds(self, told: int, horizon: int, dim: int) -> Bounds:
        """Return the bounds of the horizon, which stay constant."""
        return _hoo_bounds(self.nu, self.rho, self.branching, dim, horizon)


@lru_cache(maxsize=64)
def _hoo_bounds(nu: float, rho: float, k: int, dim: int, horizon: int) -> Bounds:
    n = math.log(max(horizon, 2))
    depths = deepest(k, dim)
    cap = min(max(math.ceil((n / 2 - math.log(1 / nu)) / math.log(1 / rho)), 1), depths)
    tau = (0.0, *[1.0] * (cap - 1), *[math.inf] * (depths + 1 - cap))  # the root is not pulled itself
    return Bounds(2.0 * n, tuple(nu * rho**h for h in range(depths + 1)), tau)


@dataclass(frozen=True, slots=True)
class HCT(TreeSearch):
    """HCT; `TreeSearch` has the other settings.

    U = mean + nu rho^h + sqrt(c^2 log(1 / dt) / pulls), where dt = min(1/2, (rho / (3 nu))^(1/8) `delta` / t+). t+ is the first
    power of two above the round t. The search leaves a node, and splits a leaf, after ceil(c^2 log(1 / dt) rho^(-2 h) / nu^2)
    pulls. The theory has `c` = 2 sqrt(1 / (1 - rho)), rewards in [0, 1], and `delta` for the probability to fail.
    """

    horizon_use: ClassVar[str] = ""

    c: Annotated[float, Gt(0)] = 0.1
    """Factor of the confidence width; 2 sqrt(1 / (1 - rho)) in the theory."""
    delta: Annotated[float, Gt(0), Lt(1)] = 0.01
    """Failure probability of the confidence."""

    def bounds(self, told: int, horizon: int, dim: int) -> Bounds:
        """Return the bounds of the next power of two; they change, with all nodes, when t = told + 1 reaches a power of two."""
        return _hct_bounds(self.nu, self.rho, self.c, self.delta, self.branching, dim, 1 << (told + 1).bit_length())


@lru_cache(maxsize=64)
def _hct_bounds(nu: float, rho: float, c: float, delta: float, k: int, dim: int, t_plus: int) -> Bounds:
    dt = min(0.5, (rho / (3.0 * nu)) ** 0.125 * delta / t_plus)
    spread, depths = c**2 * math.log(1.0 / dt), range(deepest(k, dim) + 1)
    tau = [_whole(spread / nu**2, rho, h) for h in depths]
    tau[0], tau[-1] = 0.0, math.inf  # the root is not pulled itself
    return Bounds(spread, tuple(nu * rho**h for h in depths), tuple(tau))


def _whole(factor: float, rho: float, h: int) -> float:
    """Return ceil(factor rho^(-2 h)), or infinity above 1e15 pulls."""
    if math.log(factor) - 2 * h * math.log(rho) > math.log(1e15):
        return math.inf
    return float(math.ceil(factor * rho ** (-2 * h)))


ALGORITHMS = {
    "hct": Entry(HCT, summary="high-confidence tree (HCT): bandits on a tree of boxes, without communication"),
    "t_hoo": Entry(THOO, summary="truncated HOO: bandits on a tree of boxes, without communication"),
}
