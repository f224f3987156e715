"""A cluster of workers against queueing theory: M/M/c, M/D/1, list scheduling, max-min fairness, renewal of preempted work.

Statistical tests compare a mean with its theoretical value by batch means, at 4.5 standard errors of 30 batches: with Student's
law of 29 degrees of freedom each fails by chance once in 10,000 seeds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import Ran, Setting, logged

from fedbo.actors.hosts import InlineHosts
from fedbo.actors.task import Task
from fedbo.algorithms.base import Algorithm, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.environment.availability import Always, Trace
from fedbo.coordinator.environment.environment import AgentModels, Environment
from fedbo.coordinator.environment.faults import Crash, Hang, Preemption
from fedbo.coordinator.environment.timing import Constant, Exponential, Lognormal, Timing
from fedbo.coordinator.errors import EndlessError
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Immediate
from fedbo.objectives.functions import Quadratic
from fedbo.workers.models import ClusterModel, Resources, WorkerClass
from fedbo.workers.placement import WorkerPool

RANDOM: Algorithm = entry("random").make()
BATCHES, ERRORS = 30, 4.5


def equal(workers: int, rule: str = "first_come", **settings: Any) -> ClusterModel:
    return ClusterModel((WorkerClass("all", workers),), rule, **settings)


def waits(ran: Ran) -> np.ndarray:
    """Give how long each evaluation waited for a worker, in the order in which they came."""
    placed = [(event.queued_at, event.time) for event in ran.of("placed")]
    return np.array([begun - came for came, begun in sorted(placed)])


def agrees(values: Sequence[float] | np.ndarray, theory: float) -> bool:
    """Say whether the mean of correlated values is within the errors of its theoretical value, by batch means."""
    batches = np.array([batch.mean() for batch in np.array_split(np.asarray(values), BATCHES)])
    return abs(batches.mean() - theory) < ERRORS * batches.std(ddof=1) / math.sqrt(BATCHES)


def arrivals(tmp_path: Path, count: int, rate: float, seed: int) -> Trace:
    """Let agents be there from the times of a Poisson process on."""
    times = np.random.default_rng(seed).exponential(1 / rate, count).cumsum()
    lines = [f"{agent},{time!r},{time + 1e6!r}" for agent, time in enumerate(times.tolist())]
    path = tmp_path / "arrivals.csv"
    path.write_text("\n".join(["agent,start,end", *lines]) + "\n")
    return Trace(str(path))


def one_each(tmp_path: Path, cluster: ClusterModel, rate: float, length: Timing, count: int, seed: int) -> Ran:
    """Run a study in which each agent comes at random and makes one evaluation."""
    common = AgentModels(evaluation=length, availability=arrivals(tmp_path, count, rate, seed))
    problem = Problem(2, count, range(count), 1, 1, pulls=1)
    task = Task(Quadratic(agents=count), RANDOM, problem, Streams(seed))
    core, records, agenda = assembled(task, Immediate(), Environment(common, cluster=cluster)), list[Any](), EventQueue()
    hosts = InlineHosts(task, range(count))
    run_virtual(core, hosts, RunHooks(records.extend), agenda)
    return Ran(core, hosts, logged(records), agenda)


def erlang_c(workers: int, load: float) -> float:
    """Give the chance that one who comes has to wait in M/M/c (Erlang's second formula)."""
    busy = load**workers / math.factorial(workers) * workers / (workers - load)
    return busy / (sum(load**n / math.factorial(n) for n in range(workers)) + busy)


@pytest.mark.long
@pytest.mark.parametrize(("workers", "rate"), [(4, 2.6), pytest.param(1, 0.5, marks=pytest.mark.long)])
def test_waiting_times_are_those_of_erlang(workers: int, rate: float, tmp_path: Path) -> None:
    """In M/M/c the mean wait is C / (c mu - lambda), with Erlang's C."""
    ran = one_each(tmp_path, equal(workers), rate, Exponential(1.0), 2000, seed=1)
    assert agrees(waits(ran), erlang_c(workers, rate) / (workers - rate))
    assert abs((waits(ran) > 0).mean() - erlang_c(workers, rate)) < 0.06


@pytest.mark.long
def test_waiting_times_for_equal_lengths_are_those_of_pollaczek_and_khinchine(tmp_path: Path) -> None:
    """In M/D/1 the mean wait is rho / (2 (1 - rho)) lengths, half of that in M/M/1."""
    ran = one_each(tmp_path, equal(1), 0.6, Constant(1.0), 2000, seed=2)
    assert agrees(waits(ran), 0.6 / (2 * 0.4))


def test_a_worker_twice_as_fast_halves_lengths_and_an_idle_one_that_is_faster_is_taken(tmp_path: Path) -> None:
    classes = (WorkerClass("slow", 1), WorkerClass("fast", 1, speed=2.0, startup=0.25))
    setting = Setting(RANDOM, agents=2, initial=1, iterations=1, evaluation=Constant(1.0), availability=Always())
    ran = setting.run(world={"cluster": ClusterModel(classes)})
    # The second evaluations both wait: that of agent 0 for the fast one, the first to be free.
    assert sorted(row.finished for row in ran.rows) == [0.75, 1.0, 1.5, 2.0]


@pytest.mark.parametrize("workers", [1, 3, 7])
def test_equal_workers_serve_in_the_order_of_list_scheduling(workers: int) -> None:
    """All come at time 0, first come first served: as if each next one went to the worker that is free first."""
    setting = Setting(RANDOM, agents=20, initial=3, iterations=1, seed=3, evaluation=Lognormal(1.0, 1.0), availability=Always())
    ran = setting.run(world={"cluster": equal(workers)})
    rows = {(row.agent, row.step, row.query): row for row in ran.rows}
    queue = sorted((e.queued_at, e.time, e.agent, e.step, e.query) for e in ran.of("placed"))
    free = [0.0] * workers
    for came, _, agent, step, point in queue:
        begins = max(came, heapq.heappop(free))
        row = rows[agent, step, point]
        assert row.started == pytest.approx(begins)
        heapq.heappush(free, row.finished)


def served(model: ClusterModel, queued: Sequence[int], releases: int) -> list[int]:
    """Let agents queue while agent 9 has all workers, which become free one by one; give who is served."""
    pool = WorkerPool(model)
    state, begun = pool.fresh(), list[int]()
    for number in range(len(state.places)):
        pool.submit(state, 9, (0, number))
    busy = pool.serve(state)
    for place, agent in enumerate(queued):
        pool.submit(state, agent, (0, place))
    assert pool.serve(state) == []
    for one in busy[:releases]:
        pool.release(state, one.worker, (9, *one.key))
        begun += [found.agent for found in pool.serve(state)]
    return begun


def water_filling(demands: dict[int, int], total: int) -> dict[int, int]:
    """Give the max-min fair allocation of whole workers by its definition: one after the other to who has least."""
    given = dict.fromkeys(demands, 0)
    for _ in range(total):
        wanting = [agent for agent in demands if given[agent] < demands[agent]]
        given[min(wanting, key=lambda agent: (given[agent], agent))] += 1
    return given


@pytest.mark.parametrize("demands", [{0: 10, 1: 10, 2: 10}, {0: 1, 1: 20, 2: 3}, {0: 2, 1: 2, 2: 40, 3: 1}])
def test_fair_share_is_max_min_fair(demands: dict[int, int]) -> None:
    queued = [agent for agent, count in demands.items() for _ in range(count)]  # all of one, then all of the next
    total = min(12, len(queued))
    found = served(equal(12, "fair_share", needs=(Resources(),)), queued, total)
    assert {agent: found.count(agent) for agent in demands} == water_filling(demands, total)


def test_first_come_and_priority_serve_in_their_orders() -> None:
    queued = [1, 1, 0, 2, 0]
    assert served(equal(5), queued, 5) == queued
    ranked = equal(5, "priority", priorities=(0.0, 1.0, 5.0, *(0.0,) * 7))
    assert served(ranked, queued, 5) == [2, 1, 1, 0, 0]


def test_a_worker_holds_as_many_as_its_resources_and_what_fits_does_not_wait_for_what_does_not() -> None:
    model = ClusterModel((WorkerClass("big", 1, resources=Resources(4.0, 1.0)),), needs=(Resources(3.0), Resources(1.0, 0.5)))
    pool = WorkerPool(model)
    state = pool.fresh()
    for number, agent in enumerate([0, 0, 1, 1]):
        pool.submit(state, agent, (0, number))
    assert [one.agent for one in pool.serve(state)] == [0, 1]
    pool.release(state, 0, (0, 0, 0))
    assert [one.agent for one in pool.serve(state)] == [0]  # it came before the second of agent 1
    pool.release(state, 0, (1, 0, 2))
    assert [one.agent for one in pool.serve(state)] == [1]


@pytest.mark.long
def test_lost_work_takes_as_long_as_renewal_theory_says() -> None:
    """Work of length L is done when no preemption of rate r struck for L: (exp(r L) - 1) (1 / r + the mean time away)."""
    rate, length, away = 0.4, 1.5, 0.5
    spot = Preemption(rate=rate, duration=away)
    setting = Setting(RANDOM, agents=1, initial=1, iterations=3000, evaluation=Constant(length), availability=Always(), seed=4)
    ran = setting.run(world={"cluster": equal(1), "plan": (spot,)})
    ends = np.array([0.0, *sorted(row.finished for row in ran.rows)])
    assert agrees(np.diff(ends), math.expm1(rate * length) * (1 / rate + away))


@pytest.mark.long
def test_work_that_goes_on_from_checkpoints_takes_as_long_as_renewal_theory_says() -> None:
    """With r preemptions for each unit of time, each of which adds c, work of length L takes L / (1 - r c) (Wald)."""
    rate, length, away, cost = 0.4, 1.5, 0.5, 0.3
    spot = Preemption(rate=rate, duration=away, checkpoint=cost)
    setting = Setting(RANDOM, agents=1, initial=1, iterations=3000, evaluation=Constant(length), availability=Always(), seed=5)
    ran = setting.run(world={"cluster": equal(1), "plan": (spot,)})
    ends = np.array([0.0, *sorted(row.finished for row in ran.rows)])
    assert agrees(np.diff(ends), length / (1 - rate * cost) * (1 + rate * away))


def test_work_with_periodic_checkpoints_takes_as_long_as_renewal_theory_says() -> None:
    """Each segment, of work and its save, is done anew until no preemption struck for its length: the sum of the times above
    for the lengths 0.5 + 0.1 twice, and 0.4 (Daly 2006, equation 12, with restarts that take `away`)."""
    rate, away = 0.4, 0.5
    spot, cluster = Preemption(rate=rate, duration=away), equal(1, every=0.5, cost=0.1)
    setting = Setting(RANDOM, agents=1, initial=1, iterations=1500, evaluation=Constant(1.4), availability=Always(), seed=6)
    ran = setting.run(world={"cluster": cluster, "plan": (spot,)})
    ends = np.array([0.0, *sorted(row.finished for row in ran.rows)])
    segments = sum(math.expm1(rate * length) for length in (0.6, 0.6, 0.4))
    assert agrees(np.diff(ends), segments * (1 / rate + away))


@pytest.mark.parametrize("notice", [0.05, 0.3])
def test_with_notice_only_the_time_away_and_that_of_saving_is_lost(notice: float) -> None:
    """A save that takes 0.1 fits into the longer notice: each strike in the middle of an evaluation then costs 0.1 and the time
    away, but where its work was done before. In the shorter one it does not, and all since the last save is lost, if any."""
    spot, cluster = Preemption(rate=0.4, duration=0.5, notice=notice), equal(1, every=1e9, cost=0.1)
    setting = Setting(RANDOM, agents=1, initial=1, iterations=300, evaluation=Constant(1.4), availability=Always(), seed=7)
    ran = setting.run(world={"cluster": cluster, "plan": (spot,)})
    stays = [end - begin for begin, end in zip((one.time for one in ran.of("placed")), _ends(ran), strict=True)]
    lost, saved = [one.lost for one in ran.of("preempted")], 0.1 if notice > 0.1 else 0.0
    assert len(lost) > 50 and (sum(lost) == 0) == (saved > 0)
    work = sum(stays) - sum(lost) - sum(min(saved, stay) for stay, ends in zip(stays, _stopped(ran), strict=True) if ends)
    assert work == pytest.approx(301 * 1.4)


def _ends(ran: Ran) -> list[float]:
    return [one.time for one in ran.records if one.kind in ("released", "preempted")]


def _stopped(ran: Ran) -> list[bool]:
    return [one.kind == "preempted" for one in ran.records if one.kind in ("released", "preempted")]


def test_a_host_that_is_lost_gives_its_work_to_others_and_workers_join_and_leave() -> None:
    setting = Setting(RANDOM, agents=4, initial=1, iterations=2, evaluation=Constant(2.0), availability=Always())
    classes = (WorkerClass("one", 1), WorkerClass("host", 3, joins=1.0), WorkerClass("guest", 1, joins=3.0, leaves=4.0))
    ran = setting.run(world={"cluster": ClusterModel(classes), "plan": (Preemption("host", at=2.5),)})
    assert len(ran.rows) == 12
    assert all(row.finished - row.started == pytest.approx(2.0) for row in ran.rows)
    workers = {event.worker: event.time for event in ran.of("placed")}
    assert workers[1] < 2.5 and workers[2] < 2.5 and workers[3] < 2.5 and 3.0 <= workers[4] < 4.0
    assert len(ran.of("preempted")) == 4
    assert [event.worker_class for event in ran.of("workers_joined")] == ["host", "guest"]


def test_a_study_whose_workers_are_all_lost_says_so() -> None:
    setting = Setting(RANDOM, agents=2, initial=1, iterations=2, evaluation=Constant(2.0), availability=Always())
    with pytest.raises(EndlessError, match="evaluations of agents 0, 1 wait for a worker that will never be available"):
        setting.run(world={"cluster": equal(1), "plan": (Preemption(at=1.0),)})


@pytest.mark.parametrize("checkpoint", [None, 0.0])
def test_the_wait_of_a_preempted_evaluation_begins_with_its_preemption(checkpoint: float | None) -> None:
    """It runs from 0 to 0.5, waits to 1.5, and then runs for 1, or for the half that is left."""
    setting = Setting(RANDOM, agents=1, initial=1, iterations=1, evaluation=Constant(1.0), availability=Always())
    ran = setting.run(world={"cluster": equal(1), "plan": (Preemption(at=0.5, duration=1.0, checkpoint=checkpoint),)})
    assert waits(ran).tolist() == [0.0, 1.0, 0.0]
    assert [row.finished for row in ran.rows] == ([2.5, 3.5] if checkpoint is None else [2.0, 3.0])


def test_what_runs_on_a_worker_goes_on_while_its_agent_hangs() -> None:
    setting = Setting(RANDOM, agents=1, initial=1, iterations=1, evaluation=Constant(2.0), availability=Always())
    hung = setting.run(world={"cluster": equal(1), "plan": (Hang((0,), at=1.0, duration=3.0),)})
    assert [(row.started, row.finished) for row in hung.rows] == [(0.0, 2.0), (4.0, 6.0)]
    crashed = setting.run(world={"cluster": equal(1), "plan": (Crash((0,), at=1.0, restart=3.0),)})
    assert [(row.started, row.finished) for row in crashed.rows] == [(4.0, 6.0), (6.0, 8.0)]


def test_a_need_of_nothing_is_a_whole_share() -> None:
    model = ClusterModel((WorkerClass("big", 2, resources=Resources(4.0, 1.0)),))
    assert [model.share(Resources(cpu, gpu)) for cpu, gpu in ((2.0, 0.0), (1.0, 0.5), (0.0, 0.0))] == [0.25, 0.25, 1.0]
    assert ClusterModel((WorkerClass("one", 1),)).share(Resources(0.5)) == 0.5
