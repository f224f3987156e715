"""Which points has an agent evaluated, and with what values? Read, invert, or look at what changes between messages.

Features of n < M points span a space of dimension n. A sum of their outer products tells this space, and a point is one of
them if its features lie in it. So points follow from sums exactly, and not at all once the space is everything (n >= M). Each
message has few points more than the one before, so differences are told apart for any n.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from fedbo.algorithms.bandits.arms import grid
from fedbo.algorithms.base import Array
from fedbo_leak.attacks.base import CANDIDATES, Attack, Outcome, Witness, distance, remembered, summit
from fedbo_leak.readings import AtPoints, Evidence, Reading, Rows, points_of_cube, smooth
from fedbo_leak.watched import Truth

POINTS, OBSERVED, VALUES = "evaluated points", "observations", "values"
NEAR = 0.02  # of the box: a point that is found so closely counts as found
RANK = 1e-7  # of the largest eigenvalue: those below count as none
APART = 0.12  # between maxima of a certainty that count as two


@remembered
def said(evidence: Evidence) -> AtPoints | None:
    """Collect the points that were said, the newest first."""
    found = [reading.said for reading in reversed(evidence.readings) if reading.said is not None]
    if not found:
        return None
    points, numbers = np.concatenate([at.points for at in found]), np.concatenate([at.numbers for at in found])
    _, first = np.unique(points, axis=0, return_index=True)
    return AtPoints(points[np.sort(first)], numbers[np.sort(first)])


@remembered
def of_sums(evidence: Evidence) -> AtPoints | None:
    """Invert sums of features over observations: what is new in each message, exactly where there are fewer than M."""
    readings = [reading for reading in evidence.readings if reading.sums is not None]
    if evidence.rows is None or not readings:
        return None
    arms = getattr(evidence.run.algorithm, "arms", None)
    lattice = None if arms is None else grid(evidence.run.problem.dim, arms)
    found = []
    for before, after in pairwise([None, *readings]):
        assert after is not None and after.sums is not None
        sums = after.sums if before is None or before.sums is None else after.sums - before.sums
        points = invert(sums, evidence.rows, evidence.run.problem.dim, lattice)
        moment = _difference(before, after)
        values = np.full(len(points), np.nan)
        if moment is not None and len(points):
            values = np.linalg.lstsq(evidence.rows(points).T, moment, rcond=None)[0]
        found.append(AtPoints(points, values))
    return AtPoints(np.concatenate([at.points for at in found]), np.concatenate([at.numbers for at in found]))


def _difference(before: Reading | None, after: Reading) -> Array | None:
    if after.moment is None or before is None or before.moment is None:
        return after.moment
    return after.moment - before.moment


def invert(sums: Array, rows: Rows, dim: int, lattice: Array | None = None) -> Array:
    """Return the points `(k, d)` whose features lie in the range of a sum of outer products `(M, M)`; none where it is full.

    Where points can only be those of a `lattice (K, d)`, only these are tried.
    """
    values, vectors = np.linalg.eigh((sums + sums.T) / 2)
    largest = max(float(values[-1]), 0.0)
    kept = values > RANK * largest
    rank = int(kept.sum())
    if not largest > 0.0 or rank >= len(values) - 1:
        return np.empty((0, dim))
    span = vectors[:, kept]

    def outside(x: Array) -> Array:
        features = rows(np.atleast_2d(x))
        part = features @ span
        return np.asarray(1.0 - (part**2).sum(axis=1) / np.maximum((features**2).sum(axis=1), 1e-300))

    def outside_of_one(x: Array) -> float:
        return float(outside(x)[0])

    if lattice is not None:
        left = outside(lattice)
        return np.asarray(lattice[np.argsort(left, kind="stable")[: int((left < RANK).sum())]])
    points = points_of_cube(2 * CANDIDATES, dim)
    starts = narrowed(outside, points[np.argsort(outside(points))[: 8 * rank + 8]])
    found = list[Array]()
    for start in starts:
        if any(distance(start, known) < NEAR / 4 for known in found):
            continue
        end: Any = scipy.optimize.minimize(outside_of_one, start, bounds=[(0.0, 1.0)] * dim, tol=1e-14)
        if end.fun < 1e-6 and all(distance(end.x, known) > NEAR / 4 for known in found):
            found.append(end.x)
        if len(found) == rank:
            break
    return np.array(found).reshape(-1, dim)


def narrowed(outside: Callable[[Array], Array], starts: Array) -> Array:
    """Move each of the points `(k, d)` downhill by a search around it; return the lowest first."""
    rng, (count, dim) = np.random.default_rng(0), starts.shape
    for width in (0.03, 0.01, 0.004, 0.0015):
        near = np.clip(starts[:, None] + width * rng.standard_normal((1, 24, dim)), 0.0, 1.0)
        near[:, 0] = starts
        values = outside(near.reshape(-1, dim)).reshape(count, -1)
        starts = near[np.arange(count), values.argmin(axis=1)]
    return np.asarray(starts[np.argsort(outside(starts))])


@remembered
def of_weights(evidence: Evidence) -> AtPoints | None:
    """Find points of whose features all weight vectors are sums, one after the other (orthogonal matching pursuit)."""
    weights = [reading.weights for reading in evidence.readings if reading.weights is not None]
    rows, dim = evidence.rows, evidence.run.problem.dim
    if rows is None or not weights:
        return None
    rest = np.array(weights)
    rest = rest / np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 1e-12)
    whole, found = rest, list[Array]()
    for _ in range(min(expected(evidence), rest.shape[1] - 1)):
        found.append(summit(partial(_explained_by, rows, rest), dim))
        basis = np.linalg.qr(rows(np.array(found)).T)[0]
        rest = whole - whole @ basis @ basis.T
    return AtPoints(np.array(found), np.full(len(found), np.nan))


def _explained_by(rows: Rows, weights: Array, x: Array) -> Array:
    return np.asarray(np.linalg.norm(_unit(rows(x)) @ weights.T, axis=1))


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def expected(evidence: Evidence) -> int:
    """Return how many evaluations are behind the newest message, as anybody can count them."""
    problem = evidence.run.problem
    return max(1, problem.pulls or problem.initial + evidence.readings[-1].step * (evidence.run.algorithm.queries or 1))


@remembered
def of_certainty(evidence: Evidence) -> AtPoints | None:
    """Look where certainty has grown between messages, and at its maxima in the first."""
    known = [reading.certainty for reading in evidence.readings if reading.certainty is not None]
    dim = evidence.run.problem.dim
    if not known:
        return None
    grid_points = points_of_cube(CANDIDATES, dim)
    found = maxima(grid_points, smooth(known[0])(grid_points), evidence.run.problem.initial or 1)
    steps = [reading.step for reading in evidence.readings if reading.certainty is not None]
    for place, (before, after) in enumerate(pairwise(known)):
        growth = smooth(AtPoints(after.points, after.numbers - before.numbers))(grid_points)
        found = np.concatenate([found, maxima(grid_points, growth, steps[place + 1] - steps[place])])
    return AtPoints(found, np.full(len(found), np.nan))


def maxima(points: Array, values: Array, count: int) -> Array:
    """Return the points `(k, d)` with the largest values that are apart from each other."""
    left, found = values.copy(), list[Array]()
    while len(found) < count and np.isfinite(left).any():
        best = points[int(np.argmax(left))]
        found.append(best)
        left[np.sqrt(np.mean((points - best) ** 2, axis=1)) < APART] = -np.inf
    return np.array(found).reshape(-1, points.shape[1])


@remembered
def of_changes(evidence: Evidence) -> AtPoints | None:
    """Look where the function has changed most between two messages."""
    surfaces = [surface for reading in evidence.readings if (surface := reading.surface(evidence.rows))]
    points = points_of_cube(CANDIDATES, evidence.run.problem.dim)
    if not surfaces:
        return None
    values = [surface(points) for surface in surfaces]
    changes = [np.abs(after - before) for before, after in pairwise(values)]
    found = [points[int(np.argmax(one))] for one in (values[0], *changes)]
    return AtPoints(np.array(found), np.full(len(found), np.nan))


GUESSES: dict[str, Callable[[Evidence], AtPoints | None]] = {
    "said": said,
    "range of the sums": of_sums,
    "pursuit of the weights": of_weights,
    "growth of certainty": of_certainty,
    "change of the function": of_changes,
}


WITH_VALUES = ("said", "range of the sums")


def share_found(guess: Array, truth: Truth) -> float:
    """Return the share of an agent's points that are found, by at most as many guesses as it has points."""
    tried = guess[: len(truth.x)]
    if not len(tried):
        return 0.0
    gaps = np.sqrt(((truth.x[:, None] - tried) ** 2).mean(axis=2)).min(axis=1)
    return float(np.mean(gaps <= NEAR))


def share_observed(guess: AtPoints, truth: Truth) -> float:
    """Return the share of an agent's observations of which point and value are found, in as many guesses as it has points.

    A value is found to within `NEAR` of the range of the agent's values.
    """
    points, numbers = guess.points[: len(truth.x)], guess.numbers[: len(truth.x)]
    if not len(points):
        return 0.0
    near = np.sqrt(((truth.x[:, None] - points) ** 2).mean(axis=2)) <= NEAR
    right = np.abs(truth.y[:, None] - numbers) <= NEAR * np.ptp(truth.y)
    return float((near & right).any(axis=1).mean())


def _points(guess: Callable[[Evidence], AtPoints | None], has_values: bool) -> Callable[[Witness, str], list[Outcome]]:
    def share(at: AtPoints, truth: Truth) -> float:
        return share_observed(at, truth) if has_values else share_found(at.points, truth)

    def carry_out(witness: Witness, view: str) -> list[Outcome]:
        found = []
        for case in witness.cases(view):
            known = case.truth.until(case.evidence.readings[-1].step)
            at = guess(case.evidence)
            if at is None or not len(known.x) or (has_values and not np.isfinite(at.numbers).any()):
                continue
            other = guess(case.other) if case.other.readings else None
            evenly = points_of_cube(CANDIDATES, known.x.shape[1])[: len(known.x)]
            blind = share(AtPoints(evenly, np.full(len(evenly), known.y.mean())), known)
            swapped = np.nan if other is None else share(other, known)
            found.append(Outcome(case.run, share(at, known), blind, swapped))
        return found

    return carry_out


def explained(surface: Callable[[Array], Array] | None, truth: Truth) -> float:
    """Return the share of the variance of an agent's values that a function explains, up to its scale and level."""
    if surface is None or len(truth.x) < 3 or not np.std(truth.y) > 0:
        return np.nan
    values = surface(truth.x)
    if not np.std(values) > 0:
        return 0.0
    return float(max(0.0, np.corrcoef(values, truth.y)[0, 1])) ** 2


def _values(witness: Witness, view: str) -> list[Outcome]:
    found = []
    for case in witness.cases(view):
        value = explained(case.evidence.surface, case.truth)
        if np.isfinite(value):
            other = explained(case.other.surface, case.truth) if case.other.readings else np.nan
            found.append(Outcome(case.run, value, 0.0, other))
    return found


ATTACKS = [
    *(Attack(POINTS, name, _points(guess, False)) for name, guess in GUESSES.items()),
    *(Attack(OBSERVED, name, _points(GUESSES[name], True)) for name in WITH_VALUES),
    Attack(VALUES, "mean function", _values),
]
