"""The tasks of several runs: the objective, with the traces of every method that was run on it.

A task is one cell of a study. Runs of the same study with other algorithms belong to the same task, and are joined: their
replicates have the same draws.
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
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.grouping import by_cell_and_algorithm, grouped
from fedbo.analysis.result import Result
from fedbo.analysis.traces import IncumbentTrace
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
    left_out = [f"task {task.name}: no runs of {_missing(wanted, task)}" for task in tasks if task not in kept]
    left_out += [f"algorithm {label}: did not run on every task" for label in known if label not in wanted and not labels]
    made = Comparable(tuple(wanted), tuple(kept))
    usable = [task for task in kept if np.isfinite(made.replicates(task)).all() and len(made.replicates(task))]
    left_out += [f"task {task.name}: an algorithm has no successful evaluation" for task in kept if task not in usable]
    if not usable:
        raise ResultError(f"no task can be compared: {'; '.join(left_out)}")
    return Comparable(made.labels, tuple(usable), tuple(left_out))


def _missing(wanted: Sequence[str], task: BenchmarkTask) -> str:
    return ", ".join(label for label in wanted if label not in task.traces)


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
