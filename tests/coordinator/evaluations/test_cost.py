"""Runs whose agents end once their evaluations have taken the time of [budget] cost."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from small_runs import ALL_MODES, BOTH_MODES, Ran, Setting, fts, thinned

from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.task import Task
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.gp import STOP
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.environment.faults import Crash
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.kernel.exchange import Exchange
from tests.random_studies.invariants import violations_of


@dataclass(frozen=True)
class Costly(Setting):
    """A run of which each agent has `cost` for its evaluations."""

    iterations: int = 30
    cost: float = 7.0

    def task(self) -> Task:
        return replace(super().task(), cost=self.cost)


def spent(ran: Ran) -> dict[int, list[float]]:
    """Return for each agent the time of its evaluations up to and with each row."""
    found = defaultdict[int, list[float]](list)
    for row in ran.rows:
        own = found[row.agent]
        own.append((own[-1] if own else 0.0) + row.finished - row.started)
    return found


@pytest.mark.parametrize(("exchange", "places"), thinned(ALL_MODES, [1, 3]))
def test_agents_end_with_the_step_that_spends_their_cost(exchange: Exchange, places: int) -> None:
    setting = Costly(fts(), exchange=exchange, policy=Policy(parallel=places, prefetch=places // 2))
    ran = setting.run()
    assert violations_of(ran.tables(setting)) == []
    assert {record.agent for record in ran.of("done")} == set(range(5))
    assert max(row.step for row in ran.rows) < 30
    for own in spent(ran).values():
        assert own[-1] >= 7.0
        assert places > 1 or own[-2] < 7.0


@pytest.mark.parametrize(("exchange", "places"), thinned(BOTH_MODES, [1, 3]))
def test_without_a_cost_that_is_reached_nothing_changes(exchange: Exchange, places: int) -> None:
    setting = Costly(fts(), exchange=exchange, iterations=6, policy=Policy(parallel=places))
    some, whole = setting.run(cost=1e9), setting.run(cost=math.inf)
    assert (some.records, some.rows) == (whole.records, whole.rows)
    assert {agent.spent for agent in whole.core.state.agents.every()} == {0.0}, "it is counted where it is limited"


def test_an_agent_that_has_spent_its_cost_begins_nothing_before_all_that_it_has_begun_has_ended() -> None:
    """Failed evaluations, those of more than 1.2, are tried once more, but then only together."""
    again = 0
    for seed in range(8):
        policy = Policy(parallel=3, retries=1, time_limit=1.2)
        ran = Costly(entry("random").make(), availability=Always(), policy=policy, seed=seed, agents=2).run()
        for agent in range(2):
            own = sorted((row for row in ran.rows if row.agent == agent), key=lambda row: row.finished)
            total = np.cumsum([row.finished - row.started for row in own])
            over = own[int(np.argmax(total >= 7.0))].finished
            late = [row.started for row in own if row.started >= over]
            again += len(late)
            assert not [row for row in own for start in late if row.started < start < row.finished - 1e-9]
    assert again > 3


def test_a_round_does_not_wait_for_agents_that_have_spent_their_cost() -> None:
    """One agent is ten times as slow as the others: it ends first, and the others' rounds then last one unit of time."""

    @dataclass(frozen=True)
    class Uneven(Costly):
        def environment(self) -> Environment:
            made = super().environment()
            return replace(made, exceptions={0: replace(made.common, evaluation=Constant(10.0))})

    setting = Uneven(fts(), exchange=BOTH_MODES[1], evaluation=Constant(1.0), availability=Always(), cost=30.0, iterations=50)
    ran = setting.run()
    done = {record.agent: (record.time, record.step) for record in ran.of("done")}
    assert done[0][1] == 1  # two initial points and a decision
    assert all(done[agent][1] == 28 for agent in range(1, 5))
    rounds = [record.time for record in ran.of("round") if record.time > done[0][0] + 1.0]
    assert all(after - before < 1.5 for before, after in zip(rounds, rounds[1:], strict=False))


@pytest.mark.parametrize(("exchange", "places"), thinned(BOTH_MODES, [1, 3]))
@pytest.mark.parametrize("state", ["kept", "lost"])
def test_evaluations_forgotten_in_a_crash_count_and_unfinished_ones_do_not(exchange: Exchange, places: int, state: str) -> None:
    crash = Crash(agents=(0, 1, 2), rate=0.3, restart=0.5, state=state)
    setting = Costly(
        fts(),
        exchange=exchange,
        policy=Policy(parallel=places),
        checkpoint=3,
        world={"plan": (crash,)},
    )
    ran = setting.run()
    assert violations_of(ran.tables(setting)) == []
    assert ran.of("crashed") and all(own[-1] >= 7.0 for own in spent(ran).values())
    for number, agent in ran.hosts.host.agents.objects.items():
        known = ran.core.state.agents[number].spent
        assert known == pytest.approx(spent(ran)[number][-1])
        assert places == 1 or agent.state.spent == known


@pytest.mark.parametrize(("exchange", "places"), thinned(BOTH_MODES, [1, 3]))
def test_an_agent_ends_with_the_first_decision_that_is_not_worth_its_cost(exchange: Exchange, places: int) -> None:
    """Without `stop` it goes on after the same steps, but for its note."""
    world: dict[str, Any] = {"exchange": exchange, "policy": Policy(parallel=places), "availability": Always()}
    settings: dict[str, Any] = {"cost": "pbgi", "price": 0.3, "refit": 100}
    whole, some = (
        Costly(entry("gp_ei").make(None, **settings, stop=stop), **world, cost=math.inf, agents=3, iterations=12)
        for stop in (False, True)
    )
    ran, before = some.run(), whole.run()
    assert violations_of(ran.tables(some)) == []
    for agent in range(3):
        own = [row for row in ran.rows if row.agent == agent]
        assert [row.step for row in own if row.note == STOP] == [max(row.step for row in own)] and own[-1].step < 12
        there = {(row.step, row.query): row.u for row in before.rows if row.agent == agent}
        assert all(row.u == there[row.step, row.query] for row in own)
        assert max(row.step for row in before.rows if row.agent == agent) == 12
