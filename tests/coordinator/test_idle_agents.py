"""Rounds in which only those who are asked work: who is asked, what they are told, and what an agent costs."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import ray
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from invariants import check
from plans import settings
from scipy import stats
from small_runs import ALL_MODES, Setting, fts

from fedbo.actors.host import Host
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.remote import RayHosts, start_hosts
from fedbo.actors.task import StepRequest
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.ts import TS
from fedbo.coordinator.environment.availability import Always, Markov
from fedbo.coordinator.environment.faults import Crash
from fedbo.coordinator.environment.timing import Constant, Lognormal
from fedbo.coordinator.kernel.events import StudyStarted
from fedbo.coordinator.kernel.exchange import Barrier, Deadline, Exchange
from fedbo.coordinator.selection import Selection
from fedbo.settings.errors import SettingError

ROUNDS = [exchange for exchange in ALL_MODES if exchange.is_synchronous]
every_mode_with_rounds = pytest.mark.parametrize("exchange", ROUNDS, ids=lambda m: m.mode + "-carry" * m.accepts_late)


def idle(share: float, exchange: Exchange | None = None, who: str = "fraction") -> Any:
    return replace(exchange or Barrier(), selection=Selection(who, share, others="idle"))  # type: ignore[type-var]


def world(**changes: Any) -> Setting:
    return replace(Setting(fts(), agents=20, iterations=9, availability=Always()), **changes)


def test_a_round_asks_its_share_and_there_is_one_more_than_iterations() -> None:
    ran = world(exchange=idle(0.2)).run()
    closed, began = 0, list[int]()
    for record in ran.records:
        closed += record.kind == "round"
        if record.kind == "started":
            began.append(closed)
    assert Counter(began) == dict.fromkeys(range(10), 4)
    assert len(ran.of("finished")) == len(ran.of("arrived")) == 40 and len(ran.of("done")) == 4


def test_an_agent_goes_on_with_its_own_next_step_and_is_told_the_newest_answer() -> None:
    ran = world(exchange=idle(0.3)).run()
    steps: dict[int, list[int]] = defaultdict(list)
    for record in ran.of("finished"):
        steps[record.agent].append(record.step)
    assert all(own == list(range(len(own))) for own in steps.values()) and max(map(len, steps.values())) > 3
    answers = [(record.agent, record.answer) for record in ran.of("delivered")]
    assert len(set(answers)) == len(answers)
    rounds = [record.time for record in ran.of("round")]
    for record in ran.of("delivered"):
        assert record.time == pytest.approx(rounds[record.answer] + 0.1)  # as soon as it is asked, and no sooner
        assert record.agent in {row.agent for row in ran.rows if row.step == 0}  # never before its initial points


def test_with_a_share_of_one_nobody_is_idle() -> None:
    everybody, asked = (world(exchange=exchange, agents=6).run() for exchange in (Barrier(), idle(1.0)))
    assert asked.records == everybody.records
    assert [row[:-1] for row in map(str, asked.rows)] == [row[:-1] for row in map(str, everybody.rows)]


@pytest.mark.long
def test_all_are_asked_equally_often() -> None:
    """Each round asks 4 of 20, all equally likely; chi-square over 400 rounds, false alarm below 1e-4."""
    ran = world(exchange=idle(0.2), iterations=399).run()
    asked = Counter(record.agent for record in ran.of("started"))
    assert sum(asked.values()) == 1600
    # Without replacement within a round the counts vary less than multinomial ones, by the factor 16 / 19.
    assert stats.chisquare([asked[agent] for agent in range(20)]).statistic * 19 / 16 < stats.chi2(19).isf(1e-4)


def test_who_is_away_is_not_asked_while_others_are_there() -> None:
    ran = world(exchange=idle(0.2), availability=Markov(4.0, 4.0), iterations=40, world={"idle_rows": True}).run()
    away = set[int]()
    for record in ran.records:
        if record.kind == "absent":
            away.add(record.agent)
        elif record.kind == "returned":
            away.discard(record.agent)
        assert record.kind != "started" or record.agent not in away
    assert ran.of("absent") and len(ran.of("round")) == 40


@pytest.mark.parametrize("rows", [True, False])
def test_an_idle_agent_that_is_lost_for_good_is_never_asked_again(rows: bool) -> None:
    plan = (Crash(tuple(range(10)), at=3.0, restart=None),)
    ran = world(exchange=idle(0.2), iterations=40, world={"plan": plan, "idle_rows": rows}).run()
    assert len([record for record in ran.of("crashed")]) == (10 if rows else 2)
    assert not [record for record in ran.of("started") if record.agent < 10 and record.time > 3.0]
    assert len(ran.of("round")) == 40


def test_a_straggler_is_not_asked_again_before_it_has_reported() -> None:
    ran = world(exchange=idle(0.4, Deadline(1.0)), evaluation=Lognormal(1.0, 1.5), iterations=30).run()
    working = set[int]()
    for record in ran.records:
        if record.kind == "started":
            assert record.agent not in working
            working.add(record.agent)
        elif record.kind == "finished":
            working.remove(record.agent)
    assert ran.of("late")


def test_only_targets_are_asked_where_others_have_nothing_to_tell() -> None:
    """Under a method that sends nothing before its first decision."""
    ran = world(algorithm=entry("fn_ucb").make(), exchange=idle(0.6), targets=(1, 4, 7), iterations=4, initial=0).run()
    assert {record.agent for record in ran.of("sent")} == {1, 4, 7}


def test_who_reports_after_the_last_round_closes_no_other() -> None:
    late = 0
    for seed in range(20):
        deadline = idle(0.65, Deadline(0.8))
        ran = world(exchange=deadline, agents=4, iterations=3, latency=Lognormal(4.0, 1.2), seed=seed).run()
        last = max(record.time for record in ran.of("round"))
        late += sum(record.time > last for record in ran.of("late"))
        assert max(record.round for record in ran.of("round")) <= 3
    assert late


@every_mode_with_rounds
def test_whatever_goes_wrong_what_must_hold_holds(exchange: Exchange) -> None:
    @profile(suppress_health_check=list(HealthCheck), derandomize=True, database=None, max_examples=4)
    @given(settings(), st.sampled_from(["fraction", "speed"]), st.sampled_from([0.3, 0.6, 1.0]))
    def holds(setting: Setting, who: str, share: float) -> None:
        assume(setting.algorithm.queries is not None)
        check(replace(setting, exchange=idle(share, exchange, who)))

    holds()


def test_an_agent_that_was_never_asked_costs_next_to_nothing_and_no_event() -> None:
    """Bytes that are held at the end of a run, twice as many registered agents less as many: what one of them costs."""
    algorithm = fts(every=1, relay="one", features=10)

    def held(agents: int) -> tuple[int, int]:
        setting = world(algorithm=algorithm, agents=agents, initial=1, evaluation=Constant(1.0), iterations=3)
        setting = replace(setting, exchange=idle(10 / agents))
        setting.run().hosts.host.agents.take_rows(lossy=False)  # what is made once is there, also what Arrow imports
        tracemalloc.start()
        ran = setting.run()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(ran.of("started")) == 40
        return size, len(ran.records)

    (few, some), (many, more) = held(2_000), held(22_000)
    assert some == more
    assert (many - few) / 20_000 < 200


def held_by(setting: Setting, rows: int) -> int:
    """Return the bytes that are held at the end of a run of so many rows, but for the rows that the next snapshot writes.

    Its method has 100 features, on which nothing is fitted, so there is no M x M matrix.
    """
    own = TS(surrogate="features", features=100, length_scale=0.2)
    algorithm = fts(every=1, relay="one", features=100, kernel="se", length_scale=0.2, own=own)
    setting = replace(setting, algorithm=algorithm, initial=1)
    setting.run().hosts.host.agents.take_rows(lossy=False)  # what is made once is there, also what Arrow imports
    tracemalloc.start()
    ran = setting.run()
    assert len(ran.rows) == rows
    ran.records.clear()
    ran.hosts.host.agents.take_rows(lossy=False)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size


@pytest.mark.parametrize("few", [10, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize(("observations", "most"), [pytest.param(2, 7_000, marks=pytest.mark.long), (20, 12_000)])
def test_an_active_agent_costs_at_most_12_kilobytes_with_20_observations_and_100_features(
    observations: int, most: int, few: int
) -> None:
    """Of so many agents, what a run holds whatever they are is the same."""

    def held(agents: int) -> int:
        return held_by(world(agents=agents, exchange=Barrier(), iterations=observations - 1), observations * agents)

    assert (held(3 * few) - held(few)) / (2 * few) < most


@pytest.mark.parametrize("few", [100, pytest.param(200, marks=pytest.mark.long)])
def test_an_agent_that_is_rarely_asked_holds_what_it_has_observed_and_not_what_its_budget_allows(few: int) -> None:
    """Each agent is asked for one step in a hundred: with room for all of them it held 35 kilobytes."""

    def held(agents: int) -> int:
        setting = world(agents=agents, evaluation=Constant(1.0), iterations=99)
        return held_by(replace(setting, exchange=idle(0.01)), agents)

    assert (held(3 * few) - held(few)) / (2 * few) < 4_000


@pytest.mark.long
@pytest.mark.ray
def test_a_host_hears_that_steps_count_although_it_has_nothing_else_to_do(ray_session: None) -> None:
    """Else all agents of a round keep what they were before it until the next one."""
    task = world(agents=1200, iterations=1, initial=1).task()
    hosts = RayHosts(start_hosts(1), task, range(1200))
    for agent in range(1200):
        hosts.submit(StepRequest(agent, 0, lease=1))
    for agent in range(1200):
        hosts.result(agent)
        hosts.commit(agent, (0.0, 1.0))
    assert len(hosts.best_values()) == 1200
    (actor,) = hosts.actors
    hosts.close()  # then the actor does what others ask of it

    def uncommitted(host: Host) -> int:
        return sum(host.agents[number].uncommitted is not None for number in host.agents)

    assert ray.get(actor.__ray_call__.remote(uncommitted), timeout=60) < 500


@pytest.mark.parametrize("who", ["all", "poisson"])
def test_a_selection_without_a_share_of_all_has_no_idle_agents(who: str) -> None:
    with pytest.raises(SettingError, match="others must|others is"):
        Selection(who, 0.5, others="idle")


def test_methods_that_never_send_have_no_rounds_and_so_nobody_is_idle() -> None:
    ran = world(algorithm=entry("random").make(), exchange=idle(0.2), agents=4, iterations=3).run()
    assert len(ran.of("finished")) == 16 and np.all([row.step <= 3 for row in ran.rows])


def test_who_is_known_to_be_away_is_asked_only_where_nobody_else_is_idle() -> None:
    setting = world(exchange=idle(0.5), agents=6, world={"idle_rows": True})
    core = setting.core()
    core.handle(StudyStarted(), 0.0)
    state, server = core.state, core.server
    state.rounds.active.clear()
    for number in (0, 1, 2):
        state.agents[number].known_offline = True
    assert set(server.enlist(state, 0.0, 1)[0]) <= {3, 4, 5}
    for number in (3, 4, 5):
        state.agents[number].known_offline = True
    state.rounds.active.clear()
    assert len(server.enlist(state, 0.0, 2)[0]) == 3


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_crashed_agents_forget_the_same_however_many_steps_are_computed_together(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many take little time depends on the machine: an agent may leave the columns with a step that is not committed."""
    everybody = tuple(range(20))
    plan = (Crash(everybody, rate=0.1, restart=1.5, state="lost"), Crash(everybody, rate=0.005))
    carry_out, found = InlineHosts._carry_out, set()
    for number in range(4):
        sizes = random.Random(number)

        def drawn(self: InlineHosts, agents: list[int], sizes: random.Random = sizes) -> None:
            carry_out(self, agents)
            self._together = sizes.choice((1, 2, 3, 8, 64, 128))

        monkeypatch.setattr(InlineHosts, "_carry_out", drawn)
        made = world(exchange=idle(0.2), iterations=25, seed=seed, evaluation=Constant(1.0), world={"plan": plan}).run()
        found.add(str(made.rows))
    assert len(found) == 1
