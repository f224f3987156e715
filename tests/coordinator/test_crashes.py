"""What a crash takes and what it leaves: steps that are begun again, what is forgotten, and whom nobody waits for."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_runs import ALL_MODES, Ran, Setting, fts, paired
from talking import Talk

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.faults import Crash, Hang, Slow
from fedbo.coordinator.environment.timing import Constant, Exponential, Lognormal
from fedbo.coordinator.kernel.exchange import Barrier, Immediate

EVERYBODY = tuple(range(5))
every_mode = pytest.mark.parametrize(
    "exchange", ALL_MODES, ids=lambda m: m.mode + "-carry" * (m.accepts_late and m.is_synchronous)
)


class Noisy(Setting):
    """A world in which observations have noise, so that a draw used twice would show."""

    def task(self):
        return replace(super().task(), noise=0.1)


def crashing(algorithm: Any, state: str, rate: float = 0.25, **changes: Any) -> Ran:
    plan = (Crash(EVERYBODY, rate=rate, state=state, restart=0.4),)
    world = {"availability": Always(), "iterations": 10, "seed": 5, "world": {"plan": plan}, **changes}
    return Noisy(algorithm, **world).run()


def untimed(rows: Any) -> list[Any]:
    return [replace(row, started=0.0, finished=0.0) for row in rows]


@pytest.mark.parametrize(
    "algorithm", [entry("random").make(), fts(every=11).own, Talk(queries=None)], ids=["random", "ts", "talk"]
)
def test_with_its_state_kept_a_crash_costs_time_and_changes_nothing_else(algorithm: Any) -> None:
    crashed, plain = crashing(algorithm, "kept"), crashing(algorithm, "kept", world={})
    assert len(crashed.of("crashed")) > 10 and [r for r in crashed.of("started") if r.again]
    assert untimed(crashed.rows) == untimed(plain.rows)


def test_a_step_that_is_begun_again_takes_another_length() -> None:
    """What is begun again has lengths of its own: no draw is used twice, and those of later steps are what they were."""
    lengths, again = (
        durations(lambda agent: Exponential(2.0), purpose, Streams(1))
        for purpose in ("evaluation time", "evaluation time again")
    )
    first, anew, last = lengths(0, 0), again(0, 0), lengths(0, 2)
    plan = (Crash((0,), at=first + 0.01, restart=0.5),)
    world = {"evaluation": Exponential(2.0), "availability": Always(), "world": {"plan": plan}}
    ran = Setting(Talk(), agents=1, initial=1, iterations=2, **world).run()
    assert (ran.rows[1].started, ran.rows[1].finished) == pytest.approx((first + 0.51, first + 0.51 + anew))
    assert ran.rows[2].finished - ran.rows[2].started == pytest.approx(last)


@pytest.mark.parametrize(
    ("exchange", "queries", "checkpoint"),
    paired(ALL_MODES, [1, 2, None], [1, 3, 4]),
    ids=lambda one: getattr(one, "mode", str(one)),
)
def test_an_agent_that_lost_its_state_knows_what_it_knew_at_its_last_checkpoint(exchange, queries, checkpoint: int) -> None:
    algorithm = Talk(queries=queries)
    ran = crashing(algorithm, "lost", exchange=exchange, checkpoint=checkpoint)
    asked = {(state.agent, step): state for state, step, _ in algorithm.asks}  # the last try is the one that counted
    lost, ended, saved = set[int](), dict[int, Any](), dict[int, Any]()
    restored = 0
    for record in ran.records:
        agent, step = record.agent, record.step
        if record.kind == "crashed":
            lost.add(agent)
        elif record.kind == "finished":
            if step and agent in lost:
                assert asked[agent, step] == saved[agent]
                restored += ended[agent] != saved[agent]
            elif step:
                assert asked[agent, step] == ended[agent]
            if agent in lost:
                lost.discard(agent)
                saved[agent] = saved.get(agent)
            ended[agent] = algorithm.ends.get((agent, step), ended.get(agent))
            if step % checkpoint == 0:
                saved[agent] = ended[agent]
        assert record.kind != "discarded"
    assert restored > 0 or checkpoint == 1


@pytest.mark.parametrize("checkpoint", [1, 3, 4])
@every_mode
def test_what_was_forgotten_is_marked_and_not_counted(exchange, checkpoint: int) -> None:
    algorithm = Talk(queries=2)
    ran = crashing(algorithm, "lost", exchange=exchange, checkpoint=checkpoint)
    forgotten = [row for row in ran.rows if row.error is not None]
    assert {row.error for row in forgotten} <= {"forgotten in a crash"}
    assert bool(forgotten) == (checkpoint > 1)
    assert not {row.step for row in forgotten if row.step % checkpoint == 0}, "a checkpoint was forgotten"
    for agent in EVERYBODY:
        own = [row for row in ran.rows if row.agent == agent]
        good = [row for row in own if row.error is None]
        assert [row.t_n for row in good] == list(range(1, len(good) + 1))
        known = ran.hosts.host.agents[agent].committed
        assert known.t_n == len(good) == ran.core.state.agents[agent].t_n
        assert known.algorithm.told == tuple(row.outcome.value for row in good)
        assert known.best.value == max(row.outcome.value for row in good)
        assert len(own) == 2 * 11 == known.evaluated


@pytest.mark.parametrize("state", ["kept", "lost"])
@pytest.mark.parametrize("policy", [Policy(), Policy(1, "drop", 1.5)], ids=["plain", "retries"])
def test_no_noise_is_drawn_twice(state: str, policy: Policy) -> None:
    """The noise of every row differs, and is that of a number of its own in the agent's stream."""
    ran = crashing(Talk(queries=2), state, policy=policy, checkpoint=3)
    assert len(ran.of("crashed")) > 10
    for agent in EVERYBODY:
        own = [row for row in ran.rows if row.agent == agent]
        known = {
            round(np.sqrt(0.1) * Streams(5).of(agent).at(number + 1).rng("added noise").standard_normal(), 9): number
            for number in range(200)
        }
        numbers = [
            known[round(row.outcome.value - row.outcome.score, 9)] for row in own if row.outcome.value == row.outcome.value
        ]
        assert len(set(numbers)) == len(numbers) and numbers == sorted(numbers)


def test_the_coins_of_a_step_are_its_own_whatever_was_forgotten() -> None:
    """Sums of coins grow by a coin of the step at hand alone; a step is never decided from another's stream."""
    algorithm = Talk()
    crashing(algorithm, "lost", checkpoint=3)
    for (agent, step), state in algorithm.ends.items():
        before = [known for known, at, _ in algorithm.asks if (known.agent, at) == (agent, step)]
        coin = float(Streams(5).of(agent).at(step).rng("coin").random())
        assert not step or state.coin - before[-1].coin == pytest.approx(coin)


def test_a_decision_after_a_loss_takes_as_long_as_what_is_left_to_know() -> None:
    from fedbo.coordinator.environment.timing import DecisionTimeModel

    ran = crashing(Talk(), "lost", checkpoint=4, models={"decision": DecisionTimeModel(0.01, 1.0)})
    last_start: dict[tuple[int, int], float] = {(r.agent, r.step): r.time for r in ran.of("started")}
    checked = 0
    for agent in EVERYBODY:
        known = 0
        for row in (row for row in ran.rows if row.agent == agent and row.step):
            known = row.t_n - 1
            assert row.started - last_start[agent, row.step] == pytest.approx(0.01 * known)
            checked += row.error is not None
    assert checked > 5


@every_mode
def test_nobody_waits_for_an_agent_that_is_gone_for_good(exchange) -> None:
    plan = (Crash((1, 3), at=2.5),)
    ran = Setting(Talk(), exchange=exchange, availability=Always(), iterations=12, world={"plan": plan}).run()
    assert {r.agent for r in ran.of("crashed")} == {1, 3} and all(r.permanent for r in ran.of("crashed"))
    assert {r.agent for r in ran.of("done")} == {0, 2, 4}
    assert not [r for r in ran.records if r.agent in (1, 3) and r.time > 2.5 and r.kind in ("started", "finished", "sent")]
    assert Counter(row.agent for row in ran.rows)[0] == 2 + 12
    state = ran.core.state
    assert all(agent.current is None for agent in state.agents.every()) and not state.rounds.waiting


def test_a_barrier_closes_at_the_crash_of_the_last_one_it_waited_for() -> None:
    plan = (Crash((0,), at=1.75),)
    speed = {"evaluation": Constant(1.0), "availability": Always(), "latency": Constant(0.0), "initial": 1}
    ran = Setting(Talk(), agents=3, exchange=Barrier(), iterations=3, world={"plan": plan}, **speed).run()
    assert [r.time for r in ran.of("round")] == pytest.approx([1.0, 2.0, 3.0])
    alone = Setting(Talk(), agents=1, exchange=Barrier(), iterations=3, world={"plan": plan}, **speed).run()
    assert [r.time for r in alone.of("round")] == [1.0]
    slow = {**speed, "evaluation": Lognormal(1.0, 0.1, 1.5), "iterations": 1}
    plain = Setting(Talk(), agents=3, exchange=Barrier(), **slow).run()
    ends = {r.agent: r.time for r in plain.of("finished") if r.step == 0}
    last, second = sorted(ends.values())[-1], sorted(ends.values())[-2]
    slowest = max(ends, key=lambda agent: ends[agent])
    moment = (last + second) / 2
    ran = Setting(Talk(), agents=3, exchange=Barrier(), world={"plan": (Crash((slowest,), at=moment),)}, **slow).run()
    assert ran.of("round")[0].time == pytest.approx(moment)


@pytest.mark.parametrize(
    ("exchange", "state", "restart", "at"),
    paired(ALL_MODES, ["kept", "lost"], [None, 0.5, 1.0], [0.0, 1.0, 2.0, 3.0]),
    ids=lambda one: getattr(one, "mode", str(one)),
)
def test_crashes_in_the_very_moment_of_other_events_leave_a_sound_run(exchange, state, restart, at: float) -> None:
    """Steps of length 1 without latency: everything happens at whole numbers, and so do the crashes."""
    plan = (Crash(EVERYBODY, at=at, state=state, restart=restart), Crash((1, 2), at=at, state=state, restart=1.0))
    world = {"evaluation": Constant(1.0), "availability": Always(), "latency": Constant(0.0), "initial": 1}
    ran = Setting(Talk(), exchange=exchange, iterations=4, world={"plan": plan}, checkpoint=2, **world).run()
    finished = Counter((r.agent, r.step) for r in ran.of("finished"))
    assert max(finished.values(), default=1) == 1
    steps = defaultdict(list)
    for row in ran.rows:
        steps[row.agent].append(row.step)
    assert {(agent, step) for agent, own in steps.items() for step in own} == set(finished)
    if restart is not None:
        assert len(ran.of("done")) == 5
        assert all(own == list(range(5)) for own in steps.values())


def test_faults_after_the_end_of_the_last_agent_do_not_prolong_a_run() -> None:
    """The end that was foreseen for an agent which is gone for good is not the end of the run."""
    from fedbo.coordinator.environment.faults import Restart

    plan = (Crash((0, 1), at=2.0), Restart(rate=0.5, duration=0.1))
    world = {"evaluation": Constant(100.0), "availability": Always(), "world": {"plan": plan}}
    ran = Setting(Talk(), agents=2, exchange=Immediate(), iterations=3, **world).run()
    assert ran.outcome.time <= 2.5, f"it went on until {ran.outcome.time:.1f} with nobody left"


@pytest.mark.parametrize("kind", [Hang, Slow])
def test_a_fault_neither_begins_nor_ends_at_an_agent_that_has_done_its_work(kind: Any) -> None:
    """Both are done at 2, and their last messages are under way for 3 more; what had begun before ends all the same."""
    for at in (1.5, 3.0):
        world = {"evaluation": Constant(1.0), "latency": Constant(3.0), "availability": Always()}
        world |= {"world": {"plan": (kind((0,), at=at, duration=2.0),)}}
        ran = Setting(Talk(), agents=2, initial=1, iterations=1, **world).run()
        (done,) = (record.time for record in ran.of("done") if record.agent == 0)
        words = {"hung", "woke", "slowed", "recovered"}
        assert not [record for record in ran.records if record.kind in words and record.time > done]
        assert bool({record.kind for record in ran.records} & words) == (at < 2.0)
        assert {record.step for record in ran.of("arrived") if record.agent == 0} == {0, 1}


def test_no_more_faults_are_drawn_for_an_agent_that_has_done_its_work() -> None:
    """Agent 0 is done at 2; agent 1 needs a hundred times as long, in which 1,000 faults would come."""
    plan = (Slow((1,), at=0.0, duration=1e6, factor=100.0), Slow((0,), rate=5.0, duration=0.01))
    world = {"evaluation": Constant(1.0), "latency": Constant(0.0), "availability": Always(), "world": {"plan": plan}}
    ran = Setting(Talk(), agents=2, initial=1, iterations=1, **world).run()
    assert ran.outcome.time > 150 and ran.outcome.events < 100
    assert len([record for record in ran.of("slowed") if record.agent == 0]) > 3


def test_what_was_lost_stays_lost_when_the_step_is_interrupted_again() -> None:
    """The order that says what to forget is replaced by another one before it is carried out."""
    plan = (Crash((0,), at=1.5, state="lost", restart=1.0), Crash((0,), at=3.0, state="kept", restart=1.0))
    world = {"evaluation": Constant(1.0), "availability": Always(), "world": {"plan": plan}, "checkpoint": 5}
    ran = Setting(Talk(), agents=1, initial=0, iterations=2, **world).run()
    assert [(row.step, row.t_n, row.error) for row in ran.rows] == [(1, 1, "forgotten in a crash"), (2, 1, None)]
