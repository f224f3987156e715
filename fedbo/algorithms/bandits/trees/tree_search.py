"""Hierarchical optimistic optimisation, the part that HCT and T-HOO share: an agent alone pulls one node for each decision.

The state stores the node of each point in flight until its value arrives. Values may therefore arrive in any order, late, or
never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from fedbo.algorithms.bandits.trees.box_tree import (
    Address,
    Block,
    Bounds,
    add,
    best_node,
    box,
    index,
    leaf_of,
    new_tree,
    refresh,
)
from fedbo.algorithms.bandits.trees.partitions import POINTS
from fedbo.algorithms.base import Array, Decision, Inbound, Problem
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf

IN_FLIGHT = 1024

InFlight = tuple[tuple[bytes, Address], ...]


class TreeState(NamedTuple):
    """An agent's state.

    dim: number of inputs.
    horizon, told: number of values in all, and of those observed so far.
    tree: the tree.
    in_flight: the points in flight as bytes, with their nodes.
    """

    dim: int
    horizon: int
    told: int
    tree: Block
    in_flight: InFlight = ()


@dataclass(frozen=True, slots=True)
class TreeSearch(LocalOnly):
    """The settings of a search in a tree of boxes, each split into `branching` equal parts, one side after the other.

    The objective is at most `nu` `rho`^h worse than its maximum in the box of depth h around a maximiser. A method sets
    `ancestors` if a value counts for all nodes on the path, and not for the pulled node alone.

    point: the evaluated point of a box, its "centre" or one "uniform" draw from it, as in `Partition`.
    """

    ancestors: ClassVar[bool] = False

    nu: Annotated[float, Gt(0)] = 1.0
    """Smoothness: within nu rho^h of the maximum in its box of depth h."""
    rho: Annotated[float, Gt(0), Lt(1)] = 0.5
    """Smoothness: decay per depth."""
    branching: Annotated[int, Ge(2)] = 2
    """Children of a node."""
    point: Annotated[str, OneOf(POINTS)] = "centre"
    """Evaluated point of a box: its centre, or a uniform draw."""

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Return no points: the tree chooses the first one."""
        return uniform[:0]

    def agent_init(self, problem: Problem, streams: Streams) -> TreeState:
        """Start with the root and its children."""
        return TreeState(problem.dim, problem.pulls or problem.iterations, 0, new_tree(self.branching))

    def bounds(self, told: int, horizon: int, dim: int) -> Bounds:
        """Return the terms of U after `told` values, and when the search leaves nodes; they change when told + 1 is a power of
        two.
        """
        raise NotImplementedError

    def ask(self, state: TreeState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, TreeState]:
        """Pull the node that the largest B leads to; pulls in flight do not count yet. The point is read-only."""
        dim, in_flight = state.dim, state.in_flight
        address = best_node(state.tree, self.branching, self.bounds(state.told, state.horizon, dim).tau)
        if self.point == "centre":
            x, point = _centre(address, self.branching, dim)
        else:
            x, point = _draw(address, self.branching, dim, streams.seed, streams.replicate, streams.scope)
        if len(in_flight) == IN_FLIGHT:  # a point whose evaluation failed is never told, and would stay
            in_flight = in_flight[1:]
        return Decision(x, "tree"), state._replace(in_flight=(*in_flight, (point, address)))

    def tell(self, state: TreeState, x: Array, y: Array) -> TreeState:
        """Count each value for the node of its point; a point that was not asked for counts for its leaf."""
        told, tree, in_flight = state.told, state.tree, state.in_flight
        bounds = self.bounds(told, state.horizon, state.dim)
        for row, value in enumerate(y.tolist()):
            point = x[row].tobytes()
            if in_flight and in_flight[-1][0] == point:
                address, in_flight = in_flight[-1][1], in_flight[:-1]
            else:
                found, in_flight = _landed(in_flight, point)
                address = found or leaf_of(tree, self.branching, x[row].tolist())
            tree = add(tree, self.branching, address, value, bounds, self.ancestors)
            told += 1
            if not told & (told + 1):
                bounds = self.bounds(told, state.horizon, state.dim)
                tree = refresh(tree, self.branching, bounds)
        return state._replace(told=told, tree=tree, in_flight=in_flight)


def _landed(in_flight: InFlight, point: bytes) -> tuple[Address | None, InFlight]:
    """Return the node of a point in flight, the newest of equal points first, and the remaining points in flight."""
    for place in range(len(in_flight) - 1, -1, -1):
        if in_flight[place][0] == point:
            return in_flight[place][1], in_flight[:place] + in_flight[place + 1 :]
    return None, in_flight


@lru_cache(maxsize=4096)
def _centre(address: Address, k: int, dim: int) -> tuple[Array, bytes]:
    low, width = box(address, k, dim)
    return _fixed([[start + 0.5 * side for start, side in zip(low, width, strict=True)]])


@lru_cache(maxsize=4096)
def _draw(address: Address, k: int, dim: int, seed: int, replicate: int, scope: str) -> tuple[Array, bytes]:
    low, width = box(address, k, dim)
    shared = Streams(seed, replicate, scope=scope).shared(f"point of node {address[0]} {index(address, k)}")
    return _fixed(np.array([low]) + np.array([width]) * shared.random((1, dim)))


def _fixed(point: npt.ArrayLike) -> tuple[Array, bytes]:
    """Return a point as a read-only array, since it is cached, and as bytes."""
    x = np.array(point, dtype=np.float64)
    x.flags.writeable = False
    return x, x.tobytes()
