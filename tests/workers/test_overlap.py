"""Overlapping evaluations: what counts at the end of a run, and in its replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from small_runs import Setting

from fedbo.actors import host
from fedbo.actors.evaluation.learning import rehearse
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.evaluation.step import queries_of
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.storage.checkpoint import pack
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import Query
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.task import StepRequest
from fedbo.algorithms.base import Overlapping
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.streams import Streams
from fedbo.objectives.outcome import Outcome
from fedbo.workers.overlap import AsyncEvaluations, ReplayPool


def test_a_replay_has_the_evaluations_that_had_ended_in_a_step_that_had_not(tmp_path: Path) -> None:
    """Two of three had ended when the study was stopped: they count, since whoever watched was told of them."""
    task = Setting(entry("random").make(), agents=1, initial=3, policy=Policy(parallel=2)).task()
    config = HostConfig(RunFolder.of(tmp_path, RunKey(0, "random", 0)).claim(), recorded=True)
    before = InlineHosts(task, range(1), config)
    before.decide(StepRequest(0, 0))
    decision = before.host.agents[0].state.decision
    assert decision is not None
    made = queries_of(task, 0, 0, decision, 0)
    log = EvaluationLog(config.folder, {0}, 0)
    log.append(
        replace(query.evaluated(Outcome(1.5)), started=0.5, finished=1.0 + number)
        for number, query in enumerate(reversed(made[:2]))
    )
    log.close()
    replayed = InlineHosts(task, range(1), config)
    replayed.submit(StepRequest(0, 0))
    (name,) = replayed.finish(1)
    rows = pq.read_table(config.folder.path / name).to_pylist()
    assert [(row["query"], row["t_n"], row["finished"]) for row in rows] == [(1, 1, 1.0), (0, 2, 2.0)]


@pytest.mark.parametrize(
    ("every", "values", "ends"), [(1, [], False), (1, [1.5], True), (1, [None, 1.5], True), (0, [1.5], False)]
)
def test_decisions_begin_when_one_initial_point_has_a_value(
    tmp_path: Path, every: int, values: list[float | None], ends: bool
) -> None:
    """Other places would be empty until the longest of them has ended; a message that none follows waits for all of them."""
    settings: dict[str, Any] = {"every": every, "length_scale": 0.3, "noise": 0.01, "features": 20}
    task = Setting(entry("fts").make(**settings), agents=1, initial=3, policy=Policy(parallel=4)).task()
    config = HostConfig(RunFolder.of(tmp_path, RunKey(0, "fts", 0)).claim(), recorded=True)
    before = InlineHosts(task, range(1), config)
    before.decide(StepRequest(0, 0))
    decision = before.host.agents[0].state.decision
    assert decision is not None
    log = EvaluationLog(config.folder, {0}, 0)
    for query, value in zip(queries_of(task, 0, 0, decision, 0), values, strict=False):
        made = query.failed("it failed") if value is None else query.evaluated(Outcome(value))
        log.append([replace(made, started=0.5, finished=1.0 + query.number)])
    log.close()
    agent = InlineHosts(task, range(1), config).host.agents[0]
    report = agent.work(StepRequest(0, 0))
    assert (report is not None) == ends
    if report is not None:
        assert (report.t_n, len(agent.state.pending)) == (1, 3 - len(values))
        assert agent.work(StepRequest(0, 1)) is not None


@pytest.mark.parametrize(("cost", "count", "ends"), [(9.0, 1, True), (0.5, 1, False), (0.5, 2, False), (0.5, 3, True)])
def test_an_agent_that_has_spent_its_cost_waits_for_all_that_it_has_begun(
    tmp_path: Path, cost: float, count: int, ends: bool
) -> None:
    task = Setting(entry("random").make(), agents=1, initial=3, policy=Policy(parallel=4)).task()
    config = HostConfig(RunFolder.of(tmp_path, RunKey(0, "random", 0)).claim(), recorded=True)
    before = InlineHosts(task, range(1), config)
    before.decide(StepRequest(0, 0))
    decision = before.host.agents[0].state.decision
    assert decision is not None
    log = EvaluationLog(config.folder, {0}, 0)
    for query in queries_of(task, 0, 0, decision, 0)[:count]:
        log.append([replace(query.evaluated(Outcome(1.5)), started=0.5, finished=1.0 + query.number)])
    log.close()
    agent = InlineHosts(replace(task, cost=cost), range(1), config).host.agents[0]
    report = agent.work(StepRequest(0, 0))
    assert (report is not None) == ends
    if report is not None:
        assert report.spent == sum([0.5, 1.5, 2.5][:count]) and (cost > 1.0 or not agent.state.pending)


@pytest.mark.parametrize("name", [name for name in algorithms() if isinstance(entry(name).make(), Overlapping)])
def test_a_rehearsal_leaves_an_agent_as_it_was(name: str) -> None:
    task = Setting(entry(name).make(), agents=2, initial=2).task()
    agent = InlineHosts(task, range(2)).host.agents[0]
    before = pack(agent.state)
    rehearse(task, 0, agent.state.algorithm)
    assert pack(agent.state) == before


def test_in_real_time_a_host_rehearses_before_the_clock_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not evaluations overlap, for one agent of a process: what the others would import is there then."""
    rehearsed: list[int] = []
    monkeypatch.setattr(host, "rehearse", lambda task, agent, state: rehearsed.append(agent))
    folder = RunFolder.of(tmp_path, RunKey(0, "ts", 0)).claim()
    task = Setting(entry("ts").make(), agents=4, initial=2, targets=(2, 3)).task()
    for real in (False, True):
        host.Host().load(task, (1, 2, 3), HostConfig(folder, real=real))
        assert rehearsed == ([2] if real else [])


class Noted(ReplayPool):
    """A pool that notes what is begun; nothing ends in it."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def start(self, query: Query, streams: Streams) -> None:
        """Note the number."""
        self.begun.append(query.number)


def test_what_is_pending_is_begun_unless_its_end_stands_in_the_log(tmp_path: Path) -> None:
    """By a process that takes over: three points are pending, and one of them had ended."""
    task = Setting(entry("random").make(), agents=1, initial=3, policy=Policy(parallel=3)).task()
    config = HostConfig(RunFolder.of(tmp_path, RunKey(0, "random", 0)).claim(), recorded=True)
    hosts = InlineHosts(task, range(1), config)
    hosts.decide(StepRequest(0, 0))
    agent = hosts.host.agents[0]
    assert agent.state.decision is not None
    made = queries_of(task, 0, 0, agent.state.decision, 0)
    before, pool = EvaluationLog(config.folder, {0}, 0), Noted()
    before.append([replace(made[1].evaluated(Outcome(1.5)), started=0.5, finished=1.0)])
    before.close()
    log = EvaluationLog(config.folder, {0}, 0)
    state, result, halted = AsyncEvaluations(task, pool, log, lambda: 2.0, False).step(
        0, agent.state, agent.state.decision, StepRequest(0, 0)
    )
    log.close()
    assert pool.begun == [made[0].number, made[2].number]
    assert [record.number for record in result.records] == [made[1].number] and len(state.pending) == 2
    assert not halted
