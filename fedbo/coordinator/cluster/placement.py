"""The placement of evaluations on workers: who is served next, and by which worker, without a look at every worker.

Workers that are alike, in their class and in what is free of them, are in one heap, and agents whose evaluations need the same
are in another: a change costs the logarithm of their numbers.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from fedbo.coordinator.environment.worker_models import ClusterModel, Resources, WorkerClass

Key = tuple[int, int]
Job = tuple[int, int, int]  # agent, step, point
Place = tuple[int, Resources]  # a class of workers, and what is free of each of them


@dataclass(slots=True)
class ClusterState:
    """The workers of a cluster and the queue for them.

    - `places` has for each worker its class and what is free of it; None while it is away.
    - `away` counts what keeps a worker away.
    - `free` has a heap of workers for each place; one that is elsewhere by now is passed over.
    - `jobs` has what runs on each worker that has anything to do.
    - `queues` has what each agent waits for, with its number in the queue, first come first.
    - `heads` has for each need a heap of agents by the key of the rule; one of an older version is passed over.
    - `versions` counts the changes of each agent's key.
    - `used` counts the jobs of each agent that run.
    - `arrived` counts what has come into the queue.
    - `is_due` says that the queue is served at the end of this instant.
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

    @property
    def is_waited_for(self) -> bool:
        """Say whether anything waits for a worker."""
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
        self._shares = {need: model.share(need) for need in set(model.needs)}

    def fresh(self) -> ClusterState:
        """Give the state in which all are away that join later, and nobody waits."""
        state = ClusterState([None] * len(self._class_of), [0] * len(self._class_of))
        for worker, number in enumerate(self._class_of):
            one = self.model.classes[number]
            if one.joins > 0:
                state.away[worker] = 1
            else:
                self._move(state, worker, (number, one.resources))
        return state

    def class_of(self, worker: int) -> WorkerClass:
        """Give the class of a worker."""
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
        """Take a job from its worker."""
        self._take_off(state, worker, job)
        place = state.places[worker]
        assert place is not None
        self._move(state, worker, (place[0], place[1].more(self.model.need(job[0]))))

    def withdraw(self, state: ClusterState, agent: int, key: Key) -> None:
        """Take an evaluation out of the queue."""
        left = [entry for entry in state.queues.get(agent, ()) if entry[1] != key]
        self._requeue(state, agent, left)

    def leave(self, state: ClusterState, worker: int) -> list[Job]:
        """Let a worker be away; give what ran on it, which runs no more."""
        state.away[worker] += 1
        if state.away[worker] > 1:
            return []
        jobs = list(state.jobs.get(worker, ()))
        for job in jobs:
            self._take_off(state, worker, job)
        state.places[worker] = None
        return jobs

    def join(self, state: ClusterState, worker: int) -> None:
        """Return a worker to service, unless something else keeps it away."""
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
        """Leave so much of an agent's queue."""
        if left:
            state.queues[agent] = left
            self._rekey(state, agent)
        else:
            state.queues.pop(agent, None)
            state.versions[agent] = state.versions.get(agent, 0) + 1

    def _rekey(self, state: ClusterState, agent: int) -> None:
        """Put an agent at the place that the rule gives it by what it waits for and uses now."""
        version = state.versions[agent] = state.versions.get(agent, 0) + 1
        need, first = self.model.need(agent), state.queues[agent][0][0]
        rank = 0.0
        if self._fair:
            rank = state.used.get(agent, 0) * self._shares[need]
        elif self._ranked:
            rank = -self.model.priority(agent)
        heappush(state.heads.setdefault(need, []), (rank, first, agent, version))

    def serve(self, state: ClusterState) -> list[Placement]:
        """Place what fits, each time the first by the rule; return the placements in that order."""
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
        """Give the agent that is next among those with a need."""
        heap = state.heads.get(need)
        while heap and state.versions[heap[0][2]] != heap[0][3]:
            heappop(heap)
        if not heap:
            state.heads.pop(need, None)
            return None
        return heap[0]

    def _worker_for(self, state: ClusterState, need: Resources) -> int | None:
        """Give the fastest free worker for a need, the first of equals."""
        best: tuple[float, int] | None = None
        for place in list(state.free):
            heap = state.free[place]
            while heap and state.places[heap[0]] != place:
                heappop(heap)
            if not heap:
                del state.free[place]
            elif place[1].holds(need):
                found = -self.model.classes[place[0]].speed, heap[0]
                best = found if best is None or found < best else best
        return None if best is None else best[1]

    def _place(self, state: ClusterState, agent: int, need: Resources, worker: int) -> Placement:
        """Let the first evaluation of an agent begin on a worker."""
        place = state.places[worker]
        assert place is not None
        waiting = state.queues[agent]
        number, key = waiting.pop(0)
        state.jobs.setdefault(worker, []).append((agent, *key))
        state.used[agent] = state.used.get(agent, 0) + 1
        self._move(state, worker, (place[0], place[1].less(need)))
        self._requeue(state, agent, waiting)
        return Placement(agent, key, worker, number)
