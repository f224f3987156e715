"""Agents whose evaluations overlap, or queue for workers: in columns they leave what they leave as objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_runs import Ran, Setting, fts

from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.actors.task import EvaluationEnd, StepRequest
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.ts import TS
from fedbo.coordinator.environment.availability import Always, Markov
from fedbo.coordinator.environment.faults import Crash, Hang, Slow
from fedbo.coordinator.environment.timing import Constant, Lognormal
from fedbo.coordinator.kernel.exchange import Barrier, Buffered, Immediate
from fedbo.workers.models import ClusterModel, WorkerClass


def features(**settings: Any) -> Any:
    return fts(**{"own": TS(surrogate="features", features=12, length_scale=0.2, **settings), "relay": "one"})


FOUR = Setting(features(), policy=Policy(parallel=4), availability=Always(), exchange=Barrier())
WORKERS = {"cluster": ClusterModel((WorkerClass("all", 2),))}
CASES = {
    "barrier": FOUR,
    "buffered": replace(FOUR, exchange=Buffered(2)),
    "at once": replace(FOUR, evaluation=Constant(1.0), exchange=Immediate(), initial=6),
    "batches": replace(FOUR, policy=Policy(parallel=2, wait="all")),
    "ahead": replace(FOUR, policy=Policy(parallel=1, prefetch=2), exchange=Immediate()),
    "uniform": replace(FOUR, algorithm=entry("random").make()),
    "liar": replace(FOUR, algorithm=features(pending_values="constant_liar"), iterations=16),
    "ignored": replace(FOUR, algorithm=features(pending_values="ignore", coordinates="plain")),
    "workers": replace(FOUR, policy=Policy(), world=WORKERS, initial=1),
    "limited": replace(FOUR, policy=Policy(time_limit=1.0), evaluation=Lognormal(1.0, 0.8), world=WORKERS, initial=1),
    "both": replace(FOUR, world=WORKERS),
    "absent": replace(FOUR, availability=Markov(3.0, 1.0)),
    "lost": replace(FOUR, availability=Markov(3.0, 1.0), models={"leaving": "lost"}),
    "faults": replace(
        FOUR,
        world={
            "plan": (
                Crash(rate=0.1, restart=1.0, state="lost"),
                Hang(rate=0.1, duration=1.0),
                Slow(rate=0.1, duration=1.0, factor=2.0),
            )
        },
    ),
}
STAY = ("barrier", "buffered", "at once", "ignored", "workers")  # those whose agents are columns throughout


@pytest.fixture(autouse=True)
def of_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few agents be in columns too."""
    monkeypatch.setattr("fedbo.fast.accelerate._FEWEST", 1)


def left(ran: Ran) -> tuple[Any, ...]:
    return ran.records, pack(sorted(ran.rows, key=lambda row: (row.agent, row.step, row.query))), ran.outcome.events


@pytest.mark.parametrize("case", CASES)
def test_a_run_leaves_the_same_with_agents_in_columns_as_with_objects(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = CASES[case].run()
    assert not ran.hosts.host.agents.objects or case not in STAY
    monkeypatch.setattr("fedbo.fast.accelerate.is_plain", lambda task: False)
    assert left(ran) == left(CASES[case].run())


def test_a_step_that_ends_otherwise_than_was_foreseen_is_done_again_and_saved_agents_go_on() -> None:
    from fedbo.actors.host import Host

    task = replace(FOUR, agents=3).task()
    hosts = [Host() for _ in range(3)]
    for host in hosts:
        host.load(task, range(3))
    first = {place: EvaluationEnd(0, place, 0.0, 1.0 + place) for place in range(2)}

    def told(host: Host, step: int, *ends: EvaluationEnd) -> Any:
        reports = host.work((), [StepRequest(n, step, ended=ends) for n in range(3)])
        return pack(sorted(reports, key=lambda report: report.agent))

    for host in hosts[:2]:
        told(host, 0, first[1])
    assert told(hosts[0], 0, first[0], first[1]) == told(hosts[2], 0, first[0], first[1])
    for host in (hosts[0], hosts[2]):
        host.commit([(n, ()) for n in range(3)])
    (saved,) = hosts[2].agents.saved_columns(9)
    hosts[1].load(task, range(3))
    hosts[1].agents.load(unpack(pack(saved)), range(3))
    assert told(hosts[0], 1) == told(hosts[1], 1) == told(hosts[2], 1)
    assert [len(host.agents[0].state.pending) for host in hosts] == [1, 1, 1]
    np.testing.assert_array_equal(*(host.agents[1].state.pending[0].x for host in hosts[1:]))
