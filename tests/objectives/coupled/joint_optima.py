"""The joint optima of problems with coupled agents, which methods are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from fedbo.objectives.base import Array, Objective
from fedbo.objectives.coupled.admm_toys import Plant
from fedbo.objectives.coupled.network_flow import Node
from fedbo.settings.sums import plain_sum


def joint_score(objectives: Sequence[Objective], points: Array) -> float:
    """Return the sum of all agents' noise-free values at their points `(N, d)`, or at one common point `(d,)`."""
    each = np.broadcast_to(points, (len(objectives), np.shape(points)[-1]))
    scores = [objective.score(x) for objective, x in zip(objectives, each, strict=True)]
    return float(plain_sum(score for score in scores if score is not None))


def plants_consensus(plants: Sequence[Plant]) -> Array:
    """Return the common point `(d,)` that maximises the sum, with SciPy."""
    box = [(parameter.low, parameter.high) for parameter in plants[0].parameters]
    start = np.mean([plant.wish for plant in plants], axis=0)

    def cost(x: Array) -> float:
        return -joint_score(plants, np.clip(x, *np.array(box).T))

    found = scipy.optimize.minimize(cost, start, bounds=box, tol=1e-12)
    return np.asarray(found.x)


def plants_allocation(plants: Sequence[Plant], total: Array, at_most: bool = False) -> Array:
    """Return the shares `(N, d)` that maximise the sum and add up to `total (d,)`, or at most to it, with SciPy."""
    n, d = len(plants), len(total)
    low, high = (np.tile([getattr(p, side) for p in plants[0].parameters], n) for side in ("low", "high"))
    start = np.tile(np.asarray(total) / n, n)
    add = np.tile(np.eye(d), n)
    constraint = scipy.optimize.LinearConstraint(add, -np.inf if at_most else total, total)

    def cost(x: Array) -> float:
        return -joint_score(plants, np.clip(x, low, high).reshape(n, d))

    options: Any = {"maxiter": 500, "ftol": 1e-12}
    box, first = scipy.optimize.Bounds(low, high), np.clip(start, low, high)
    found = scipy.optimize.minimize(cost, first, method="SLSQP", bounds=box, constraints=[constraint], options=options)
    return np.asarray(found.x).reshape(n, d)


def best_flows(nodes: Sequence[Node]) -> Array:
    """Find the flows `(N,)` on all edges that cost least together, with SciPy; edge i leads from node i to the next."""

    def cost(flow: Array) -> float:
        inside_box = np.clip(flow, -1.0, 1.0)
        return -plain_sum(node.score(inside_box[[i - 1, i]]) for i, node in enumerate(nodes))

    found = scipy.optimize.minimize(cost, np.zeros(len(nodes)), bounds=[(-1.0, 1.0)] * len(nodes), tol=1e-12)
    return np.asarray(found.x)
