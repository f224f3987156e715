"""Copies of slow evaluations on a cluster: when one is made, and which of the two counts (Dean and Ghemawat 2004, section 3.6).

A copy is an evaluation of its own in the queue and on a worker, with a length of its own. Its point is that of the original,
counted down from `COPY`, so that the two have different keys.
"""

from __future__ import annotations

import math
from bisect import insort
from heapq import heappop, heappush

from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.settings.records import changed
from fedbo.workers.models import ClusterModel
from fedbo.workers.pending import DECISION, AgentEvaluations, Key, PendingEvaluation
from fedbo.workers.placement import ClusterState

COPY = DECISION - 1  # the point of a copy of point 0


def twin_of(key: Key) -> Key:
    """Return the key of an evaluation's copy, or that of a copy's original."""
    return key[0], COPY - key[1]


def original_of(key: Key) -> Key:
    """Return the key of an evaluation, or of the original of a copy."""
    return key if key[1] > COPY else twin_of(key)


def found_by(found: AgentEvaluations, key: Key) -> PendingEvaluation | None:
    """Return the evaluation or the copy with a key, if it is there."""
    return (found.running if key[1] > COPY else found.copies).get(key)


def limit_of(model: ClusterModel, cluster: ClusterState) -> float:
    """Return the time on a worker after which an evaluation is copied; infinity as long as too few durations are known.

    It is `after` times the `quantile` of the durations so far, as numpy interpolates it, once one of them may lie above that.
    """
    count = len(cluster.lasted)
    if model.after == math.inf or count * (1 - model.quantile) < 1 - 1e-9:
        return math.inf
    place = model.quantile * (count - 1)
    first = cluster.lasted[math.floor(place)]
    return model.after * (first + (cluster.lasted[math.ceil(place)] - first) * (place % 1))


def watch(cluster: ClusterState, number: int, one: PendingEvaluation) -> None:
    """Note that an evaluation of agent `number` runs on a worker from now on."""
    if one.key[1] > COPY:
        heappush(cluster.watched, (one.started, (number, *one.key), one.lease))


def longest(state: CoreState) -> tuple[float, AgentRecord, PendingEvaluation] | None:
    """Return since when the evaluation without a copy runs that has run longest, its agent, and itself; None without one."""
    while state.cluster.watched:
        started, (number, *key), lease = state.cluster.watched[0]
        agent = state.agents[number]
        found = agent.evaluations
        one = None if found is None else found.running.get((key[0], key[1]))
        if one is not None and one.worker >= 0 and one.lease == lease and twin_of(one.key) not in found.copies:
            return started, agent, one
        heappop(state.cluster.watched)  # it has ended, lost its worker, or has a copy
    return None


def settle(
    cluster: ClusterState, found: AgentEvaluations, ended: PendingEvaluation
) -> tuple[PendingEvaluation, list[PendingEvaluation]]:
    """Return an evaluation as its agent hears of it, when it or its copy has ended, and those of the two that stop.

    It has the times of the one that has ended; the time of the other one on its worker is in addition.
    """
    insort(cluster.lasted, ended.finished - ended.started)
    original = found.running[original_of(ended.key)]
    copy = found.copies.pop(twin_of(original.key), None)
    if copy is None:
        return ended, [ended]
    other = copy if ended is original else original
    times = {name: getattr(ended, name) for name in ("started", "finished", "in_time")}
    beside = ended.finished - other.started if other.worker >= 0 else 0.0
    return changed(original, **times, copied=beside), [original, copy]
