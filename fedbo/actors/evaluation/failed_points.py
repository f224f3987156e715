"""Handling of failed points where the study's policy is to avoid them.

An `Avoiding` algorithm learns of them as failures. Any other algorithm observes the worst value of its agent so far instead.
Algorithms that hide single evaluations are an exception: the same value would be part of several of their sent means.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.algorithms.base import Algorithm, Array, Avoiding, Decision, LocallyPrivate, Overlapping, Problem
from fedbo.algorithms.returned import updated
from fedbo.algorithms.streams import Streams

TRIES = 64  # uniform points drawn in place of one that failed, before a failed one may be evaluated again


def learns_failures(algorithm: Algorithm) -> bool:
    """Return whether an algorithm learns of failures as such."""
    return isinstance(algorithm, Avoiding)


def takes_worst(algorithm: Algorithm) -> bool:
    """Return whether an algorithm observes the worst value in place of a failed one."""
    return not (isinstance(algorithm, Avoiding) or hides(algorithm))


def hides(algorithm: Algorithm) -> bool:
    """Return whether an algorithm hides single evaluations in its messages."""
    return isinstance(algorithm, LocallyPrivate) and algorithm.hides


def keeps_points(algorithm: Algorithm) -> bool:
    """Return whether failed points are remembered.

    Bandits do not remember them, since they evaluate a point repeatedly by design.
    """
    return isinstance(algorithm, Avoiding | Overlapping)


def with_failures(algorithm: Algorithm, own: Any, failed: Array | None, x: Array) -> tuple[Any, Array]:
    """Add points `(f, d)` to the failed ones; return the algorithm's updated state and all failed points."""
    failed = x if failed is None else np.concatenate([failed, x])
    if learns_failures(algorithm):
        own = updated(algorithm, "avoiding", own, failed)
    return own, failed


def other_than(failed: Array, decision: Decision, problem: Problem, streams: Streams) -> Decision:
    """Replace points of a decision that failed before by uniform ones; an agreed point is kept."""
    if decision.pulls is not None or decision.origin == "agreed":
        return decision
    again = np.flatnonzero((decision.x[:, None] == failed[None]).all(axis=2).any(axis=1))
    if not len(again):
        return decision
    lattice = problem.lattice
    x, rng = decision.x.copy(), streams.rng("instead of a failed point")
    for place in again:
        for _ in range(TRIES):
            x[place] = rng.random(x.shape[1]) if lattice is None else lattice.project(rng.random((1, x.shape[1])))[0]
            if not (failed == x[place]).all(axis=1).any():
                break
    return decision._replace(x=x, origin="random")
