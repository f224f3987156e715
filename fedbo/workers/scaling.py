"""Classes of workers whose number follows the queue: between `least` and all of a class, with a delay."""

from __future__ import annotations

from heapq import heappop, heappush

from fedbo.coordinator.kernel.events import After, Effect, PlacementDue, WorkerReturned
from fedbo.coordinator.logged.agents import ClassLeft
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.workers.placement import ClusterState, WorkerPool

STARTED = -1  # in place of the fault from which a worker returns


def follow(pool: WorkerPool, cluster: ClusterState, now: float, log: list[EventLine]) -> list[Effect]:
    """Start a worker for each waiting evaluation that fits on one, and stop those that have been idle for long."""
    effects: list[Effect] = []
    for number, off in cluster.off.items():
        one, before = pool.model.classes[number], cluster.idle.get(number, {})
        free = [each for each in pool.workers_of(one.name) if cluster.places[each] is not None and each not in cluster.jobs]
        idle = cluster.idle[number] = {worker: before.get(worker, now) for worker in free}
        if not one.joins <= now < one.leaves:
            continue
        fit = sum(len(own) for agent, own in cluster.queues.items() if one.resources.holds(pool.model.need(agent)))
        for _ in range(min(fit - cluster.starting, len(off)) if now + one.delay < one.leaves else 0):
            cluster.starting += 1
            effects.append(After(one.delay, WorkerReturned(STARTED, heappop(off))))
        more = one.count - len(off) - (one.least or 0)
        for since, worker in sorted((since, worker) for worker, since in idle.items())[:more]:
            if since + one.idle > now:
                if cluster.looked.get(number) != since + one.idle:
                    cluster.looked[number] = since + one.idle
                    effects.append(After(0.0, PlacementDue(), since + one.idle))
                break
            pool.close(cluster, worker)
            del idle[worker]
            heappush(off, worker)
            log.append(ClassLeft(now, one.name, worker=worker))
    return effects
