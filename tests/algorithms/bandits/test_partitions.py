"""Trees of boxes: children cover their parents, and everybody has the same ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedbo.algorithms.bandits.trees.partitions import Partition
from fedbo.algorithms.streams import Streams

WAYS = [
    Partition(dim, branching, split, cuts, point)
    for dim, branching, split, cuts, point in itertools.product(
        (1, 2, 3), (2, 3), ("turns", "longest", "all"), ("equal", "random"), ("centre", "uniform")
    )
]


@pytest.mark.parametrize("partition", WAYS, ids=str)
def test_the_nodes_of_a_depth_fill_the_cube_and_hold_their_points(partition: Partition) -> None:
    streams, nodes = Streams(4, 2), np.zeros(1, dtype=np.int64)
    for depth in range(4 if partition.children < 9 else 2):
        low, high = partition.boxes(depth, nodes, streams)
        points = partition.points(depth, nodes, streams)
        np.testing.assert_allclose((high - low).prod(axis=1).sum(), 1.0)
        assert ((points >= low) & (points <= high)).all()
        assert len(np.unique(low, axis=0)) == len(nodes), "two nodes have the same box"
        children = partition.below(nodes)
        low_, high_ = partition.boxes(depth + 1, children, streams)
        parents = np.repeat(np.arange(len(nodes)), partition.children)
        assert (low_ >= low[parents] - 1e-12).all() and (high_ <= high[parents] + 1e-12).all()
        nodes = children
    assert len(np.unique(nodes)) == len(nodes)


def test_two_halvings_of_a_square_are_its_quarters() -> None:
    low, high = Partition(2).boxes(2, np.arange(4), Streams(0))
    np.testing.assert_array_equal(low, [[0, 0], [0, 0.5], [0.5, 0], [0.5, 0.5]])
    np.testing.assert_array_equal(high - low, np.full((4, 2), 0.5))


def test_random_trees_are_the_same_for_everybody_in_a_replicate_and_others_elsewhere() -> None:
    partition, nodes = Partition(2, cuts="random", point="uniform"), np.array([3, 9, 11])
    mine, others, elsewhere = (
        partition.points(4, nodes, streams) for streams in (Streams(1).of(0), Streams(1).of(7).at(5), Streams(2))
    )
    np.testing.assert_array_equal(mine, others)
    assert (mine != elsewhere).all()
    np.testing.assert_array_equal(partition.points(4, nodes[1:], Streams(1)), mine[1:])


def test_the_longest_side_of_a_box_is_cut() -> None:
    partition, streams = Partition(3, split="longest", cuts="random"), Streams(7)
    nodes = np.arange(2**6)
    low, high = partition.boxes(6, nodes, streams)
    low_, high_ = partition.boxes(7, partition.below(nodes)[::2], streams)
    cut = np.argmax((high - low) - (high_ - low_), axis=1)
    np.testing.assert_array_equal(cut, np.argmax(high - low, axis=1))
