"""Hierarchical partitions of the unit cube: a tree of boxes, and the evaluated point of each box.

Node i at depth h has the children i B, ..., i B + B - 1 at depth h + 1, where B is the number of `children`. The root is node 0
at depth 0. The geometry is a function of a node's number alone, so counting nodes needs none of it.
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
from fedbo.settings.ranges import Marked, OneOf

Nodes = npt.NDArray[np.int64]
CUTS, POINTS = ("equal", "random"), ("centre", "uniform")
SPLITS = ("turns", "longest", "all")


@dataclass(frozen=True, slots=True)
class Partition(Marked):
    """A tree over `[0, 1]^d`: the side of a box to cut, and where.

    branching: the number of parts.
    split: "turns", dimension h mod d at depth h; "longest", the first of the longest sides; or "all", every side at once, which
      makes branching^d children.
    cuts: "equal", or "random": drawn uniformly for each box, equal for all agents of a replicate.
    point: the evaluated point of a box: its "centre", or one "uniform" draw from it. The draw is equal for all agents, so that
      a mean over agents is about one point.
    """

    dim: int
    branching: Annotated[int, Ge(2)] = 2
    split: Annotated[str, OneOf(SPLITS)] = "turns"
    cuts: Annotated[str, OneOf(CUTS)] = "equal"
    point: Annotated[str, OneOf(POINTS)] = "centre"

    @property
    def children(self) -> int:
        """Return the number of children of every node."""
        return int(self.branching**self.dim) if self.split == "all" else self.branching

    @property
    def deepest(self) -> int:
        """Return the depth below which nodes are not split, so that their numbers fit into 62 bits."""
        return int(62 / np.log2(self.children))

    def below(self, nodes: Nodes) -> Nodes:
        """Return the children of nodes `(n,)`, `(n B,)`, those of one node side by side."""
        return np.asarray(nodes[:, None] * self.children + np.arange(self.children), dtype=np.int64).ravel()

    def boxes(self, depth: int, nodes: Nodes, streams: Streams) -> tuple[Array, Array]:
        """Return the lower and upper corners, each `(n, d)`, of nodes `(n,)` at one depth."""
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
        """Return the evaluated points `(n, d)` of nodes; read-only."""
        return _points(self, depth, nodes.tobytes(), streams.seed, streams.replicate, streams.scope)

    def _sides(self, level: int, low: Array, high: Array) -> list[Nodes]:
        """List the sides `(n,)` that are cut at a level, one after the other."""
        if self.split == "all":
            return [np.full(len(low), side) for side in range(self.dim)]
        if self.split == "turns":
            return [np.full(len(low), level % self.dim)]
        return [np.argmax(high - low, axis=1)]

    def _cuts(self, level: int, parents: Nodes, turn: int, streams: Streams) -> Array:
        """Return the cuts of the sides of boxes, `(n, branching + 1)` from 0 to 1."""
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
