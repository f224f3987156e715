"""How many observations are behind a message? It is said, it is a rank, or it follows from the size of the numbers."""

from __future__ import annotations

import numpy as np

from fedbo.algorithms.base import Array
from fedbo_leak.attacks.base import Attack, Outcome, Witness
from fedbo_leak.attacks.observations import RANK
from fedbo_leak.readings import COORDINATOR, Reading

NUMBER = "number of observations"
_KNOWN_TO_ALL = 0.25  # observations: a mean error below this says that the number of a step is public


def statistics(reading: Reading) -> Array:
    """Return numbers `(k,)` of a message that may tell on how many observations it rests."""
    numbers = reading.numbers
    size = np.log(np.linalg.norm(numbers) + 1e-9)
    found = [1.0, float(reading.step), size, np.log(np.std(numbers) + 1e-9), float(len(numbers))]
    known = reading.certainty
    found.append(0.0 if known is None else float(known.numbers.sum()))
    if reading.sums is not None:
        values = np.linalg.eigvalsh((reading.sums + reading.sums.T) / 2)
        found += [float((values > RANK * values[-1]).sum()), float(np.trace(reading.sums))]
    return np.array(found)


def predicted(inputs: Array, numbers: Array, runs: Array) -> Array:
    """Predict the numbers `(n,)` of each run by ridge regression on the others; on the same one where there is only one."""
    found = np.empty(len(numbers))
    scale = inputs.std(axis=0)
    scaled = np.where(scale > 0, (inputs - inputs.mean(axis=0)) / np.where(scale > 0, scale, 1.0), 1.0)
    for run in np.unique(runs):
        own, rest = runs == run, runs != run if len(np.unique(runs)) > 1 else runs == run
        gram = scaled[rest].T @ scaled[rest] + 1e-3 * np.eye(scaled.shape[1])
        found[own] = scaled[own] @ np.linalg.solve(gram, scaled[rest].T @ numbers[rest])
    return found


def _numbers(witness: Witness, view: str) -> list[Outcome]:
    if view != COORDINATOR:
        return []
    inputs, truths, runs = [], [], []
    for case in witness.cases(view):
        for reading in case.evidence.readings:
            inputs.append(statistics(reading))
            truths.append(float(len(case.truth.until(reading.step).x)))
            runs.append(case.run)
    if not truths or len({len(one) for one in inputs}) > 1:
        return []
    known, numbers, owners = np.array(inputs), np.array(truths), np.array(runs)
    blind = np.abs(predicted(known[:, :2], numbers, owners) - numbers)
    if blind.mean() < _KNOWN_TO_ALL:
        return []
    errors = np.abs(predicted(known, numbers, owners) - numbers)
    return [Outcome(int(run), float(one), float(other)) for run, one, other in zip(owners, errors, blind, strict=True)]


ATTACKS = [Attack(NUMBER, "regression on sizes", _numbers)]
