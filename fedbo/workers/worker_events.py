"""Events of the workers of a simulated cluster: they join, leave, and are preempted for a while or for good."""

from __future__ import annotations

import math

from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.environment.availability import Ascending
from fedbo.coordinator.environment.faults import Plan, Preemption, fault_times
from fedbo.coordinator.kernel.events import After, Effect, WorkerPreempted, WorkerReturned, WorkersChanged
from fedbo.coordinator.kernel.state import CoreState
from fedbo.coordinator.logged.agents import ClassJoined, ClassLeft, WorkerRestored, WorkerTaken
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.workers.running import RunningEvaluations


class WorkerEvents:
    """The events of workers: those of their classes, and the preemptions of the fault plan."""

    def __init__(self, evaluations: RunningEvaluations, plan: Plan, streams: Streams, log: list[EventLine]) -> None:
        assert evaluations.pool is not None
        self._evaluations, self._pool, self._log = evaluations, evaluations.pool, log
        self._streams = streams.of(COORDINATOR)
        self._faults = {place: fault for place, fault in enumerate(plan) if isinstance(fault, Preemption)}
        self._times: dict[tuple[int, int], Ascending] = {}

    def start(self) -> list[Effect]:
        """Schedule when classes join and leave, and the first preemption of each worker."""
        effects: list[Effect] = []
        for number, one in enumerate(self._pool.model.classes):
            effects += [After(one.joins, WorkersChanged(number, True))] if one.joins > 0 else []
            effects += [After(one.leaves, WorkersChanged(number, False))] if one.leaves < math.inf else []
        for place, fault in self._faults.items():
            for worker in self._pool.workers_of(fault.workers):
                effects += self._schedule(place, worker, 0, 0.0)
        return effects

    def _schedule(self, place: int, worker: int, number: int, now: float) -> list[Effect]:
        event = WorkerPreempted(place, worker, number)
        time = self.time_of(event)
        return [] if time == math.inf else [After(time - now, event)]

    def time_of(self, event: WorkerPreempted) -> float:
        """Return when a worker is taken away for the event's time; infinity if never."""
        key = place, worker = event.fault, event.worker
        if key not in self._times:
            streams, fault = self._streams.at(worker), self._faults[place]
            self._times[key] = Ascending(lambda: streams.times(f"preemption {place}", lambda rng: fault_times(fault, rng)))
        return self._times[key].at(event.number)

    def changed(self, state: CoreState, event: WorkersChanged, now: float) -> list[Effect]:
        """Process a class of workers that joins, or leaves for good."""
        name = self._pool.model.classes[event.group].name
        workers = self._pool.workers_of(name)
        self._log.append(ClassJoined(now, name) if event.joins else ClassLeft(now, name))
        effects: list[Effect] = []
        for worker in workers:
            effects += self._evaluations.joined(state, worker) if event.joins else self._leave(state, worker, None, now)
        return effects

    def preempted(self, state: CoreState, event: WorkerPreempted, now: float) -> list[Effect]:
        """Remove a worker, for a while or for good, and schedule its next preemption."""
        place, worker, number = event
        fault = self._faults[place]
        self._log.append(WorkerTaken(now, worker, self._pool.class_of(worker).name))
        effects = self._leave(state, worker, fault.checkpoint, now)
        if fault.duration is None:
            return effects
        effects.append(After(fault.duration, WorkerReturned(place, worker)))
        return effects + self._schedule(place, worker, number + 1, now)

    def returned(self, state: CoreState, event: WorkerReturned, now: float) -> list[Effect]:
        """Return a preempted worker to service."""
        self._log.append(WorkerRestored(now, event.worker, self._pool.class_of(event.worker).name))
        return self._evaluations.joined(state, event.worker)

    def _leave(self, state: CoreState, worker: int, checkpoint: float | None, now: float) -> list[Effect]:
        return self._evaluations.preempted(state, self._pool.leave(state.cluster, worker), checkpoint, now)
