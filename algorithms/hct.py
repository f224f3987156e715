"""High-confidence tree (Azar, Lazaric and Brunskill 2014, HCT-iid): bandits on a tree of boxes, every agent alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from annotated_types import Gt, Lt

from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.box_tree import Bounds, deepest
from fedbo.algorithms.components.tree_search import TreeSearch


@dataclass(frozen=True, slots=True)
class HCT(TreeSearch):
    """HCT; `TreeSearch` has the other settings.

    U = mean + nu rho^h + sqrt(c^2 log(1 / dt) / pulls), where dt = min(1/2, (rho / (3 nu))^(1/8) `delta` / t+), and t+ is the
    first power of two above the round t. A node is left, and a leaf is split, after ceil(c^2 log(1 / dt) rho^(-2 h) / nu^2)
    pulls. The theory has `c` = 2 sqrt(1 / (1 - rho)), rewards in [0, 1], and `delta` for the probability to fail.
    """

    c: Annotated[float, Gt(0)] = 0.1
    delta: Annotated[float, Gt(0), Lt(1)] = 0.01

    def bounds(self, told: int, horizon: int, dim: int) -> Bounds:
        """Take them from the next power of two, so that they change, and all nodes with them, when t = told + 1 reaches one."""
        return _bounds(self.nu, self.rho, self.c, self.delta, self.branching, dim, 1 << (told + 1).bit_length())


@lru_cache(maxsize=64)
def _bounds(nu: float, rho: float, c: float, delta: float, k: int, dim: int, t_plus: int) -> Bounds:
    dt = min(0.5, (rho / (3.0 * nu)) ** 0.125 * delta / t_plus)
    spread, depths = c**2 * math.log(1.0 / dt), range(deepest(k, dim) + 1)
    tau = [_whole(spread / nu**2, rho, h) for h in depths]
    tau[0], tau[-1] = 0.0, math.inf  # the root is not pulled itself
    return Bounds(spread, tuple(nu * rho**h for h in depths), tuple(tau))


def _whole(factor: float, rho: float, h: int) -> float:
    """Give ceil(factor rho^(-2 h)), or infinity where that is more than anybody can pull."""
    if math.log(factor) - 2 * h * math.log(rho) > math.log(1e15):
        return math.inf
    return float(math.ceil(factor * rho ** (-2 * h)))


ALGORITHMS = {"hct": Entry(HCT, summary="high-confidence tree (HCT): bandits on a tree of boxes, every agent alone")}
