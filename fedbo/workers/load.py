"""The background load of a cluster: parts of jobs, which wait in the queue and run on workers as evaluations do.

A part belongs to no agent. It is the only one of an owner of its own, whose number is below `LOAD`.
"""

from __future__ import annotations

from fedbo.coordinator.environment.faults import Preemption
from fedbo.coordinator.kernel.events import After, Effect, JobDue, PlacementDue
from fedbo.coordinator.kernel.state import CoreState
from fedbo.coordinator.logged.agents import JobLeft, JobPlaced
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.workers.models import LOAD
from fedbo.workers.pending import EvaluationRequest, PendingEvaluation
from fedbo.workers.placement import ClusterState, WorkerPool


def serve_later(state: CoreState) -> list[Effect]:
    """Schedule the service of the queue after all other events of this instant.

    All arrivals, ends, joins and departures at one instant are one change of the cluster. Nothing is placed in the middle of
    it, on a worker that is about to leave or before an evaluation with a higher priority that is about to arrive.
    """
    if state.cluster.is_due or not (state.cluster.is_waited_for or state.cluster.watched or state.cluster.off):
        return []
    state.cluster.is_due = True
    return [After(0.0, PlacementDue())]


class BackgroundLoad:
    """The parts of jobs on the workers of a cluster."""

    def __init__(self, pool: WorkerPool, log: list[EventLine]) -> None:
        self._pool, self._log, self._parts = pool, log, pool.model.load

    def first_effects(self) -> list[Effect]:
        """Schedule the first service of the queue, if parts wait from the beginning, and the first part that comes later."""
        early = sum(part.submit <= 0.0 for part in self._parts)
        return [After(0.0, PlacementDue())] * (early > 0) + self._after(early)

    def _after(self, part: int) -> list[Effect]:
        return [After(0.0, JobDue(part), self._parts[part].submit)] if part < len(self._parts) else []

    def enter(self, cluster: ClusterState, part: int, now: float) -> int:
        """Put all parts into the queue that are due, from a given one on; return the next one."""
        while part < len(self._parts) and self._parts[part].submit <= now:
            length, number = self._parts[part].length, cluster.arrived
            cluster.load[part] = PendingEvaluation(EvaluationRequest(0, 0), length, work=length, queued=now, number=number)
            self._pool.submit(cluster, LOAD - part, (0, 0))
            part += 1
        return part

    def due(self, state: CoreState, event: JobDue, now: float) -> list[Effect]:
        """Put parts into the queue, or end one."""
        state.progress.last_event = state.progress.events  # a log ends, so its jobs are no sign of a run that never does
        cluster, part = state.cluster, event.part
        if not event.lease:
            return self._after(self.enter(cluster, part, now)) + serve_later(state)
        one = cluster.load.get(part)
        if one is None or one.lease != event.lease:
            return []
        del cluster.load[part]
        self._log.append(JobLeft(now, self._parts[part].row, self._parts[part].cpus, one.worker, None))
        self._pool.release(cluster, one.worker, (LOAD - part, 0, 0))
        return serve_later(state)

    def begin(self, state: CoreState, owner: int, worker: int, now: float) -> list[Effect]:
        """Begin a part on its worker."""
        part, kind = LOAD - owner, self._pool.class_of(worker)
        one = state.cluster.load[part]
        one.worker, one.started, one.since, one.lease = worker, now, now, one.lease + 1
        self._log.append(JobPlaced(now, self._parts[part].row, self._parts[part].cpus, worker, one.queued))
        takes = (one.work + self._pool.model.saving(one.work)) / kind.speed
        return [After(kind.startup + takes, JobDue(part, one.lease))]

    def preempted(self, state: CoreState, owner: int, fault: Preemption | None, now: float) -> None:
        """Queue a part that has lost its worker again, at its old place; without a save it begins anew, with its length."""
        one, part = state.cluster.load[LOAD - owner], self._parts[LOAD - owner]
        kept, lost = self._pool.kept(one, fault, now)
        self._log.append(JobLeft(now, part.row, part.cpus, one.worker, lost))
        again = fault.checkpoint or 0.0 if fault is not None else 0.0
        one.work = one.length if kept is None else max(0.0, one.work - kept) + again
        one.worker, one.lease, one.queued = -1, one.lease + 1, now
        self._pool.submit(state.cluster, owner, (0, 0), one.number)
