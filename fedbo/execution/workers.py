"""Workers that run the jobs of a study: this process alone, or Ray actors."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fedbo.actors.late_ray import COORDINATOR_LOSSES, WHY_ONE_DIES, actor_losses, ray
from fedbo.actors.nodes import NodeLeavesError
from fedbo.coordinator.runtime.actor import Coordinator, Run, RunProgress, RunSummary, WarmupRun, start_coordinators
from fedbo.execution.cluster import Cluster, ClusterError, connected
from fedbo.study.files import distributions
from fedbo.study.study import Study

Job = WarmupRun | Run
Interrupted = Callable[[], bool]
OnProgress = Callable[[int, Sequence[RunProgress], Sequence[RunSummary]], bool]

_LOST_AFTER = 10.0  # seconds: a result that is on its way takes far less


class JobRunner(Protocol):
    """Runs jobs; each job may use the files of earlier lists of jobs."""

    def carry_out(
        self, jobs: Sequence[Job], interrupted: Interrupted, on_progress: OnProgress, ended: list[RunSummary]
    ) -> None:
        """Run all jobs, in any order, and append each run's summary to `ended`; raise the errors of jobs.

        `on_progress` is called repeatedly with the number of jobs done, the progress of running ones, and `ended`. It returns
        whether studies in real time may end early.
        """


@contextmanager
def job_runner(study: Study, folder: Path, note: Callable[[str], None] = lambda words: None) -> Iterator[JobRunner]:
    """Start the workers of a study, which write to a folder; a Ray that this starts is announced, and stopped in the end."""
    hosting = study.hosting
    inline = hosting.kind == "inline"
    if inline and not hosting.workers and hosting.address is None:
        yield InProcess()
        return
    count = (hosting.workers or 1) if inline else 1
    import fedbo.execution.compiling  # noqa: F401  # else every process would compile it, all at once

    cluster = Cluster(hosting.address, hosting.package, distributions(study), hosting.labels)
    with connected(cluster, count if inline else 1, folder, note) as check:
        yield CoordinatorActors(count, 1.0 if inline else 0.0, check, hosting.labels if inline else None)


class _CallLost(Exception):
    """A call, or its result, was lost on the way."""


class ActorPool:
    """Ray actors of a `PoolWorker` that run one job after another.

    A job whose actor has died is given to another one, and fails after so many `deaths`. So is one whose actor says for
    `_LOST_AFTER` seconds that it has no job: Ray can lose a call, or its result, without an error. `check` is called
    repeatedly, and its error ends the pool at once.
    """

    def __init__(self, start: Callable[[], Any], count: int, deaths: int, check: Callable[[], None] = lambda: None) -> None:
        self._start, self._deaths, self._check = start, deaths, check
        self._actors = [start() for _ in range(count)]
        self._asked, self._idle_since = dict[Any, Any](), dict[Any, float]()

    def results(
        self,
        call: Callable[[Any, Any], Any],
        jobs: Sequence[Any],
        interrupted: Interrupted,
        on_progress: Callable[[int, Sequence[Any]], None] = lambda done, busy: None,
    ) -> Iterator[Any]:
        """Yield what each job returned, in any order; raise the error of a job once the running jobs have ended.

        `call` starts a job on an actor, which can receive `stop` on another thread. `on_progress` is called repeatedly with the
        number of jobs done and the busy actors.
        """
        waiting, left = deque(range(len(jobs))), [self._deaths] * len(jobs)
        idle, busy = list(self._actors), dict[Any, tuple[Any, int]]()
        stopping = interrupted()
        failure: Exception | None = None
        losses: tuple[type[Exception], ...] = (*actor_losses(), _CallLost)
        while (waiting and not stopping) or busy:
            while waiting and idle and not stopping:
                actor, number = idle.pop(0), waiting.popleft()
                busy[call(actor, jobs[number])] = actor, number
            self._check()
            done, _ = ray.wait(list(busy), num_returns=1, timeout=0.3)
            for future in [*done, *(lost := self._lost_calls(busy, done))]:
                actor, number = busy.pop(future)
                self._asked.pop(actor, None)  # what it has said of the job that it had
                self._idle_since.pop(actor, None)
                try:
                    if future in lost:
                        raise _CallLost
                    yield _result(future)
                except NodeLeavesError:
                    actor = self._replace(actor)
                    waiting.appendleft(number)
                except losses:  # another one resumes from its parts and snapshots on disk
                    actor, left[number] = self._replace(actor), left[number] - 1
                    if left[number]:
                        waiting.appendleft(number)
                    else:
                        words = f"its process died {self._deaths} times; {WHY_ONE_DIES}; see also Ray's logs on its host"
                        failure = failure or ClusterError(f"{getattr(jobs[number], 'key', jobs[number])}: {words}")
                except Exception as error:
                    failure = failure or error
                idle.append(actor)
            stopping = stopping or interrupted() or failure is not None
            for actor, _ in busy.values() if stopping else ():  # again and again, as a call may be lost
                actor.stop.remote()
            on_progress(len(jobs) - len(waiting) - len(busy), [actor for actor, _ in busy.values()])
        if failure is not None:
            raise failure

    def kill(self) -> None:
        """Kill all actors."""
        for actor in self._actors:
            ray.kill(actor)

    def _lost_calls(self, busy: Mapping[Any, tuple[Any, int]], done: Sequence[Any]) -> list[Any]:
        """Return the calls to actors that have said long enough that they have no job."""
        lost, now = list[Any](), time.monotonic()
        for call, (actor, _) in busy.items():
            if call in done:
                continue
            if actor not in self._asked:
                self._asked[actor] = actor.at_work.remote()
            elif ray.wait([self._asked[actor]], timeout=0)[0]:
                if _at_work(self._asked.pop(actor)):
                    self._idle_since.pop(actor, None)
                elif now - self._idle_since.setdefault(actor, now) > _LOST_AFTER:
                    lost.append(call)
        return lost

    def _replace(self, actor: Any) -> Any:
        ray.kill(actor)  # it may be alive and only out of reach
        self._actors[self._actors.index(actor)] = new = self._start()
        return new


class LocalCoordinator(Coordinator):
    """A coordinator in this process, which checks for interrupts and reports its progress by direct calls."""

    def __init__(self, interrupted: Interrupted, report: Callable[[RunProgress], None]) -> None:
        super().__init__()
        self._interrupted, self._report = interrupted, report

    def _note_progress(self, *details: Any) -> None:
        super()._note_progress(*details)
        self._report(self._progress)
        self._stopped = self._interrupted()


MakeCoordinator = Callable[[Interrupted, Callable[[RunProgress], None]], Coordinator]


class InProcess:
    """This process, which runs one job after the other, each with a coordinator of its own."""

    def __init__(self, coordinator: MakeCoordinator = LocalCoordinator) -> None:
        self._coordinator = coordinator

    def carry_out(
        self, jobs: Sequence[Job], interrupted: Interrupted, on_progress: OnProgress, ended: list[RunSummary]
    ) -> None:
        """Run all jobs."""
        for number, job in enumerate(jobs):
            if interrupted():
                break

            def report(progress: RunProgress, done: int = number) -> None:
                on_progress(done, [progress], ended)

            coordinator = self._coordinator(interrupted, report)
            if isinstance(job, WarmupRun):
                coordinator.learn(job)
            elif (result := coordinator.run(job)) is not None:
                ended.append(result)
            on_progress(number + 1, [], ended)


class CoordinatorActors:
    """Coordinators that are Ray actors; each takes the next job when it finishes one."""

    def __init__(self, count: int, cpus: float, check: Callable[[], None], labels: Mapping[str, str] | None) -> None:
        self._pool = ActorPool(lambda: start_coordinators(1, cpus, labels)[0], count, COORDINATOR_LOSSES, check)

    def carry_out(
        self, jobs: Sequence[Job], interrupted: Interrupted, on_progress: OnProgress, ended: list[RunSummary]
    ) -> None:
        """Run all jobs."""

        def call(coordinator: Any, job: Job) -> Any:
            return (coordinator.learn if isinstance(job, WarmupRun) else coordinator.run).remote(job)

        def progress(done: int, busy: Sequence[Any]) -> None:
            if on_progress(done, _progress_of(busy), ended):
                for coordinator in busy:
                    coordinator.stop_early.remote()

        for result in self._pool.results(call, jobs, interrupted, progress):
            if result is not None:
                ended.append(result)


def _progress_of(coordinators: Sequence[Any]) -> list[RunProgress]:
    calls = [coordinator.progress.remote() for coordinator in coordinators]
    done, _ = ray.wait(calls, num_returns=len(calls), timeout=0.5) if calls else ([], [])
    found: list[RunProgress] = []
    for call in done:
        try:
            found.append(ray.get(call))
        except actor_losses():
            pass  # its job is given to another one
    return found


def _at_work(answer: Any) -> bool:
    try:
        return bool(ray.get(answer))
    except actor_losses():
        return True  # the call for its job says so too


def _result(future: Any) -> Any:
    try:
        return ray.get(future)
    except ray.exceptions.RayTaskError as error:
        cause: BaseException = error
        while isinstance(cause, ray.exceptions.RayTaskError):
            cause = cause.cause
        raise cause from None
