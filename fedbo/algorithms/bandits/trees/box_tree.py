"""The tree of boxes that HCT and T-HOO grow, as nested immutable tuples: adding a value makes a new tree.

A node is the number of its pulls, the mean of their values, its bounds U and B, and the slot of its best child. The best child
has the largest B; a leaf has slot 0. Nodes lie in blocks. A block is one flat tuple with a few levels of nodes, the children of
slot j in slots k j + 1 to k j + k, and None for a missing node. Slots past these levels hold the blocks below. A pull therefore
rewrites two or three short tuples, and a checkpoint is nested by blocks and not by nodes.

A node's address is its depth, the slots at which its path leaves blocks, and its slot. Its box is one of k equal parts of its
parent's box, across the sides of the cube one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

Node = tuple[int, float, float, float, int]
Block = tuple[Any, ...]
Address = tuple[int, ...]
Box = tuple[list[float], list[float]]

FRESH: Node = (0, 0.0, math.inf, math.inf, 0)
SLOTS = 32  # of a block, at most, unless one node's children are more
NESTED = 45  # blocks one within another, at most: a checkpoint can nest 64 deep, and there is more round a state


class Bounds(NamedTuple):
    """Parts of the bound U = mean + `reach[h]` + sqrt(`spread` / pulls), and the pulls after which a node is left, `tau[h]`.

    A leaf of depth h with so many pulls is split.
    """

    spread: float
    reach: tuple[float, ...]
    tau: tuple[float, ...]


@lru_cache(maxsize=64)
def levels(k: int) -> int:
    """Return the number of levels of nodes with k children in a block."""
    count = 1
    while (k ** (count + 2) - 1) // (k - 1) <= SLOTS:
        count += 1
    return count


@lru_cache(maxsize=64)
def nodes_per_block(k: int) -> int:
    """Return the number of nodes in a block; higher slots hold blocks."""
    return int(k ** levels(k) - 1) // (k - 1)


@lru_cache(maxsize=64)
def deepest(k: int, dim: int) -> int:
    """Return the depth of nodes that are never split: below it, parts would be equal in doubles or a checkpoint too deep."""
    return min(NESTED * levels(k), dim * int(52 / math.log2(k)))


@lru_cache(maxsize=64)
def _routes(k: int) -> tuple[tuple[int, ...], ...]:
    """Return, for each slot, the numbers of the children on the path to it from the root of its block."""
    routes: list[tuple[int, ...]] = [()]
    for slot in range(1, nodes_per_block(k) + k ** levels(k)):
        routes.append((*routes[(slot - 1) // k], (slot - 1) % k))
    return tuple(routes)


def new_tree(k: int) -> Block:
    """Return the initial tree: the root, which is never pulled itself, and its children."""
    block: list[Any] = [None] * len(_routes(k))
    block[0] = (*FRESH[:4], 1)
    _add_children(block, 1, k)
    return tuple(block)


def _add_children(block: list[Any], first: int, k: int) -> None:
    """Put k children without pulls into the slots from `first` on."""
    child: Any = FRESH
    if first >= nodes_per_block(k):
        child = (FRESH, *[None] * (len(_routes(k)) - 1))
    block[first : first + k] = [child] * k


def best_node(block: Block, k: int, tau: Sequence[float]) -> Address:
    """Follow the best children from the root to the first leaf, or the first node with fewer pulls than tau of its depth."""
    exits: list[int] = []
    inner, slot, h = nodes_per_block(k), 0, 0
    node = block[0]
    while node[0] >= tau[h]:
        best_child = node[4]
        if not best_child:
            break
        slot = best_child
        if slot < inner:
            node = block[slot]
        else:
            exits.append(slot)
            block, slot = block[slot], 0
            node = block[0]
        h += 1
    return (h, *exits, slot)


def add(tree: Block, k: int, address: Address, y: float, bounds: Bounds, ancestors: bool) -> Block:
    """Count a value for a node, or with `ancestors` for all nodes on its path; update U and B there; split a leaf when due."""
    spread, reach, tau = bounds
    inner, slot, h = nodes_per_block(k), address[-1], address[0]
    blocks = [list(tree)]
    for place in address[1:-1]:
        blocks.append(list(blocks[-1][place]))
    block, counts = blocks.pop(), True
    while True:
        pulls, mean, upper, before, best_child = block[slot]
        if counts:
            pulls += 1
            mean += (y - mean) / pulls
            upper = mean + reach[h] + math.sqrt(spread / pulls)
            counts = ancestors
        first, least = k * slot + 1, upper
        if best_child:
            place = best_child = first + k - 1
            best = (block[place] if first < inner else block[place][0])[3]
            while place > first:
                place -= 1
                b = (block[place] if first < inner else block[place][0])[3]
                if b >= best:  # the first of equals
                    best, best_child = b, place
            least = best if best < upper else upper
        elif pulls >= tau[h]:
            best_child = first
            _add_children(block, first, k)
        block[slot] = (pulls, mean, upper, least, best_child)
        if not h or (least == before and not ancestors):  # further up B is what it was
            break
        if not slot:
            block, slot = _joined(block, blocks, address)
        slot = (slot - 1) // k
        h -= 1
    while blocks:
        block, _ = _joined(block, blocks, address)
    return tuple(block)


def _joined(below: list[Any], blocks: list[list[Any]], address: Address) -> tuple[list[Any], int]:
    """Put a block into its slot of the block above; return that block and the slot."""
    block, slot = blocks.pop(), address[len(blocks) + 1]
    block[slot] = tuple(below)
    return block, slot


def refresh(tree: Block, k: int, bounds: Bounds, h: int = 0) -> Block:
    """Update U and B in all nodes; `h` is the depth of the first one."""
    block, inner = list(tree), nodes_per_block(k)
    for slot in range(inner, len(block)):
        if block[slot] is not None:
            block[slot] = refresh(block[slot], k, bounds, h + levels(k))
    for slot in range(inner - 1, -1, -1):
        if block[slot] is None:
            continue
        pulls, mean, upper, _, best_child = block[slot]
        if pulls:
            upper = mean + bounds.reach[h + len(_routes(k)[slot])] + math.sqrt(bounds.spread / pulls)
        least = upper
        if best_child:
            first = k * slot + 1
            children = [child if first < inner else child[0] for child in block[first : first + k]]
            best = max(child[3] for child in children)
            best_child = first + next(number for number, child in enumerate(children) if child[3] == best)
            least = min(upper, best)
        block[slot] = (pulls, mean, upper, least, best_child)
    return tuple(block)


def nodes(tree: Block, k: int) -> Iterator[tuple[Address, Node]]:
    """List the tree's nodes."""
    above: list[tuple[int, Address, Block]] = [(0, (), tree)]
    for h, exits, block in above:
        for slot, held in enumerate(block):
            if held is not None and slot < nodes_per_block(k):
                yield (h + len(_routes(k)[slot]), *exits, slot), held
            elif held is not None:
                above.append((h + levels(k), (*exits, slot), held))


def leaf_of(tree: Block, k: int, point: Sequence[float]) -> Address:
    """Find the leaf in whose box a point lies; of boxes that share it, the one above it."""
    dim = len(point)
    low, width = [0.0] * dim, [1.0] * dim
    exits: list[int] = []
    block, slot, h = tree, 0, 0
    while block[slot][4]:
        side = h % dim
        part = width[side] / k
        number = min(max(int((point[side] - low[side]) / part), 0), k - 1)
        low[side] += number * part
        width[side] = part
        slot = k * slot + 1 + number
        h += 1
        if slot >= nodes_per_block(k):
            exits.append(slot)
            block, slot = block[slot], 0
    return (h, *exits, slot)


def index(address: Address, k: int) -> int:
    """Return a node's number among the k^h of its depth."""
    number = 0
    for slot in address[1:]:
        for child in _routes(k)[slot]:
            number = number * k + child
    return number


def box(address: Address, k: int, dim: int) -> Box:
    """Return a node's box: its lower corner and its widths, d numbers each."""
    low, width, side, routes = [0.0] * dim, [1.0] * dim, 0, _routes(k)
    for slot in address[1:]:
        for number in routes[slot]:
            part = width[side] / k
            low[side] += number * part
            width[side] = part
            side = side + 1 if side + 1 < dim else 0
    return low, width
