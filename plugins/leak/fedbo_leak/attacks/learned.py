"""Attacks that are learned on federations of the same method with other seeds, by random forests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestRegressor

from fedbo.algorithms.base import Array
from fedbo_leak.attacks.base import Attack, Outcome, Witness, distance
from fedbo_leak.attacks.best_point import BEST, blind_points, said, truths_of
from fedbo_leak.attacks.counts import NUMBER, statistics
from fedbo_leak.readings import COORDINATOR, Evidence, points_of_cube

Flags = npt.NDArray[np.bool_]
FEWEST = 3  # runs from which something can be learned for another one
_GRID, _TREES = 64, 100


def description(evidence: Evidence) -> Array:
    """Describe all messages of an agent `(k,)`: their mean function and the newest on a grid, the best that was said, sizes."""
    points = points_of_cube(_GRID, evidence.run.problem.dim)
    newest = evidence.readings[-1]
    surfaces = (evidence.surface, newest.surface(evidence.rows))
    parts = [np.zeros(_GRID) if surface is None else _standard(surface(points)) for surface in surfaces]
    best = said(evidence)
    parts.append(np.full(evidence.run.problem.dim, 0.5) if best is None else best)
    parts.append(statistics(newest))
    return np.concatenate(parts)


def _standard(values: Array) -> Array:
    return np.asarray((values - values.mean()) / (np.std(values) or 1.0))


def held_out(groups: Array) -> Iterator[tuple[Flags, Flags]]:
    """Yield which cases to learn from and which to attack: other runs, so other seeds, in five parts at most."""
    distinct = np.unique(groups)
    for part in np.array_split(distinct, min(5, len(distinct))):
        attacked = np.isin(groups, part)
        yield ~attacked, attacked


def _learned(inputs: Array, truths: Array, groups: Array) -> Array:
    found = np.empty(truths.shape)
    for known, attacked in held_out(groups):
        forest = RandomForestRegressor(_TREES, min_samples_leaf=2, max_features=0.5, random_state=0)
        found[attacked] = forest.fit(inputs[known], truths[known]).predict(inputs[attacked])
    return found


def _is_new_in_each_run(witness: Witness) -> bool:
    """Check that replicates have other functions: where they are the same, learning from another run is only looking up."""
    federation = witness.runs[0].federation
    return len(witness.runs) >= FEWEST and federation is not None and federation.random_per_replicate


def _best_points(witness: Witness, view: str) -> list[Outcome]:
    cases = [*witness.cases(view)]
    if not _is_new_in_each_run(witness) or len({case.run for case in cases}) < FEWEST:
        return []
    inputs = [description(case.evidence) for case in cases]
    if len({len(one) for one in inputs}) > 1:
        return []
    truths = np.array([case.truth.best_point for case in cases])
    blind = blind_points(witness, truths_of(witness, BEST))
    guesses = _learned(np.array(inputs), truths, np.array([case.run for case in cases]))
    return [
        Outcome(case.run, distance(guess, truth), distance(blind[case.run], truth))
        for case, guess, truth in zip(cases, guesses, truths, strict=True)
    ]


def _numbers(witness: Witness, view: str) -> list[Outcome]:
    if view != COORDINATOR:
        return []
    cases = [(case, reading) for case in witness.cases(view) for reading in case.evidence.readings]
    if len({case.run for case, _ in cases}) < FEWEST:
        return []
    inputs = [statistics(reading) for _, reading in cases]
    if len({len(one) for one in inputs}) > 1:
        return []
    known, groups = np.array(inputs), np.array([case.run for case, _ in cases])
    truths = np.array([float(len(case.truth.until(reading.step).x)) for case, reading in cases])
    blind = np.abs(_learned(known[:, :2], truths, groups) - truths)
    if blind.mean() < 0.25:  # observations: then everybody knows the number from the step
        return []
    errors = np.abs(_learned(known, truths, groups) - truths)
    return [Outcome(int(run), float(one), float(other)) for run, one, other in zip(groups, errors, blind, strict=True)]


ATTACKS = [Attack(BEST, "learned (forest)", _best_points), Attack(NUMBER, "learned (forest)", _numbers)]
