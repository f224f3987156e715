"""Steps of several agents at once: to the bit what each does alone, whoever its neighbours are."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from fedbo.actors.blocks import serves_blocks
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.host import Host
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.storage.checkpoint import pack
from fedbo.actors.task import EarlyEnd, StepReport, StepRequest, Task
from fedbo.algorithms.base import Blockwise, Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.fts import FTS
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.algorithms.ts import TS
from fedbo.objectives.functions import Quadratic
from fedbo.objectives.python_function import PythonFunction
from fedbo.settings.records import changed
from fedbo.settings.trust import admit

admit(["test_blocks:above_a_half", "test_blocks:counted"])

AGENTS, ROUNDS = 7, 5
FEATURES: dict[str, Any] = {"own": TS(surrogate="features", features=12), "features": 12, "p": 0.4, "every": 1}
SETTINGS = {
    "one model": ("fts", {**FEATURES, "relay": "one", "query": "draw", "kernel": "se", "length_scale": 0.2}),
    "two models": ("fts", {**FEATURES, "query": "mean"}),
    "published": ("fts", {**FEATURES, "every": 0, "query": "draw", "centre": False, "apart": 0.0}),
    "noise": ("fts_noise", FEATURES),
    "uniform": ("fts_uniform", FEATURES),
    "fitted": ("fts", {"features": 12, "every": 1}),
    "regions": ("fts_de", {**FEATURES, "regions": 2}),
    "ts": ("ts", {"surrogate": "features", "features": 12}),
    "ts by default": ("ts", {}),
    "random": ("random", {}),
    "random direction": ("dp_fts_de_noise", {**FEATURES, "regions": 2, "noise_multiplier": 0.0, "message": "draw"}),
}


def task_of(name: str, settings: dict[str, Any], dim: int = 2, initial: int = 2) -> Task:
    algorithm = entry(name).make(**settings)
    assert isinstance(algorithm, Blockwise)
    problem = Problem(dim, AGENTS, range(AGENTS), initial, 40)
    return Task(Quadratic(agents=AGENTS, dimensions=dim), algorithm, problem, Streams(3))


def carried_out(task: Task, blocks: list[list[int]], rounds: int = ROUNDS) -> tuple[list[dict[int, StepReport]], Any]:
    """Give the reports of each round, and the agents' states in the end; the agents of a block are asked together."""
    host = Host()
    host.load(task, range(AGENTS))
    answers: dict[int, Any] = {}
    found = []
    for step in range(rounds):
        reports = {}
        for block in blocks:
            inboxes = {n: ((Inbound(COORDINATOR, step, 0.0, answers[n]),) if n in answers else ()) for n in block}
            given = host.carry_out([StepRequest(n, step, inbox=inboxes[n]) for n in block])
            reports |= {report.agent: report for report in given}
        found.append(reports)
        heard = task.algorithm.download(task.problem) is not None
        answers = {n: _answer(task, reports, n) for n in range(AGENTS) if heard and (reports[n].payload is not None or step)}
    return found, [pack(host.agents[n].state) for n in range(AGENTS)]


def _answer(task: Task, reports: dict[int, StepReport], agent: int) -> dict[str, Any]:
    """Answer with what the last round's messages are, in the form that the method declares."""
    sent = {n: report.payload["omega"] for n, report in reports.items() if report.payload is not None}
    declared = task.algorithm.download(task.problem)
    assert declared is not None
    rows = [sent.get((agent + n) % AGENTS, np.zeros(12)) for n in range(1, AGENTS + 1)]
    if "sender" in declared:
        return {"omega": rows[0], "sender": np.array([(agent + 1) % AGENTS])}
    count = declared["omega"].shape[0]
    answer = {"omega": np.array(rows[:count])}
    return answer | ({"weight": np.full(AGENTS, 1.0 / AGENTS)} if "weight" in declared else {})


def same(some: list[dict[int, StepReport]], others: list[dict[int, StepReport]]) -> bool:
    return all(pack(one[n]) == pack(other[n]) for one, other in zip(some, others, strict=True) for n in range(AGENTS))


@pytest.mark.parametrize("case", SETTINGS)
def test_agents_do_the_same_in_blocks_of_any_size_and_order_as_alone(case: str) -> None:
    task = task_of(*SETTINGS[case])
    alone, states = carried_out(task, [[n] for n in range(AGENTS)])
    for blocks in ([list(range(AGENTS))], [[5, 2], [6, 0, 3], [1, 4]]):
        found, after = carried_out(task, blocks)
        assert same(found, alone)
        assert after == states


@pytest.mark.parametrize("dim", [1, 3, 4])
def test_so_they_do_in_any_number_of_inputs_and_with_more_observations_than_features(dim: int) -> None:
    settings = {**FEATURES, "own": TS(surrogate="features", features=5), "relay": "one", "query": "draw"}
    task = task_of("fts", {**settings, "features": 12}, dim, initial=3)
    alone, states = carried_out(task, [[n] for n in range(AGENTS)], 12 if dim == 1 else 4)
    found, after = carried_out(task, [[3, 1, 0, 2], [6, 5, 4]], 12 if dim == 1 else 4)
    assert same(found, alone) and after == states


def test_points_under_way_leave_nothing_behind_when_they_come_in_another_order() -> None:
    """What was drawn with them is known of other rows than those that are told then."""
    task = task_of(*SETTINGS["one model"])
    algorithm: Any = task.algorithm
    states = [algorithm.agent_init(task.problem, task.streams.of(0).at(0))] * 2
    x = np.random.default_rng(0).random((6, 2))
    states = [algorithm.tell(state, x[:3], x[:3, 0]) for state in states]
    algorithm_asked, asked = algorithm.ask(algorithm.pending(states[0], x[3:]), (), task.streams.of(0).at(1))
    states[0] = algorithm.tell(algorithm.pending(asked, x[:0]), x[[5, 3]], x[[5, 3], 0])
    states[1] = algorithm.tell(changed(states[1], t=1), x[[5, 3]], x[[5, 3], 0])
    found = [algorithm.ask(state, (), task.streams.of(0).at(2))[0] for state in states]
    np.testing.assert_array_equal(found[0].x, found[1].x)
    assert not np.array_equal(algorithm_asked.x, found[0].x)


def test_one_that_fails_is_reported_and_its_neighbours_go_on() -> None:
    broken = PythonFunction(function="test_blocks:above_a_half", agents=AGENTS, low=(0.0, 0.0), high=(1.0, 1.0))
    for policy in (Policy(failure="stop"), Policy(failure="drop")):
        task = replace(task_of(*SETTINGS["one model"]), federation=broken, policy=policy)
        hosts = Host(), Host()
        for host in hosts:
            host.load(task, range(AGENTS))
        together = hosts[0].carry_out([StepRequest(n, 0) for n in range(AGENTS)])
        alone = [hosts[1].carry_out([StepRequest(n, 0)])[0] for n in range(AGENTS)]
        assert pack(together) == pack(alone)
        assert {report.failure is None for report in together} == ({True, False} if policy.failure == "stop" else {True})


def above_a_half(x: Any, agent: int) -> float:
    if x[0] > 0.9:
        raise ValueError("too far to the right")
    return float(x[0])


def test_a_step_that_was_done_or_decided_before_is_not_done_again() -> None:
    task = task_of(*SETTINGS["one model"])
    host = Host()
    host.load(task, range(AGENTS))
    first = host.carry_out([StepRequest(n, 0) for n in range(AGENTS)])
    again = host.carry_out([StepRequest(n, 0, lease=9) for n in range(AGENTS)])
    assert [changed(report, lease=0) for report in again] == first
    for n in (1, 4):
        host.agents[n].commit(())
        assert host.agents[n].decide(StepRequest(n, 1)).queries == 1
    decided = {n: host.agents[n].state.decision for n in (1, 4)}
    reports = host.carry_out([StepRequest(n, 1) for n in range(AGENTS)])
    assert [report.t_n for report in reports] == [3] * AGENTS
    for n, decision in decided.items():
        assert decision is not None
        done = host.agents[n].uncommitted
        assert done is not None and done.result.queries[0].u == decision.x[0].tolist()


class Silent(FTS):
    """A method whose rule for one agent is its own."""

    def outbox(self, state: Any, streams: Streams) -> tuple[None, Any]:
        return None, state


def test_a_method_with_its_own_rule_for_one_agent_is_not_asked_for_many() -> None:
    task = task_of(*SETTINGS["two models"])
    settings = {field.name: getattr(task.algorithm, field.name) for field in fields(task.algorithm)}
    assert serves_blocks(FTS) and not serves_blocks(Silent)
    reports, _ = carried_out(replace(task, algorithm=Silent(**settings)), [list(range(AGENTS))], rounds=1)
    assert all(report.payload is None for report in reports[0].values())


CALLS: list[int] = []


def counted(x: Any, agent: int) -> float:
    CALLS.append(agent)
    return above_a_half(x, agent)


def test_in_one_process_steps_that_take_little_are_computed_together_unless_the_run_may_end_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedbo.actors.hosts._ENOUGH", 60.0)  # on a busy machine three evaluations may take longer than usual
    function = PythonFunction(function="test_blocks:counted", agents=AGENTS, low=(0.0, 0.0), high=(1.0, 1.0))
    task = replace(task_of(*SETTINGS["one model"], initial=1), federation=function, policy=Policy(failure="stop"))
    for target, together in ((None, True), (0.5, False)):
        hosts = InlineHosts(replace(task, early_end=target and EarlyEnd(target)), range(AGENTS))
        CALLS.clear()
        for agent in range(AGENTS):
            hosts.submit(StepRequest(agent, 0))
        made = []
        for agent in range(3):
            assert hosts.result(agent).agent == agent
            made.append(len(CALLS))
        assert made == ([1, 3, 3] if together else [1, 2, 3])
        hosts.submit(StepRequest(2, 0, lease=1, restore="before"))
        assert hosts.result(2).lease == 1
        for agent in range(3, AGENTS):  # one fails, when its own result is asked for and no sooner
            if agent == 3:
                with pytest.raises(EvaluationError, match="too far"):
                    hosts.result(agent)
            else:
                hosts.result(agent)
