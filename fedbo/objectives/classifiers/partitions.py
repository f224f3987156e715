"""Partitions of labelled rows among agents: at random, by a few classes each, with Dirichlet label skew, or in unequal numbers.

Each row goes to one agent. Every agent has at least two classes with two rows or more, so that both halves of a split contain
both. A draw that violates this is repeated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
PARTITIONS = ("classes", "dirichlet", "iid", "quantity")
LEAST = 12  # rows of every agent, however unequal the numbers
FAVOURITES = 2  # classes of which every agent under `label_skew` surely has rows …
OF_EACH = 4  # … namely so many, so that both halves of every split see both
_TRIES = 1000


def partition(name: str, label: Indices, agents: int, skew: float, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Deal all rows by a named partition: `skew` is the number of classes of an agent, or the Dirichlet concentration."""
    if name == "iid":
        return iid(label, agents, rng)
    if name == "classes":
        return by_classes(label, agents, int(skew), rng)
    return (label_skew if name == "dirichlet" else unequal)(label, agents, skew, rng)


def iid(label: Indices, agents: int, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Deal all rows at random, in nearly equal numbers."""
    return _again(label, lambda: np.array_split(rng.permutation(len(label)), agents))


def unequal(label: Indices, agents: int, alpha: float, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Deal all rows at random, in numbers that are `LEAST` and a Dirichlet(alpha) share of the rest: a small alpha is skewed.

    This is the quantity skew of Li et al. 2022, section 4.3, but for the least number.
    """
    shares = rng.dirichlet(np.full(agents, alpha))
    ends = LEAST * np.arange(1, agents + 1) + np.round(np.cumsum(shares) * (len(label) - LEAST * agents)).astype(np.int64)
    return _again(label, lambda: np.split(rng.permutation(len(label)), ends[:-1]))


def by_classes(label: Indices, agents: int, classes: int, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Assign every agent the rows of `classes` classes, each shared evenly by its agents (after McMahan et al. 2017).

    Every class has nearly equally many agents, and at least one where there are as many places as classes.
    """
    count = int(label.max()) + 1
    return _again(label, lambda: _shared(label, _holders(agents, classes, count, rng), rng))


def label_skew(label: Indices, agents: int, alpha: float, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Deal all rows in nearly equal numbers, with Dirichlet(alpha) label skew: a small alpha is skewed.

    Each agent draws its class probabilities from Dirichlet(alpha), and receives `OF_EACH` rows of its two most likely classes.
    Then the agents draw one class after the other, in rotation, from the remaining rows. In Hsu et al. 2019 one agent after the
    other draws all its rows, which leaves the last agent with the remainder.
    """
    classes = int(label.max()) + 1
    taste = rng.dirichlet(np.full(classes, alpha), size=agents)
    counts = _counts(taste, np.bincount(label, minlength=classes), rng)
    piles = [rng.permutation(np.flatnonzero(label == one)) for one in range(classes)]
    ends = counts.cumsum(axis=0)
    return tuple(
        np.concatenate([pile[end - n : end] for pile, end, n in zip(piles, row_ends, row, strict=True)])
        for row_ends, row in zip(ends, counts, strict=True)
    )


def _counts(taste: Array, supply: Indices, rng: np.random.Generator) -> Indices:
    """Count the rows of each agent and class: `(agents, classes)`, columns summing to the supply."""
    left, agents = supply.copy(), len(taste)
    counts = np.zeros(taste.shape, dtype=np.int64)
    for own, likes in zip(counts, taste, strict=True):
        # a class that nearly ran out is passed over, so that a favourite always comes in full
        favourites = [one for one in np.argsort(-likes, kind="stable") if left[one] >= OF_EACH][:FAVOURITES]
        own[favourites] += OF_EACH
        left[favourites] -= OF_EACH
    while left.any():
        hungry = np.flatnonzero(counts.sum(axis=1) < -(-supply.sum() // agents))
        for agent in hungry[: left.sum()]:
            wanted = taste[agent] * (left > 0)
            weight = wanted if wanted.sum() > 0.0 else left.astype(np.float64)
            one = rng.choice(len(supply), p=weight / weight.sum())
            counts[agent, one] += 1
            left[one] -= 1
    return counts


def _holders(agents: int, classes: int, count: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw the agents that have each class: one agent after the other takes those that fewest have."""
    holders: list[list[int]] = [[] for _ in range(count)]
    for agent in rng.permutation(agents):
        order = sorted(rng.permutation(count).tolist(), key=lambda one: len(holders[one]))
        for one in order[:classes]:
            holders[one].append(int(agent))
    return holders


def _shared(label: Indices, holders: list[list[int]], rng: np.random.Generator) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(1 + max(agent for some in holders for agent in some))]
    for one, some in enumerate(holders):
        rows = rng.permutation(np.flatnonzero(label == one))
        for agent, part in zip(some, np.array_split(rows, len(some)), strict=True):
            parts[agent].append(part)
    return [np.concatenate(own) for own in parts]


def _again(label: Indices, deal: Callable[[], list[Indices]]) -> tuple[Indices, ...]:
    for _ in range(_TRIES):
        parts = deal()
        if all((np.bincount(label[own]) >= 2).sum() >= 2 for own in parts):
            return tuple(parts)
    raise RuntimeError(f"every agent needs two classes, but {_TRIES} draws left one without; use fewer agents")
