"""The search for the best point of one draw for each metric: by weights of the objectives, or on the front of the draws.

A point is feasible where the draws of all margins are at least their thresholds. Feasible points come first; of others, those
with the least sum of violations (SCBO: Eriksson and Poloczek 2021). Draws are in units of their models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.algorithms.base import Array, Problem
from fedbo.algorithms.components.several import Several
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.acquisition import sobol
from fedbo.surrogates.fronts import non_dominated
from fedbo.surrogates.projected import ProjectedSpace, nearby

SCALARISATIONS = ("hypervolume", "chebyshev", "pareto")
ROUNDS = 4  # of points scattered about the best ones
PARENTS, CHILDREN = 4, 32  # about how many points, and how many about each
FRONT = 16  # points of a front that are kept from round to round
EVERYWHERE = 512  # candidates everywhere
CENTRES, NEAR = 4, 64  # known points about which there are candidates, and how many
AT_FIRST = 32  # points at which all draws are evaluated before it is known which others can be better
WIDTHS = (1e-3, 0.3)  # least and largest standard deviation of those about a centre, over the side of the box
AUGMENTED = 0.05  # weight of the sum in the augmented Chebyshev function (Knowles 2006)
LEAST = 1e-6  # of a weight
Index = npt.NDArray[np.intp]
Values = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Judge:
    """The comparison of points by their metrics `(n, k)`, in units of the models, objectives first.

    scalarise: how several objectives are compared; not used for one.
    thresholds `(c,)`: least values of the margins.
    weights `(m,)`: of the objectives, on the positive sphere times those of the agent.
    references `(m,)`: of "hypervolume".
    ideal `(m,)`: the largest known values, of "chebyshev".
    """

    scalarise: str
    thresholds: Array
    weights: Array
    references: Array
    ideal: Array

    @property
    def by_front(self) -> bool:
        """Return whether points are chosen on the front of the draws."""
        return len(self.weights) > 1 and self.scalarise == "pareto"

    def violations(self, metrics: Array) -> Array:
        """Return the sums `(n,)` of what margins lack; 0 where a point is feasible."""
        return np.asarray(np.maximum(self.thresholds - metrics[:, len(self.weights) :], 0.0).sum(axis=1))

    def scores(self, metrics: Array) -> Array:
        """Return one number `(n,)` for the objectives of each point.

        "hypervolume": min_i (y_i - r_i) / w_i, whose positive m-th power has the hypervolume as its expectation over weights
        (Golovin and Zhang 2020). "chebyshev": the augmented Chebyshev function of ParEGO.
        """
        values = metrics[:, : len(self.weights)]
        if len(self.weights) == 1:
            return values[:, 0]
        if self.scalarise == "hypervolume":
            return np.asarray(((values - self.references) / self.weights).min(axis=1))
        weighted = (values - self.ideal) * self.weights
        return np.asarray(weighted.min(axis=1) + AUGMENTED * weighted.sum(axis=1))

    def promises(self, first: Array) -> Array:
        """Return the largest scores `(n,)` that points with these values of the first objective can have."""
        if len(self.weights) == 1:
            return first
        if self.scalarise == "hypervolume":
            return np.asarray((first - self.references[0]) / self.weights[0])
        return np.full(len(first), np.inf)

    def least(self, metrics: Array, count: int) -> float:
        """Return the score of the feasible point of rank `count`, or -inf with fewer of them."""
        if len(metrics) < count:
            return -np.inf
        scores = self.scores(metrics[self.violations(metrics) == 0.0])
        return -np.inf if len(scores) < count else float(np.partition(scores, -count)[-count])

    def order(self, metrics: Array) -> Index:
        """Return the places of the points, the best first; on a front those of the feasible front alone."""
        violations = self.violations(metrics)
        feasible = np.flatnonzero(violations == 0.0)
        if self.by_front and len(feasible):
            return feasible[non_dominated(metrics[feasible, : len(self.weights)])]
        scores = metrics[:, : len(self.weights)].mean(axis=1) if self.by_front else self.scores(metrics)
        return np.lexsort((-scores, violations))

    def merits(self, metrics: Array) -> Array:
        """Return one number `(n,)` for each point that orders them as `order` does."""
        scores, violations = self.scores(metrics), self.violations(metrics)
        least = float(scores.min(initial=0.0))
        return np.where(violations > 0.0, least - violations, scores)


def make_judge(scalarise: str, several: Several, units: tuple[Array, Array, Array], streams: Streams) -> Judge:
    """Return a judge with weights drawn for this decision; `units` are those of `standard_units`."""
    known, references, thresholds = units
    m = several.objectives
    weights = np.ones(m)
    if m > 1 and scalarise != "pareto":
        drawn = np.abs(streams.rng("weights of the objectives").standard_normal(m))
        drawn = drawn * np.asarray(several.weights or 1.0)
        weights = np.maximum(drawn / np.linalg.norm(drawn), LEAST)
    values = known[:, :m]
    ideal = np.where(np.isnan(values), -np.inf, values).max(axis=0, initial=-np.inf)
    return Judge(scalarise, thresholds, weights, references, np.where(np.isfinite(ideal), ideal, 0.0))


def unsuitable(scalarise: str, problem: Problem) -> str:
    """Return why draws cannot be compared so in a problem; empty where they can."""
    if problem.objectives > 1 and len(problem.references) != problem.objectives and scalarise == "hypervolume":
        return "scalarise = 'hypervolume' needs a reference for each objective"
    if problem.objectives > 1 and scalarise == "pareto" and len(set(problem.weights)) > 1:
        return "scalarise = 'pareto' has no weights of objectives; set 'hypervolume' or 'chebyshev', or equal weights"
    return ""


class SearchBox(NamedTuple):
    """Where points are searched: a box with corners `low` and `high`, `(e,)`, or the points of a typed space."""

    low: Array
    high: Array
    space: ProjectedSpace | None = None

    def candidates(self, rng: np.random.Generator) -> Array:
        """Return points `(n, e)` everywhere."""
        if self.space is not None:
            return self.space.candidates()
        shifted = (sobol(len(self.low))[:EVERYWHERE] + rng.random(len(self.low))) % 1.0
        return np.asarray(self.low + (self.high - self.low) * shifted)

    def about(self, centres: Array, count: int, widest: float, rng: np.random.Generator) -> Array:
        """Return `count` points about each of the centres `(r, e)`, at scales of several orders of magnitude."""
        if not len(centres):
            return centres
        if self.space is not None:
            return self.space.project(nearby(centres, self.space, rng, count))
        widths = np.exp(rng.uniform(log(WIDTHS[0] * widest), log(WIDTHS[1] * widest), (len(centres), count, 1)))
        points = centres[:, None] + widths * (self.high - self.low) * rng.standard_normal((len(centres), count, len(self.low)))
        return np.clip(points.reshape(-1, len(self.low)), self.low, self.high)

    def left(self, points: Array) -> Array:
        """Return the points that were not evaluated, or all where none is left."""
        left = points if self.space is None else self.space.untaken(points)
        return left if len(left) else points


def best_of_draws(draws: Sequence[Values], judge: Judge, room: SearchBox, known: Array, streams: Streams) -> Array:
    """Return the point `(e,)` that is best by one draw for each metric, functions of points `(n, e)`.

    The candidates are points everywhere and about the best of the `known (n, e)` ones; then points about the best candidates,
    ever nearer. On a front the point farthest from the known ones is taken (qPOTS: Renganathan and Carlson 2025).
    """
    rng = streams.rng("maximiser")
    nothing = known[:0], np.empty((0, len(draws)))
    centres, found = _joined(draws, judge, nothing, known, CENTRES)
    centres = centres[judge.order(found)[:CENTRES]]
    candidates = np.vstack([room.candidates(rng), room.about(centres, NEAR, 1.0, rng)])
    kept = FRONT if judge.by_front else PARENTS
    points, found = _joined(draws, judge, nothing, room.left(candidates), kept)
    for number in range(ROUNDS):
        best = judge.order(found)
        best = best[:: -(-len(best) // kept)] if judge.by_front else best[:kept]  # of a front evenly
        more = room.left(room.about(points[best], CHILDREN, 0.5**number, rng))
        points, found = _joined(draws, judge, (points[best], found[best]), more, kept)
    best = judge.order(found)
    if judge.by_front and len(known) and not judge.violations(found[best[:1]]).any():
        return np.asarray(points[best[scipy.spatial.distance.cdist(points[best], known).min(axis=1).argmax()]])
    return np.asarray(points[best[0]])


def _joined(draws: Sequence[Values], judge: Judge, known: tuple[Array, Array], more: Array, kept: int) -> tuple[Array, Array]:
    """Return known points `(r, e)` and metrics `(r, k)` with `more (n, e)` points, except some not among the best `kept`.

    The first draw is evaluated everywhere, and the others where it promises most, and then where it promises enough.
    """
    points, metrics = known
    first = draws[0](more)
    promises = judge.promises(first)
    left, size = np.argsort(-promises, kind="stable"), AT_FIRST
    while len(left := left[promises[left] >= judge.least(metrics, kept)]):
        rows, left, size = left[:size], left[size:], len(left)
        columns = [first[rows], *(draw(more[rows]) for draw in draws[1:])]
        points, metrics = np.concatenate([points, more[rows]]), np.concatenate([metrics, np.array(columns).T])
    if not (np.isfinite(first).all() and np.isfinite(metrics).all()):
        raise ValueError("a draw has values that are not finite")
    return points, metrics
