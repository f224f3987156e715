"""Who carries out the jobs of a study or of a table: this process alone, or Ray actors, coordinators where it is a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import ray

from fedbo.coordinator.runtime.actor import Coordinator, Run, RunProgress, RunSummary, WarmupRun, start_coordinators
from fedbo.execution.cluster import Cluster, ClusterError, connected
from fedbo.study.study import Study

_LIVES = 20  # how often the coordinator of one job may be lost
_CHANCES = 3  # how often a helper's process may die at one job
Job = WarmupRun | Run
Look = Callable[[int, Sequence[RunProgress], Sequence[RunSummary]], bool]


class Workforce(Protocol):
    """Carries out jobs; each may use everything that an earlier list of jobs left behind."""

    def carry_out(self, jobs: Sequence[Job], interrupted: Callable[[], bool], look: Look, ended: list[RunSummary]) -> None:
        """Carry all jobs out, in any order, and append to `ended` what each run left; raises what a job raised.

        `look` is told now and then how they stand, and says whether what there is in real time is enough.
        """


@contextmanager
def workforce(study: Study, folder: Path) -> Iterator[Workforce]:
    """Give the workforce that a study asks for, which writes to a folder; a Ray that it started is stopped in the end."""
    hosting = study.hosting
    if hosting.kind == "inline" and not hosting.workers and hosting.address is None:
        yield InProcess()
        return
    inline = hosting.kind == "inline"
    count = (hosting.workers or 1) if inline else 1
    with connected(Cluster(hosting.address, hosting.package), count if inline else 1, folder):
        yield Actors(count, cpus=1.0 if inline else 0.0)


class InProcess:
    """Workers of one: this process carries out one job after the other."""

    def carry_out(self, jobs: Sequence[Job], interrupted: Callable[[], bool], look: Look, ended: list[RunSummary]) -> None:
        """Carry all jobs out."""
        for number, job in enumerate(jobs):
            if interrupted():
                break
            coordinator = _Watched(interrupted, partial(_tell, look, number, ended))
            result = _do(coordinator, job)
            if result is not None:
                ended.append(result)
            look(number + 1, [], ended)


Helping = Callable[[Sequence[Any], Callable[[], bool]], Iterator[Any]]


@contextmanager
def helpers(kind: type[Any], plan: Any, count: int, on: Cluster, folder: Path) -> Iterator[Helping]:
    """Give what lets objects `kind(plan)` carry jobs out: one in this process, or `count` Ray actors, which write to a folder.

    It takes the jobs and what says whether to stop, and gives what each job's `work` returned, in any order; raises what a job
    raised, once the others have ended theirs.
    """
    if not count and on.address is None:
        yield partial(_help, kind(plan))
        return
    with connected(on, max(1, count), folder):
        # A second thread, because `stop` is told while `work` goes on.
        actor = ray.remote(kind).options(num_cpus=1, max_concurrency=2, scheduling_strategy="SPREAD")
        idle = [actor.remote(plan) for _ in range(max(1, count))]
        try:
            yield partial(_help_on_ray, partial(actor.remote, plan), idle)
        finally:
            for helper in idle:
                ray.kill(helper)


def _help(helper: Any, jobs: Sequence[Any], interrupted: Callable[[], bool]) -> Iterator[Any]:
    for job in jobs:
        if interrupted():
            return
        yield helper.work(job, interrupted)


def _help_on_ray(
    start: Callable[[], Any], idle: list[Any], jobs: Sequence[Any], interrupted: Callable[[], bool]
) -> Iterator[Any]:
    waiting, lives = list(jobs), dict.fromkeys(jobs, _CHANCES)
    busy: dict[Any, tuple[Any, Any]] = {}
    told = interrupted()
    failure: Exception | None = None
    while (waiting and not told) or busy:
        while waiting and idle and not told:
            helper, job = idle.pop(), waiting.pop(0)
            busy[helper.work.remote(job)] = helper, job
        done, _ = ray.wait(list(busy), num_returns=1, timeout=0.3)
        for call in done:
            helper, job = busy.pop(call)
            try:
                yield _got(call)
            except ray.exceptions.RayActorError:
                helper = start()  # its parts are on disk; the job is done again
                lives[job] -= 1
                if lives[job]:
                    waiting.insert(0, job)
                else:
                    failure = failure or ClusterError(f"{job}: its process died {_CHANCES} times; leave that agent out")
            except Exception as error:
                failure = failure or error
            idle.append(helper)
        if (interrupted() or failure) and not told:
            told = True
            for helper, _ in busy.values():
                helper.stop.remote()
    if failure is not None:
        raise failure


def _tell(look: Look, number: int, ended: Sequence[RunSummary], progress: RunProgress) -> None:
    look(number, [progress], ended)


class _Watched(Coordinator):
    """A coordinator in this process, which is asked and told by calls from within."""

    def __init__(self, interrupted: Callable[[], bool], tell: Callable[[RunProgress], None]) -> None:
        super().__init__()
        self._interrupted, self._tell = interrupted, tell

    def _note_progress(self, *details: Any) -> None:
        super()._note_progress(*details)
        self._tell(self._progress)
        self._stopped = self._interrupted()


class Actors:
    """Coordinators that are Ray actors; each takes the next job when it has ended one."""

    def __init__(self, count: int, cpus: float) -> None:
        self._cpus = cpus
        self._coordinators = start_coordinators(count, cpus)

    def carry_out(self, jobs: Sequence[Job], interrupted: Callable[[], bool], look: Look, ended: list[RunSummary]) -> None:
        """Carry all jobs out."""
        waiting, lives = list(jobs), dict.fromkeys(range(len(jobs)), _LIVES)
        numbers = {id(job): number for number, job in enumerate(jobs)}
        idle = list(self._coordinators)
        busy: dict[Any, tuple[Any, Job]] = {}
        told = False
        failure: Exception | None = None
        while (waiting and not told) or busy:
            while waiting and idle and not told:
                coordinator, job = idle.pop(0), waiting.pop(0)
                method = coordinator.learn if isinstance(job, WarmupRun) else coordinator.run
                busy[method.remote(job)] = coordinator, job
            done, _ = ray.wait(list(busy), num_returns=1, timeout=0.3)
            for call in done:
                coordinator, job = busy.pop(call)
                try:
                    result = _got(call)
                    idle.append(coordinator)
                except ray.exceptions.RayActorError as error:  # another one goes on from the job's last snapshot
                    ray.kill(coordinator)  # for the case that it can only not be reached
                    self._coordinators.remove(coordinator)
                    self._coordinators += (new := start_coordinators(1, self._cpus))
                    idle += new
                    lives[numbers[id(job)]] -= 1
                    if lives[numbers[id(job)]]:
                        waiting.insert(0, job)
                    else:
                        failure = failure or error
                    continue
                except Exception as error:  # the others end what they are at and write it before this is told
                    idle.append(coordinator)
                    failure = failure or error
                    continue
                if result is not None:
                    ended.append(result)
            if (interrupted() or failure) and not told:
                told = True
                for coordinator in self._coordinators:
                    coordinator.stop.remote()
            if look(len(jobs) - len(waiting) - len(busy), self._progress([at for at, _ in busy.values()]), ended):
                for coordinator, _ in busy.values():
                    coordinator.stop_early.remote()
        if failure is not None:
            raise failure

    def _progress(self, coordinators: Sequence[Any]) -> list[RunProgress]:
        calls = [coordinator.progress.remote() for coordinator in coordinators]
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=0.5) if calls else ([], [])
        progress: list[RunProgress] = []
        for call in done:
            try:
                progress.append(ray.get(call))
            except ray.exceptions.RayActorError:
                pass  # its job is given to another one
        return progress


def _do(coordinator: Coordinator, job: Job) -> RunSummary | None:
    if isinstance(job, Run):
        return coordinator.run(job)
    coordinator.learn(job)
    return None


def _got(call: Any) -> RunSummary | None:
    try:
        result: RunSummary | None = ray.get(call)
        return result
    except ray.exceptions.RayTaskError as error:
        cause: BaseException = error
        while isinstance(cause, ray.exceptions.RayTaskError):
            cause = cause.cause
        raise cause from None
