"""The tasks of several runs, with the traces of every method, and the cost of each method to reach the level of a task.

A task is one cell of a study. Runs of the same study with other algorithms belong to the same task, and are joined: their
replicates have the same draws. Performance profiles are those of Dolan and More, "Benchmarking optimization software with
performance profiles", 2002.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbo.analysis.averages import replicate_means
from fedbo.analysis.comparison import GeometricMean, first_place, last_place, restricted_ratio
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.grouping import by_cell_and_algorithm, grouped
from fedbo.analysis.result import Result
from fedbo.analysis.traces import Axis, IncumbentTrace
from fedbo.objectives.base import Metric

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BenchmarkTask:
    """One task: its name, its metric, and the traces of each method by its label."""

    name: str
    metric: Metric
    traces: dict[str, list[IncumbentTrace]]

    def finals(self, label: str) -> dict[int, float]:
        """Return the final score of a method in each replicate, to be maximised: the mean over its targets."""
        means = replicate_means(self.traces[label], "iteration", np.array([np.inf]))
        return {replicate: float(mean[0]) for replicate, mean in means.items()}


@dataclass(frozen=True, slots=True)
class Comparable:
    """Tasks on which the same methods were run: the labels of these methods, and lines about what was left out."""

    labels: tuple[str, ...]
    tasks: tuple[BenchmarkTask, ...]
    left_out: tuple[str, ...] = ()

    def scores(self) -> Array:
        """Return the mean score over the replicates that all methods have, `(tasks, methods)`, to be maximised."""
        return np.array([np.mean(self.replicates(task), axis=0) for task in self.tasks])

    def replicates(self, task: BenchmarkTask) -> Array:
        """Return the scores of a task in the replicates that all methods have, `(replicates, methods)`."""
        finals = [task.finals(label) for label in self.labels]
        return np.array([[one[number] for one in finals] for number in self.shared(task)])

    def shared(self, task: BenchmarkTask) -> list[int]:
        """List the replicates of a task that all methods have."""
        return sorted(set.intersection(*({trace.replicate for trace in task.traces[label]} for label in self.labels)))

    def normalised(self) -> Array:
        """Return the scores on each task's own scale, `(tasks, methods)`.

        1 is the best final value of any method in any replicate, and 0 the worst.
        """
        single = [self.replicates(task) for task in self.tasks]
        spans = [float(np.ptp(one)) or 1.0 for one in single]
        return np.array([(one.mean(axis=0) - one.min()) / span for one, span in zip(single, spans, strict=True)])


def comparable(results: Sequence[Result], labels: Sequence[str] = ()) -> Comparable:
    """Join runs into tasks, and keep those on which every method was run; the default methods are those of any task.

    If no task has all of them, the methods that all tasks have are kept.

    Raises:
        ResultError: fewer than two methods are left.
    """
    tasks = _joined(results)
    known = list(dict.fromkeys(label for task in tasks for label in task.traces))
    if gone := [label for label in labels if label not in known]:
        raise ResultError(f"no algorithm '{gone[0]}'; available: {', '.join(known)}")
    wanted = list(labels) or known
    if not any(set(wanted) <= set(task.traces) for task in tasks):
        wanted = [label for label in wanted if all(label in task.traces for task in tasks)]
    if len(wanted) < 2:
        raise ResultError("no two algorithms ran on the same task; pass runs with common tasks")
    kept = [task for task in tasks if set(wanted) <= set(task.traces)]
    left_out = [
        f"task {task.name}: no runs of {', '.join(label for label in wanted if label not in task.traces)}"
        for task in tasks
        if task not in kept
    ]
    left_out += [f"algorithm {label}: did not run on every task" for label in known if label not in wanted and not labels]
    made = Comparable(tuple(wanted), tuple(kept))
    usable = [task for task in kept if np.isfinite(made.replicates(task)).all() and len(made.replicates(task))]
    left_out += [f"task {task.name}: an algorithm has no successful evaluation" for task in kept if task not in usable]
    if not usable:
        raise ResultError(f"no task can be compared: {'; '.join(left_out)}")
    return Comparable(made.labels, tuple(usable), tuple(left_out))


def _joined(results: Sequence[Result]) -> list[BenchmarkTask]:
    """Join the cells of runs by their problem; of two runs of one method the first counts."""
    found: dict[str, BenchmarkTask] = {}
    for result in results:
        titles, same = result.study.titles(), _problem(result)
        groups = grouped(by_cell_and_algorithm(result.traces).items(), lambda item: item[0][0])
        for cell, mine in groups.items():
            name = " ".join(word for word in (result.study.study.name, titles[cell]) if word)
            task = found.setdefault(f"{same} {titles[cell]}", BenchmarkTask(name, result.metric(cell), {}))
            for (_, label), traces in mine:
                task.traces.setdefault(label, traces)
    doubled = {name for name, count in Counter(task.name for task in found.values()).items() if count > 1}
    numbers = Counter[str]()
    tasks = []
    for task in found.values():
        numbers[task.name] += 1
        name = f"{task.name} ({numbers[task.name]})" if task.name in doubled else task.name
        tasks.append(BenchmarkTask(name, task.metric, task.traces))
    return tasks


def _problem(result: Result) -> str:
    """Return a hash of a study without its methods: equal for runs whose replicates can be paired."""
    document = result.study.document()
    about = {key: value for key, value in document.items() if key not in ("study", "algorithm", "hosting", "recovery", "sweep")}
    about["seed"] = result.study.study.seed
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()


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
    labels = found.labels
    if axis == "bytes":
        sent = {label for task in found.tasks for label, own in task.traces.items() if any(one.moved[-1] > 0 for one in own)}
        labels = tuple(label for label in labels if label in sent)
    rows, ends, names = list[list[float]](), list[list[float]](), list[str]()
    for task in found.tasks:
        level = float(np.median(found.replicates(task)))
        for replicate in found.shared(task):
            rows.append([first_place(task.traces[label], replicate, level, axis) for label in labels])
            ends.append([last_place(task.traces[label], replicate, axis) for label in labels])
            names.append(task.name)
    return CostToLevel(axis, labels, tuple(names), np.array(rows), np.array(ends)) if labels else None


def factors_of(costs: Sequence[CostToLevel], count: int = 60) -> Array:
    """Return the factors of a profile: from 1 to the largest ratio of any method that reached the level, at most 100."""
    most = 1.0
    for one in costs:
        best = one.costs.min(axis=1, keepdims=True)
        usable = np.isfinite(one.costs) & (best > 0)
        most = max([most, *(one.costs[usable] / np.broadcast_to(best, one.costs.shape)[usable]).tolist()])
    return np.geomspace(1.0, min(100.0, max(2.0, most)), count)
