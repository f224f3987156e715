"""What is under way: last messages behind a cut, messages that are given up, an outage, and agents that stop together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from small_runs import Ran, Setting
from talking import Talk

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.base import Array, Inbound, Problem
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.faults import Corruption, Crash, Loss, NetworkPartition, Restart
from fedbo.coordinator.environment.timing import Constant, Lognormal
from fedbo.coordinator.kernel.exchange import Barrier, Buffered, Deadline, Exchange, FirstK, Immediate
from fedbo.coordinator.selection import Selection

STEADY: dict[str, Any] = {"evaluation": Constant(1.0), "availability": Always(), "initial": 1}


def talk(exchange: Exchange, plan: Any, latency: float = 1.0, **changes: Any) -> tuple[Ran, Talk]:
    talking = Talk()
    world = {"plan": plan, "retry": 0.5, "attempts": 2, **changes.pop("world", {})}
    setting = Setting(talking, exchange=exchange, latency=Constant(latency), world=world, **{**STEADY, **changes})
    return setting.run(), talking


def times(ran: Ran, kind: str, agent: int = 0) -> list[float]:
    return [record.time for record in ran.of(kind) if record.agent == agent]


@pytest.mark.parametrize("at", [3.5, 4.5])
def test_a_partition_cuts_off_the_last_message_whenever_it_begins(at: float) -> None:
    """The last step ends at 4, its message would arrive at 5, and is repeated at 5.5 and given up at 6."""
    cut = NetworkPartition((0,), at=at, duration=3.0)
    ran, _ = talk(Immediate(), (cut,), agents=1, iterations=3)
    assert times(ran, "done") == [4.0] and times(ran, "cut") == [at]
    assert [r.step for r in ran.of("arrived")] == [0, 1, 2] if at > 4.0 else [0, 1]
    assert [(r.reason, r.attempts) for r in ran.of("rejected") if r.step == 3] == [("given_up", 2)]
    assert times(ran, "joined") == []  # by then nothing of it is under way


def test_a_partition_passes_over_an_agent_that_is_done_and_has_been_heard() -> None:
    """Agent 0 is done at 1 and heard at 1.1; agent 1 works until 3."""
    cut = NetworkPartition((0, 1), at=1.5, duration=0.25)
    talking = Talk()
    world = {"plan": (cut, Crash((0,), at=1.2))}
    ran = Setting(talking, agents=2, latency=Constant(0.1), iterations=2, world=world, **STEADY).run()
    assert times(ran, "cut", 0) == times(ran, "joined", 0) == []
    assert times(ran, "cut", 1) == [1.5] and times(ran, "joined", 1) == [1.75]


@pytest.mark.parametrize("exchange", [Immediate(), Buffered(k=1), Buffered(k=2)])
def test_without_rounds_a_message_that_was_given_up_is_not_answered(exchange: Exchange) -> None:
    lost = Loss((0,), 1.0, direction="up")
    ran, talking = talk(exchange, (lost,), latency=0.0, agents=3, iterations=3)
    assert len([r for r in ran.of("rejected") if r.agent == 0]) == 4, "all of its messages are given up"
    assert times(ran, "delivered", 0) == [] and times(ran, "delivered", 1)
    assert not any(0 in recipients for recipients, _, _ in talking.answers)
    assert times(ran, "done", 0) == [4.0], "it continues without an answer"


@pytest.mark.parametrize("exchange", [Barrier(), Deadline(length=9.0), FirstK(k=3)])
def test_with_rounds_the_sender_of_a_message_that_was_given_up_continues_when_its_round_closes(exchange: Exchange) -> None:
    """The round waits for it until then, at 1.5 after the second transmission of 1.5 at 2.0."""
    ran, _ = talk(exchange, (Loss((0,), 1.0, direction="up"),), latency=0.0, agents=2, iterations=1)
    assert [r.time for r in ran.of("round")][:1] == [2.0]
    assert times(ran, "delivered", 0)[:1] == [2.0]


def test_an_outage_loses_what_reaches_the_coordinator_and_nothing_else() -> None:
    """Messages of 1.0 and later arrive one unit later: an outage at 1 loses none, one at 3 that of 2."""
    ran, _ = talk(Immediate(), (Restart(at=0.9, duration=0.2),), agents=1, iterations=2)
    assert times(ran, "arrived") == [2.0, 3.0, 4.0] and times(ran, "lost") == []
    assert times(ran, "delivered")[:1] == [3.0] if times(ran, "delivered") else True
    ran, _ = talk(Immediate(), (Restart(at=2.9, duration=0.2),), agents=1, iterations=4)
    assert times(ran, "lost") == [3.0], "the message of 2.0; the answer that left at 2.0 arrives at 3.0"
    assert times(ran, "delivered")[:1] == [3.0]
    assert [r.time for r in ran.of("sent") if r.again] == [3.5]


def test_an_answer_that_is_due_again_while_the_coordinator_is_down_is_lost_again() -> None:
    """The answer of 2.0 is lost; those of 2.5 and 3.0 are due in the outage, and that of 3.5 arrives one unit later."""
    plan = (Loss((0,), 1.0, direction="down", end=2.1), Restart(at=2.2, duration=1.0))
    ran, _ = talk(Immediate(), plan, agents=1, iterations=5, world={"attempts": 5})
    lost = [(record.time, record.reason) for record in ran.of("lost") if record.direction == "down"]
    assert lost == [(2.0, "fault"), (2.5, "coordinator_down"), (3.0, "coordinator_down")]
    assert [record.time for record in ran.of("delivered") if record.answer == 0] == [4.5]


@dataclass(frozen=True)
class Gathering(Talk):
    """Answer once every agent that has not left has been heard; until then agents wait."""

    queries: int | None = 0
    asked: list[tuple[int, ...]] = field(default_factory=list, compare=False)

    def server_init(self, problem: Problem) -> Any:
        return frozenset(range(problem.n_agents)), frozenset()

    def left(self, state: Any, agent: int) -> Any:
        return state[0] - {agent}, state[1] - {agent}

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        return state[0], state[1] | {message.sender}

    def broadcast(self, state: Any, recipients: Sequence[int], worth: Array, streams: Streams) -> Any:
        payloads, _ = super().broadcast(None, sorted(state[1]) if state[0] <= state[1] else (), worth, streams)
        self.asked.append(tuple(recipients))
        return payloads, (state[0], frozenset() if payloads else state[1])


def test_those_who_wait_are_answered_because_another_has_left_once_for_each_that_leaves() -> None:
    """Agent 2 is lost at 0.5; no message of agent 1 arrives, until it has done its work and leaves agent 0 alone."""
    method = Gathering()
    world = {"plan": (Crash((2,), at=0.5), Loss((1,), 1.0, direction="up")), "retry": 0.5, "attempts": 2}
    ran = Setting(method, agents=3, iterations=4, latency=Constant(0.1), world=world, **STEADY).run()
    assert {record.agent for record in ran.of("done")} == {0, 1}
    assert method.asked.count(()) == 1


def test_an_agent_that_is_done_takes_part_until_its_last_message_has_arrived() -> None:
    """Its messages of 1, 2 and 3 arrive at 3.5, 4.5 and 5.5; it is done at 3."""
    setting = Setting(Talk(), agents=1, iterations=2, latency=Constant(2.5), **STEADY)
    core = setting.core()
    active = list[tuple[float, bool]]()

    from fedbo.actors.hosts import InlineHosts
    from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
    from fedbo.coordinator.kernel.event_queue import EventQueue

    queue = EventQueue()
    hooks = RunHooks(lambda lines: None, keep=lambda events: active.append((queue.time, 0 in core.state.rounds.active)))
    run_virtual(core, InlineHosts(setting.task(), range(1)), hooks, queue)
    assert [is_in for time, is_in in active if 3.0 <= time < 5.5] and all(is_in for time, is_in in active if time < 5.5)
    assert not active[-1][1]


def test_agents_that_crash_at_one_instant_are_all_gone_before_the_next_round_is_drawn() -> None:
    """Four of eight agents work in each round; where the crash of some closes it, none that crashed with them is drawn."""
    closed = 0
    for seed in range(30):
        selection, gone = Selection(who="fraction", share=0.5, others="idle"), {1, 2, 3, 4, 5}
        setting = Setting(Talk(), agents=8, iterations=3, exchange=Barrier(selection=selection), seed=seed, **STEADY)
        plan = (Crash(tuple(gone), at=1.0, restart=50.0),)
        ran = setting.run(world={"plan": plan}, latency=Constant(0.0), evaluation=Lognormal(1.0, 1.0))
        drawn = {r.agent for r in ran.records if r.time == 1.0 and r.kind in ("delivered", "started")}
        at_work = {r.agent for r in ran.of("started") if r.time < 1.0} - {r.agent for r in ran.of("finished") if r.time < 1.0}
        closed += bool(drawn)
        assert not drawn & gone or {0, 6, 7} <= at_work, f"seed {seed}: {drawn} of {gone} were drawn as they crashed"
    assert closed >= 3


class Unanswered(Talk):
    """Answer nobody: with rounds all are told that theirs has closed, in no bytes."""

    def broadcast(self, state: Any, recipients: Sequence[int], worth: Array, streams: Streams) -> Any:
        return {}, state


def test_the_end_of_a_round_without_an_answer_takes_no_bandwidth_and_loses_no_bytes() -> None:
    """Round 0 closes when the messages of 1.0 arrive; what is lost at the end of its latency comes half a unit later again."""
    world = {"plan": (NetworkPartition((0,), at=2.5, duration=1.0),), "retry": 0.5}
    setting = Setting(Unanswered(), 2, exchange=Barrier(), latency=Constant(1.0), world=world, **STEADY)
    ran = replace(setting, models={"bandwidth": 100.0}).run()
    (closed,) = [record.time for record in ran.of("round") if record.time < 2.5]
    lost = [record for record in ran.of("lost") if record.direction == "down"]
    assert [(record.time, record.bytes, record.reason) for record in lost] == [(closed + 1.0, 0, "partition")]
    assert [record.time for record in ran.of("started") if record.agent == 0][1] == closed + 1.0 + 0.5 + 1.0


def test_a_message_that_was_cut_short_takes_the_link_as_long_as_any_other() -> None:
    """Four numbers are 32 bytes: one unit of the link, after one of evaluation and one of latency."""
    world = {"plan": (Corruption((0,), 1.0, how="shape"),), "link": 32.0}
    ran = Setting(Talk(up=4), 1, latency=Constant(1.0), world=world, **STEADY, iterations=1).run()
    assert times(ran, "rejected") == [3.0, 4.0]


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_step_takes_as_long_as_all_its_tries(retries: int) -> None:
    """Evaluations of 2 units are ended after 1.5, and tried again at once."""
    policy = Policy(retries, "drop", time_limit=1.5)
    ran = Setting(Talk(), 1, evaluation=Constant(2.0), policy=policy, initial=1, iterations=3, availability=Always()).run()
    tries = 1 + retries
    assert times(ran, "finished") == [1.5 * tries * step for step in (1, 2, 3, 4)]
    assert [(row.started, row.finished) for row in ran.rows] == [(1.5 * place, 1.5 * (place + 1)) for place in range(4 * tries)]
    assert (len(ran.of("started")), len(ran.of("failed"))) == (4, 4 * tries)
