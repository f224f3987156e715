"""The cost of each method to reach a level: evaluations, time and bytes, and their performance profiles.

Profiles are those of Dolan and More, "Benchmarking optimization software with performance profiles", 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbo.analysis.comparison import GeometricMean, first_place, last_place, restricted_ratio
from fedbo.analysis.statistics.tasks import Comparable
from fedbo.analysis.traces import Axis

Array = npt.NDArray[np.float64]

AXES: tuple[Axis, ...] = ("evaluations", "time", "bytes")


@dataclass(frozen=True, slots=True)
class CostToLevel:
    """The costs of every method until it reaches the level of a task, on one axis.

    `costs (problems, methods)` has a row for each task and replicate; infinite if the level was not reached. `ends` has the
    costs of the whole runs. Bytes are those of the whole run so far, for each target.
    """

    axis: Axis
    labels: tuple[str, ...]
    tasks: tuple[str, ...]
    costs: Array
    ends: Array

    @property
    def reached(self) -> Array:
        """Return the share of problems `(methods,)` in which each method reached the level."""
        return np.asarray(np.isfinite(self.costs).mean(axis=0))

    def ratio(self, method: int) -> GeometricMean | None:
        """Return the restricted ratio of a method's cost to the baseline's (`restricted_ratio`); None if undefined."""
        return restricted_ratio(self.costs[:, [method, 0]], self.ends[:, [method, 0]])

    def profile(self, factors: Array) -> Array:
        """Return the share of problems `(factors, methods)` in which each method's cost was within that factor of the best."""
        best = self.costs.min(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            # A best cost of 0 has the ratio 1, not 0 / 0.
            ratios = np.where(self.costs == best, 1.0, self.costs / best)
        ratios = np.where(np.isfinite(self.costs), ratios, np.inf)
        return np.array([(ratios <= factor).mean(axis=0) for factor in factors])


def costs_to_level(found: Comparable, axis: Axis) -> CostToLevel | None:
    """Measure the cost of each method until it reaches the level of each task; None if no method has any.

    The level is the median of the final values of all methods in all replicates of the task. The final value of one method
    would be reached by that method in every replicate, and by an equal one only by luck. Methods that send nothing are left out
    of bytes.
    """
    labels = found.labels if axis != "bytes" else tuple(label for label in found.labels if _sends(found, label))
    rows, ends, names = list[list[float]](), list[list[float]](), list[str]()
    for task in found.tasks:
        level = float(np.median(found.replicates(task)))
        for replicate in found.shared(task):
            rows.append([first_place(task.traces[label], replicate, level, axis) for label in labels])
            ends.append([last_place(task.traces[label], replicate, axis) for label in labels])
            names.append(task.name)
    return CostToLevel(axis, labels, tuple(names), np.array(rows), np.array(ends)) if labels else None


def _sends(found: Comparable, label: str) -> bool:
    return any(trace.moved[-1] > 0 for task in found.tasks for trace in task.traces[label])


def factors_of(costs: Sequence[CostToLevel], count: int = 60) -> Array:
    """Return the factors of a profile: from 1 to the largest ratio of any method that reached the level, at most 100."""
    most = 1.0
    for one in costs:
        best = one.costs.min(axis=1, keepdims=True)
        usable = np.isfinite(one.costs) & (best > 0)
        most = max([most, *(one.costs[usable] / np.broadcast_to(best, one.costs.shape)[usable]).tolist()])
    return np.geomspace(1.0, min(100.0, max(2.0, most)), count)
