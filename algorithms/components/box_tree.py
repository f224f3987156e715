"""The tree of boxes that HCT and T-HOO grow, with what was seen in each node. A tree that has been given away never changes.

A record is what is known of a node: how many pulls count for it, the mean of their values, its bounds U and B, and the slot of
its *heir*, the child with the largest B, or 0 for a leaf. Records lie in *boughs*: a bough is one flat tuple that has the
records of a few levels of nodes, the children of slot j in slots k j + 1 to k j + k, and None where there is no node; slots
past these levels hold the boughs that go on from there. So a pull writes two or three short tuples anew, and a checkpoint is
nested by boughs and not by nodes.

A node's address is its depth, the slots by which boughs are left on the way to it, and its own slot. Its box is one of k equal
parts of its parent's, across the sides of the cube in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

Record = tuple[int, float, float, float, int]
Bough = tuple[Any, ...]
Address = tuple[int, ...]
Box = tuple[list[float], list[float]]

FRESH: Record = (0, 0.0, math.inf, math.inf, 0)
SLOTS = 32  # of a bough, at most, unless one node's children are more
NESTED = 45  # boughs one within another, at most: a checkpoint can nest 64 deep, and there is more round a state


class Bounds(NamedTuple):
    """What U consists of, mean + `reach[h]` + sqrt(`spread` / pulls), and from how many pulls on a node is left, `tau[h]`.

    A leaf of depth h with so many pulls is split.
    """

    spread: float
    reach: tuple[float, ...]
    tau: tuple[float, ...]


@lru_cache(maxsize=64)
def levels(k: int) -> int:
    """Say how many levels of nodes with k children a bough has."""
    count = 1
    while (k ** (count + 2) - 1) // (k - 1) <= SLOTS:
        count += 1
    return count


@lru_cache(maxsize=64)
def records(k: int) -> int:
    """Say how many records a bough has room for; the slots from there on hold boughs."""
    return int(k ** levels(k) - 1) // (k - 1)


@lru_cache(maxsize=64)
def deepest(k: int, dim: int) -> int:
    """Give the depth of nodes that are never split: beyond it, parts would be alike in doubles, or a checkpoint too deep."""
    return min(NESTED * levels(k), dim * int(52 / math.log2(k)))


@lru_cache(maxsize=64)
def _routes(k: int) -> tuple[tuple[int, ...], ...]:
    """List, for each slot, the numbers of the children on the way there from the root of its bough."""
    routes: list[tuple[int, ...]] = [()]
    for slot in range(1, records(k) + k ** levels(k)):
        routes.append((*routes[(slot - 1) // k], (slot - 1) % k))
    return tuple(routes)


def plant(k: int) -> Bough:
    """Make the tree to begin with: the root, which is never pulled itself, and its children."""
    bough: list[Any] = [None] * len(_routes(k))
    bough[0] = (*FRESH[:4], 1)
    _sprout(bough, 1, k)
    return tuple(bough)


def _sprout(bough: list[Any], first: int, k: int) -> None:
    """Put k children without pulls into the slots from `first` on."""
    child: Any = FRESH
    if first >= records(k):
        child = (FRESH, *[None] * (len(_routes(k)) - 1))
    bough[first : first + k] = [child] * k


def best_node(bough: Bough, k: int, tau: Sequence[float]) -> Address:
    """Follow the heirs from the root to the first leaf, or the first node that has had fewer pulls than tau of its depth."""
    exits: list[int] = []
    inner, slot, h = records(k), 0, 0
    record = bough[0]
    while record[0] >= tau[h]:
        heir = record[4]
        if not heir:
            break
        slot = heir
        if slot < inner:
            record = bough[slot]
        else:
            exits.append(slot)
            bough, slot = bough[slot], 0
            record = bough[0]
        h += 1
    return (h, *exits, slot)


def add(tree: Bough, k: int, address: Address, y: float, bounds: Bounds, ancestors: bool) -> Bough:
    """Count a value for a node, or with `ancestors` for all on the way to it; set U and B anew there; split a leaf when due."""
    spread, reach, tau = bounds
    inner, slot, h = records(k), address[-1], address[0]
    boughs = [list(tree)]
    for place in address[1:-1]:
        boughs.append(list(boughs[-1][place]))
    bough, counts = boughs.pop(), True
    while True:
        pulls, mean, upper, before, heir = bough[slot]
        if counts:
            pulls += 1
            mean += (y - mean) / pulls
            upper = mean + reach[h] + math.sqrt(spread / pulls)
            counts = ancestors
        first, least = k * slot + 1, upper
        if heir:
            place = heir = first + k - 1
            best = (bough[place] if first < inner else bough[place][0])[3]
            while place > first:
                place -= 1
                b = (bough[place] if first < inner else bough[place][0])[3]
                if b >= best:  # the first of equals
                    best, heir = b, place
            least = best if best < upper else upper
        elif pulls >= tau[h]:
            heir = first
            _sprout(bough, first, k)
        bough[slot] = (pulls, mean, upper, least, heir)
        if not h or (least == before and not ancestors):  # further up B is what it was
            break
        if not slot:
            bough, slot = _joined(bough, boughs, address)
        slot = (slot - 1) // k
        h -= 1
    while boughs:
        bough, _ = _joined(bough, boughs, address)
    return tuple(bough)


def _joined(below: list[Any], boughs: list[list[Any]], address: Address) -> tuple[list[Any], int]:
    """Put a bough into the slot of the one above it, and give that one and the slot."""
    bough, slot = boughs.pop(), address[len(boughs) + 1]
    bough[slot] = tuple(below)
    return bough, slot


def refresh(tree: Bough, k: int, bounds: Bounds, h: int = 0) -> Bough:
    """Set U and B anew in all nodes; `h` is the depth of the first one."""
    bough, inner = list(tree), records(k)
    for slot in range(inner, len(bough)):
        if bough[slot] is not None:
            bough[slot] = refresh(bough[slot], k, bounds, h + levels(k))
    for slot in range(inner - 1, -1, -1):
        if bough[slot] is None:
            continue
        pulls, mean, upper, _, heir = bough[slot]
        if pulls:
            upper = mean + bounds.reach[h + len(_routes(k)[slot])] + math.sqrt(bounds.spread / pulls)
        least = upper
        if heir:
            first = k * slot + 1
            children = [child if first < inner else child[0] for child in bough[first : first + k]]
            best = max(child[3] for child in children)
            heir = first + next(number for number, child in enumerate(children) if child[3] == best)
            least = min(upper, best)
        bough[slot] = (pulls, mean, upper, least, heir)
    return tuple(bough)


def nodes(tree: Bough, k: int) -> Iterator[tuple[Address, Record]]:
    """List the tree's nodes."""
    above: list[tuple[int, Address, Bough]] = [(0, (), tree)]
    for h, exits, bough in above:
        for slot, held in enumerate(bough):
            if held is not None and slot < records(k):
                yield (h + len(_routes(k)[slot]), *exits, slot), held
            elif held is not None:
                above.append((h + levels(k), (*exits, slot), held))


def leaf_of(tree: Bough, k: int, point: Sequence[float]) -> Address:
    """Find the leaf in whose box a point lies; of boxes that share it, the one above it."""
    dim = len(point)
    low, width = [0.0] * dim, [1.0] * dim
    exits: list[int] = []
    bough, slot, h = tree, 0, 0
    while bough[slot][4]:
        side = h % dim
        part = width[side] / k
        number = min(max(int((point[side] - low[side]) / part), 0), k - 1)
        low[side] += number * part
        width[side] = part
        slot = k * slot + 1 + number
        h += 1
        if slot >= records(k):
            exits.append(slot)
            bough, slot = bough[slot], 0
    return (h, *exits, slot)


def index(address: Address, k: int) -> int:
    """Give a node's number among the k^h of its depth."""
    number = 0
    for slot in address[1:]:
        for child in _routes(k)[slot]:
            number = number * k + child
    return number


def box(address: Address, k: int, dim: int) -> Box:
    """Give a node's box: its lower corner and its widths, d numbers each."""
    low, width, side, routes = [0.0] * dim, [1.0] * dim, 0, _routes(k)
    for slot in address[1:]:
        for number in routes[slot]:
            part = width[side] / k
            low[side] += number * part
            width[side] = part
            side = side + 1 if side + 1 < dim else 0
    return low, width
