"""What it costs each method to reach a level: evaluations, time and bytes, and performance profiles of them.

Profiles are those of Dolan and More, "Benchmarking optimization software with performance profiles", 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbo.results.compare import GeometricMean, first_place, geometric
from fedbo.results.curves import Axis
from fedbo.statistics.tasks import BenchmarkTask, Comparable

Array = npt.NDArray[np.float64]

AXES: tuple[Axis, ...] = ("evaluations", "time", "bytes")


@dataclass(frozen=True, slots=True)
class CostToLevel:
    """What every method needed to be as good as the baseline was in the end, on one axis.

    `costs (problems, methods)` has a row for each task and replicate; infinite where the level was not reached. Bytes are
    those of the whole run by then, for each target.
    """

    axis: Axis
    labels: tuple[str, ...]
    tasks: tuple[str, ...]
    costs: Array

    @property
    def reached(self) -> Array:
        """Give the share of problems `(methods,)` in which each method reached the level."""
        return np.asarray(np.isfinite(self.costs).mean(axis=0))

    def ratio(self, method: int) -> GeometricMean | None:
        """Give the geometric mean of a method's cost over the baseline's, where both reached the level; None if it has none."""
        mine, base = self.costs[:, method], self.costs[:, 0]
        both = np.isfinite(mine) & np.isfinite(base) & (mine > 0) & (base > 0)
        return geometric(mine[both] / base[both]) if both.sum() > 1 else None

    def profile(self, factors: Array) -> Array:
        """Give the share of problems `(factors, methods)` in which each was at most so many times as dear as the best."""
        best = self.costs.min(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.where(self.costs == best, 1.0, self.costs / best)
        ratios = np.where(np.isfinite(self.costs), ratios, np.inf)
        return np.array([(ratios <= factor).mean(axis=0) for factor in factors])


def costs_to_level(found: Comparable, axis: Axis) -> CostToLevel:
    """Measure what each method needed for the level that the first of them had in the end of the same task and replicate."""
    rows, names = list[list[float]](), list[str]()
    for task in found.tasks:
        for replicate, level in sorted(task.finals(found.labels[0]).items()):
            rows.append([_cost(task, label, replicate, (level, axis)) for label in found.labels])
            names.append(task.name)
    return CostToLevel(axis, found.labels, tuple(names), np.array(rows))


def _cost(task: BenchmarkTask, label: str, replicate: int, wanted: tuple[float, Axis]) -> float:
    there = any(trace.replicate == replicate for trace in task.traces[label])
    return first_place(task.traces[label], replicate, *wanted) if there else float("inf")


def factors_of(costs: Sequence[CostToLevel], count: int = 60) -> Array:
    """Choose the factors of a profile: from 1 to the largest ratio of any method that reached the level, at most 100."""
    most = 1.0
    for one in costs:
        best = one.costs.min(axis=1, keepdims=True)
        usable = np.isfinite(one.costs) & (best > 0)
        most = max([most, *(one.costs / np.where(best > 0, best, 1.0))[usable].tolist()])
    return np.geomspace(1.0, min(100.0, max(2.0, most)), count)
