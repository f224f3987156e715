"""Every event of random worlds is as an independent simulation predicts it, which was written from the documentation alone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from cluster_predictor import Queue
from exchange_predictor import predicted
from worlds import cluster_run, draw_cluster, draw_exchange, exchange_lines, exchange_run, told

from fedbo.coordinator.idle.sleeping import SleepingAgents
from fedbo.coordinator.kernel import event_queue, fault_injection
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.server import Server
from fedbo.settings.records import changed
from fedbo.workers import scaling
from fedbo.workers.load import BackgroundLoad
from fedbo.workers.models import ClusterModel
from fedbo.workers.running import WorkerEvents

ROUNDING = 1e-9  # workers in step end evaluations of one length together, or by rounding one after the other
LONG = pytest.param(1000, marks=pytest.mark.long)


def exchange_differences(seed: int) -> Any:
    """Compare the log of a world with its prediction; return what is in one alone, in the order of time."""
    world = draw_exchange(seed)
    carried_out = exchange_lines([told(record) for record in exchange_run(world)])
    foreseen = exchange_lines(predicted(world))
    return sorted((carried_out - foreseen).elements()), sorted((foreseen - carried_out).elements())


def cluster_differences(seed: int) -> Any:
    """Compare placements with their prediction; nothing where rounding decides what comes first."""
    world = draw_cluster(seed)
    found, records, queue = [], cluster_run(world), Queue(world)
    foreseen = queue.run()
    for times in ({record.time for record in records}, {time for time, *_ in (*foreseen, *queue.others)}):
        if any(0.0 < after - before < ROUNDING for before, after in itertools.pairwise(sorted(times))):
            return None, 0
    for record in records:
        if record.kind == "placed":
            index = record.query if record.step == 0 else world["evaluations"] - 1  # the last one is the only decision
            found.append((round(record.time, 7), record.agent, index, record.worker, record.copy is True))
    rounded = [(round(time, 7), *facts) for time, *facts in foreseen]
    last = max(time for time, *_ in rounded)
    found += [(round(one.time, 7), *_of_load(one)) for one in records if _of_load(one) and one.time < last]
    rounded += [(round(time, 7), *facts) for time, *facts in queue.others if time < last]
    return sorted(set(found) ^ set(rounded), key=str), len(found) - len(rounded)


def _of_load(record: Any) -> tuple[Any, ...]:
    """Return what an event of the background load, or of workers that follow the queue, says; empty for any other one."""
    if record.kind in ("job_placed", "job_left"):
        return record.kind, record.job, record.worker
    return (
        (record.kind, record.worker) if record.kind in ("workers_joined", "workers_left") and record.worker is not None else ()
    )


@pytest.mark.parametrize("worlds", [40, LONG])
def test_every_event_between_agents_and_coordinator_is_predicted(worlds: int) -> None:
    wrong = {seed: found for seed in range(worlds) if any(found := exchange_differences(seed))}
    assert not wrong, f"worlds {sorted(wrong)}; first {next(iter(wrong.items()))}"


@pytest.mark.parametrize("worlds", [40, LONG])
def test_every_placement_on_a_cluster_is_predicted(worlds: int) -> None:
    every = {seed: cluster_differences(seed) for seed in range(worlds)}
    assert sum(found[0] is None for found in every.values()) < worlds / 4, "rounding decides in too many worlds"
    wrong = {seed: found for seed, found in every.items() if any(found)}
    assert not wrong, f"worlds {sorted(wrong)}; first {next(iter(wrong.items()))}"


def _placed_at_once(before: Any) -> Any:
    def preempted(self: Any, state: Any, event: Any, now: float) -> Any:
        return before(self, state, event, now) + self._evaluations.place(state, event, now)

    return preempted


DEFECTS = {
    "a worker that goes is not waited for by others": (cluster_differences, WorkerEvents, "preempted", _placed_at_once),
    "a checkpoint that was cut off is complete": (
        cluster_differences,
        ClusterModel,
        "progress",
        lambda before: lambda self, time: (before(self, time)[0], *before(self, time)[::2]),
    ),
    "a part of a job ends early": (
        cluster_differences,
        BackgroundLoad,
        "begin",
        lambda before: lambda *given: [changed(after, delay=0.5 * after.delay) for after in before(*given)],
    ),
    "the last worker of a class starts first": (cluster_differences, scaling, "heappop", lambda before: lambda off: off.pop()),
    "placements come in between": (cluster_differences, event_queue, "_LAST", lambda before: 0),
    "a message that was given up is answered": (
        exchange_differences,
        Server,
        "given_up",
        lambda before: lambda self, state, agent, now: self.report(state, agent, False, now),
    ),
    "a partition passes over last messages": (
        exchange_differences,
        fault_injection,
        "_is_struck",
        lambda before: lambda fault, agent: not agent.ended,
    ),
    "an outage loses answers": (
        exchange_differences,
        Network,
        "dropped_on_arrival",
        lambda before: (
            lambda self, state, sent, bytes_, now: (
                self._lost(sent, bytes_, now, "coordinator_down") if state.outages else before(self, state, sent, bytes_, now)
            )
        ),
    ),
    "idle agents are asked although they are away": (
        exchange_differences,
        SleepingAgents,
        "away",
        lambda before: lambda self, state, idle, now: before(self, state, idle, now) & False,
    ),
    "agents meet nothing before they are asked first": (
        exchange_differences,
        SleepingAgents,
        "_first",
        lambda before: lambda self, number, now: iter(()),
    ),
    "an agent leaves with the first of its last messages": (
        exchange_differences,
        Server,
        "report",
        lambda before: (
            lambda self, state, agent, counted, now: (
                self.leave(state, agent, now) if agent.ended else before(self, state, agent, counted, now)
            )
        ),
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_within_forty_worlds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    differences, owner, attribute, make = DEFECTS[name]
    monkeypatch.setattr(owner, attribute, make(getattr(owner, attribute)))
    assert any(any(differences(seed)) for seed in range(40))
