"""Hierarchical partitions of the unit cube: a tree of boxes, and the point that stands for each of them.

Node i at depth h has the children i B, ..., i B + B - 1 at depth h + 1, where B is the number of `children`; the root is node 0
at depth 0. The geometry is a function of a node's number alone, so that who only counts nodes needs none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import numpy.typing as npt
from annotated_types import Ge

from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf, check

Nodes = npt.NDArray[np.int64]
CUTS, POINTS = ("equal", "random"), ("centre", "uniform")
SPLITS = ("turns", "longest", "all")


@dataclass(frozen=True, slots=True)
class Partition:
    """A tree over `[0, 1]^d`: which side of a box is cut into `branching` parts, and where.

    `split` is "turns", dimension h mod d at depth h; "longest", the longest side, the first of those that are equally long;
    or "all", every side at once, which gives branching^d children. `cuts` are "equal", or "random": drawn uniformly for each
    box, the same for everybody in a replicate. `point` is what stands for a box: its "centre", or one "uniform" draw from it,
    which is the same for everybody too, since a mean over agents says something of a point only if all were there.
    """

    dim: int
    branching: Annotated[int, Ge(2)] = 2
    split: Annotated[str, OneOf(SPLITS)] = "turns"
    cuts: Annotated[str, OneOf(CUTS)] = "equal"
    point: Annotated[str, OneOf(POINTS)] = "centre"

    def __post_init__(self) -> None:
        check(self)

    @property
    def children(self) -> int:
        """Give the number of children of every node."""
        return int(self.branching**self.dim) if self.split == "all" else self.branching

    @property
    def deepest(self) -> int:
        """Give the depth below which nodes are not split, lest their numbers exceed 62 bits."""
        return int(62 / np.log2(self.children))

    def below(self, nodes: Nodes) -> Nodes:
        """Give the children of nodes `(n,)`, `(n B,)`, those of one node side by side."""
        return np.asarray(nodes[:, None] * self.children + np.arange(self.children), dtype=np.int64).ravel()

    def boxes(self, depth: int, nodes: Nodes, streams: Streams) -> tuple[Array, Array]:
        """Give the lower and upper corners, each `(n, d)`, of nodes `(n,)` at one depth."""
        low, high = np.zeros((len(nodes), self.dim)), np.ones((len(nodes), self.dim))
        rows = np.arange(len(nodes))
        for level in range(depth):
            parents, child = np.divmod(nodes // self.children ** (depth - 1 - level), self.children)
            for turn, side in enumerate(self._sides(level, low, high)):
                part = child // self.branching**turn % self.branching
                cuts = self._cuts(level, parents, turn, streams)
                length = high[rows, side] - low[rows, side]
                start = low[rows, side].copy()
                low[rows, side] = start + cuts[rows, part] * length
                high[rows, side] = start + cuts[rows, part + 1] * length
        return low, high

    def points(self, depth: int, nodes: Nodes, streams: Streams) -> Array:
        """Give the points `(n, d)` that stand for nodes; not to be written to."""
        return _points(self, depth, nodes.tobytes(), streams.seed, streams.replicate, streams.scope)

    def _sides(self, level: int, low: Array, high: Array) -> list[Nodes]:
        """List the sides `(n,)` that are cut at a level, one after the other."""
        if self.split == "all":
            return [np.full(len(low), side) for side in range(self.dim)]
        if self.split == "turns":
            return [np.full(len(low), level % self.dim)]
        return [np.argmax(high - low, axis=1)]

    def _cuts(self, level: int, parents: Nodes, turn: int, streams: Streams) -> Array:
        """Give where the sides of some boxes are cut, `(n, branching + 1)` from 0 to 1."""
        if self.cuts == "equal":
            return np.tile(np.arange(self.branching + 1) / self.branching, (len(parents), 1))
        own, place = np.unique(parents, return_inverse=True)
        drawn = [
            np.sort(streams.shared(f"cuts of node {level} {node} {turn}").random(self.branching - 1)) for node in own.tolist()
        ]
        inner = np.array(drawn).reshape(len(own), self.branching - 1)
        return np.hstack([np.zeros((len(own), 1)), inner, np.ones((len(own), 1))])[place]


@lru_cache(maxsize=64)
def _points(partition: Partition, depth: int, nodes: bytes, seed: int, replicate: int, scope: str) -> Array:
    """Find the points of nodes, remembered since all agents of a process ask for the same."""
    streams, numbers = Streams(seed, replicate, scope=scope), np.frombuffer(nodes, dtype=np.int64)
    low, high = partition.boxes(depth, numbers, streams)
    points = 0.5 * (low + high)
    if partition.point == "uniform":
        drawn = [streams.shared(f"point of node {depth} {node}").random(partition.dim) for node in numbers.tolist()]
        points = low + (high - low) * np.array(drawn).reshape(low.shape)
    points.flags.writeable = False
    return points
