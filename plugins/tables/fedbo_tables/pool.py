"""The workers of a tabulation: one in this process, or Ray actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fedbo.actors.late_ray import ray
from fedbo.execution.cluster import Cluster, connected
from fedbo.execution.workers import ActorPool, Interrupted

TaskPool = Callable[[Sequence[Any], Interrupted], Iterator[Any]]
TABULATOR_DEATHS = 3  # of the process at one job, which has no snapshots


@contextmanager
def task_pool(kind: type[Any], plan: Any, count: int, on: Cluster, folder: Path) -> Iterator[TaskPool]:
    """Start objects `kind(plan)` that run jobs: one in this process, or `count` Ray actors, which write to a folder.

    The pool takes the jobs and a function that returns whether to stop. It yields what each job's `work` returned, in any
    order. It raises the error of a job once the running jobs have ended.
    """
    if not count and on.address is None:
        yield partial(_results_here, kind(plan))
        return
    with connected(on, max(1, count), folder) as check:
        # A second thread, because `stop` is called while `work` goes on.
        actor = ray.remote(kind).options(num_cpus=1, max_concurrency=2, scheduling_strategy="SPREAD")
        pool = ActorPool(partial(actor.remote, plan), max(1, count), TABULATOR_DEATHS, check)
        try:
            yield partial(pool.results, lambda actor, job: actor.work.remote(job))
        finally:
            pool.kill()


def _results_here(worker: Any, jobs: Sequence[Any], interrupted: Interrupted) -> Iterator[Any]:
    for job in jobs:
        if interrupted():
            return
        yield worker.work(job, interrupted)
