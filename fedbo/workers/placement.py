"""The placement of evaluations on workers: which evaluation starts next, and on which worker, without a scan of all workers.

One heap holds the workers of equal class and equal free resources. Another holds the agents whose evaluations need the
same resources. A change therefore costs the logarithm of their numbers.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from fedbo.coordinator.environment.faults import Preemption
from fedbo.workers.models import ClusterModel, Resources, WorkerClass
from fedbo.workers.pending import Key, PendingEvaluation

Job = tuple[int, int, int]  # agent, step, point
Place = tuple[int, Resources]  # a class of workers, and what is free of each of them


@dataclass(slots=True)
class ClusterState:
    """The workers of a cluster and the queue for them.

    - `places`: the class and the free resources of each worker; None while it is away.
    - `away`: the number of reasons that keep a worker away.
    - `free`: a heap of workers for each place; entries of workers that have moved since are skipped.
    - `jobs`: the jobs on each worker that has any.
    - `queues`: the waiting evaluations of each agent, with their numbers in the queue, first come first.
    - `heads`: a heap of agents for each need, by the key of the rule; entries of an older version are skipped.
    - `versions`: the number of changes of each agent's key.
    - `used`: the number of running jobs of each agent.
    - `arrived`: the number of evaluations that have entered the queue.
    - `is_due`: whether the queue is served at the end of this instant.
    - `lasted`: the durations of all evaluations on their workers so far, ascending, and `watched`: a heap of those that run, by
      their start, where slow ones are copied; `checked`: when the queue is served next for their sake.
    - `load`: the parts of the background load that wait or run.
    - By the number of a class that follows the queue: its workers that are `off`, lowest first, since when others are `idle`,
      and when it is `looked` at next; how many are `starting`.
    """

    places: list[Place | None]
    away: list[int]
    free: dict[Place, list[int]] = field(default_factory=dict)
    jobs: dict[int, list[Job]] = field(default_factory=dict)
    queues: dict[int, list[tuple[int, Key]]] = field(default_factory=dict)
    heads: dict[Resources, list[tuple[float, int, int, int]]] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    arrived: int = 0
    is_due: bool = False
    lasted: list[float] = field(default_factory=list)
    watched: list[tuple[float, Job, int]] = field(default_factory=list)
    checked: float = 0.0
    load: dict[int, PendingEvaluation] = field(default_factory=dict)
    off: dict[int, list[int]] = field(default_factory=dict)
    idle: dict[int, dict[int, float]] = field(default_factory=dict)
    looked: dict[int, float] = field(default_factory=dict)
    starting: int = 0

    @property
    def is_waited_for(self) -> bool:
        """Check whether any evaluation waits for a worker."""
        return bool(self.queues)


class Placement(NamedTuple):
    """An evaluation of an agent that begins on a worker, and its number in the queue."""

    agent: int
    key: Key
    worker: int
    number: int


class WorkerPool:
    """The workers of a cluster, and the queue for them under the rule of its model."""

    def __init__(self, model: ClusterModel) -> None:
        self.model = model
        self._class_of = [number for number, one in enumerate(model.classes) for _ in range(one.count)]
        self._fair, self._ranked = model.rule == "fair_share", model.rule == "priority"
        needs = {*model.needs, *(Resources(size) for size in {part.cpus for part in model.load})}
        self._shares = {need: model.share(need) for need in needs}

    def fresh(self) -> ClusterState:
        """Return the initial state: no evaluation waits, and workers that join later are away."""
        state = ClusterState([None] * len(self._class_of), [0] * len(self._class_of))
        for worker, number in enumerate(self._class_of):
            one = self.model.classes[number]
            off = one.least is not None and worker - self._class_of.index(number) >= one.least
            if one.least is not None:
                state.off.setdefault(number, []).extend([worker] * off)
            state.away[worker] = (one.joins > 0) + off
            if not state.away[worker]:
                self._move(state, worker, (number, one.resources))
        return state

    def class_of(self, worker: int) -> WorkerClass:
        """Return the class of a worker."""
        return self.model.classes[self._class_of[worker]]

    def workers_of(self, name: str) -> list[int]:
        """List the workers of a class by its name, or of all."""
        return [worker for worker, number in enumerate(self._class_of) if name in ("all", self.model.classes[number].name)]

    def submit(self, state: ClusterState, agent: int, key: Key, number: int | None = None) -> None:
        """Put an evaluation into the queue, at its old place if it had one."""
        if number is None:
            number, state.arrived = state.arrived, state.arrived + 1
        insort(state.queues.setdefault(agent, []), (number, key))
        self._rekey(state, agent)

    def release(self, state: ClusterState, worker: int, job: Job) -> None:
        """Remove a job from its worker."""
        self._take_off(state, worker, job)
        place = state.places[worker]
        if place is not None:  # else nothing new begins on it
            self._move(state, worker, (place[0], place[1].more(self.model.need(job[0]))))

    def withdraw(self, state: ClusterState, agent: int, key: Key) -> None:
        """Remove an evaluation from the queue."""
        left = [entry for entry in state.queues.get(agent, ()) if entry[1] != key]
        self._requeue(state, agent, left)

    def close(self, state: ClusterState, worker: int) -> None:
        """Mark a worker as away, so that nothing new begins on it."""
        state.away[worker] += 1
        state.places[worker] = None

    def stop(self, state: ClusterState, worker: int) -> list[Job]:
        """Return the jobs of a worker that is away, which stop; none if they did so before."""
        jobs = list(state.jobs.get(worker, ()))
        for job in jobs:
            self._take_off(state, worker, job)
        return jobs

    def kept(self, one: PendingEvaluation, fault: Preemption | None, now: float) -> tuple[float | None, float]:
        """Return the work that a stopped evaluation keeps, None if it could save nothing, and the time of what is lost."""
        worker, model = self.class_of(one.worker), self.model
        time = max(0.0, now - one.started - worker.startup) * worker.speed
        done, saved, when = model.progress(time)
        if fault is not None and fault.checkpoint is not None:
            return done, 0.0
        if fault is not None and fault.notice and model.cost <= fault.notice * worker.speed:
            return max(saved, model.progress(max(0.0, time - model.cost))[0]), 0.0
        if model.every == math.inf:
            return None, now - one.since
        return saved, (time - when) / worker.speed if saved else now - one.since

    def join(self, state: ClusterState, worker: int) -> None:
        """Return a worker to service, unless another reason keeps it away."""
        state.away[worker] -= 1
        if not state.away[worker]:
            number = self._class_of[worker]
            self._move(state, worker, (number, self.model.classes[number].resources))

    def _move(self, state: ClusterState, worker: int, place: Place) -> None:
        state.places[worker] = place
        heappush(state.free.setdefault(place, []), worker)

    def _take_off(self, state: ClusterState, worker: int, job: Job) -> None:
        jobs = state.jobs[worker]
        jobs.remove(job)
        if not jobs:
            del state.jobs[worker]
        state.used[job[0]] -= 1
        if self._fair and job[0] in state.queues:
            self._rekey(state, job[0])

    def _requeue(self, state: ClusterState, agent: int, left: list[tuple[int, Key]]) -> None:
        """Replace an agent's queue by `left`."""
        if left:
            state.queues[agent] = left
            self._rekey(state, agent)
        else:
            state.queues.pop(agent, None)
            # A new version invalidates the entry that the agent still has in its heap.
            state.versions[agent] = state.versions.get(agent, 0) + 1

    def _rekey(self, state: ClusterState, agent: int) -> None:
        """Recompute an agent's place in the queue from its waiting and running evaluations."""
        version = state.versions[agent] = state.versions.get(agent, 0) + 1
        need, first = self.model.need(agent), state.queues[agent][0][0]
        rank = 0.0
        if self._fair:
            rank = state.used.get(agent, 0) * self._shares[need]
        elif self._ranked:
            rank = -self.model.priority(agent)
        heappush(state.heads.setdefault(need, []), (rank, first, agent, version))

    def serve(self, state: ClusterState) -> list[Placement]:
        """Place the evaluations that fit, each time the first by the rule; return the placements in that order."""
        begun: list[Placement] = []
        while True:
            heads = [(head, need) for need in list(state.heads) if (head := self._head(state, need)) is not None]
            served = None
            for (_, _, agent, _), need in sorted(heads):
                worker = self._worker_for(state, need)
                if worker is not None:
                    served = agent, need, worker
                    break
            if served is None:
                return begun
            begun.append(self._place(state, *served))

    def _head(self, state: ClusterState, need: Resources) -> tuple[float, int, int, int] | None:
        """Return the next agent among those with a need."""
        heap = state.heads.get(need)
        # Entries are never changed in place: an outdated one is dropped when it comes to the top.
        while heap and state.versions[heap[0][2]] != heap[0][3]:
            heappop(heap)
        if not heap:
            state.heads.pop(need, None)
            return None
        return heap[0]

    def _worker_for(self, state: ClusterState, need: Resources) -> int | None:
        """Return the fastest free worker for a need, the first of equals."""
        best: tuple[float, int] | None = None
        for place in list(state.free):
            heap = state.free[place]
            # Entries are never changed in place: a worker that has moved since is dropped when it comes to the top.
            while heap and state.places[heap[0]] != place:
                heappop(heap)
            if not heap:
                del state.free[place]
            elif place[1].holds(need):
                found = -self.model.classes[place[0]].speed, heap[0]
                best = found if best is None or found < best else best
        return None if best is None else best[1]

    def _place(self, state: ClusterState, agent: int, need: Resources, worker: int) -> Placement:
        """Begin the first evaluation of an agent on a worker."""
        place = state.places[worker]
        assert place is not None
        waiting = state.queues[agent]
        number, key = waiting.pop(0)
        state.jobs.setdefault(worker, []).append((agent, *key))
        state.used[agent] = state.used.get(agent, 0) + 1
        self._move(state, worker, (place[0], place[1].less(need)))
        self._requeue(state, agent, waiting)
        return Placement(agent, key, worker, number)
