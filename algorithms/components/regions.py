"""The sub-regions of the unit cube that agents are assigned to (Dai et al. 2021, section 3.2)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.base import Array


class Regions(NamedTuple):
    """P boxes of equal volume that cover the unit cube and share no more than faces: corners `low` and `high`, `(P, d)`."""

    low: Array
    high: Array


@lru_cache(maxsize=64)
def split_cube(count: int, dim: int) -> Regions:
    """Split the unit cube into `count` boxes: each along its longest side, in proportion to how many are to come of a part."""
    boxes = np.array(_split(np.zeros(dim), np.ones(dim), count)).reshape(count, 2, dim)
    boxes.flags.writeable = False
    return Regions(boxes[:, 0], boxes[:, 1])


def _split(low: Array, high: Array, count: int) -> list[tuple[Array, Array]]:
    if count == 1:
        return [(low, high)]
    first = count // 2
    # Sides of equal length differ by rounding; the first of them is to be cut in every box alike.
    side = int(np.argmax(np.round(high - low, 9)))
    cut = low[side] + (high[side] - low[side]) * (first / count)
    below, above = high.copy(), low.copy()
    below[side] = above[side] = cut
    return _split(low, below, first) + _split(above, high, count - first)


def region_of(agent: Any, count: int) -> Any:
    """Give the region that an agent is assigned to, or of each in an array; as many agents to each, give or take one."""
    return agent % count
