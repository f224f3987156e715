"""Whom a selection asks by what is known of agents, and agents that take turns where there are no rounds."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from small_runs import Setting
from talking import Talk

from fedbo.coordinator.environment.availability import Always, Daily
from fedbo.coordinator.environment.environment import AgentModels
from fedbo.coordinator.environment.faults import Crash, Loss, Restart
from fedbo.coordinator.environment.timing import Constant, Exponential
from fedbo.coordinator.kernel.exchange import Barrier, Buffered, Immediate
from fedbo.coordinator.selection import Candidates, Selection, Speed, Tiers, Usefulness
from fedbo.settings.errors import SettingError

DRAWS = 4_000


def known(**told: Any) -> Candidates:
    """Make candidates of whom nothing is known but what is told."""
    count = max(len(each) for each in told.values() if not isinstance(each, int))
    unknown = {name: np.full(count, np.nan) for name in ("lasted", "age", "useful", "reported")}
    told = {name: each if isinstance(each, int) else np.array(each, dtype=float) for name, each in told.items()}
    nothing = np.zeros(count)
    return Candidates(**{"agents": np.arange(count), "heard": nothing, "asked": nothing, "number": 10, **unknown, **told})


def first_of(chooser: Any, candidates: Candidates, count: int = 1) -> Counter[int]:
    return Counter(int(chooser.choose(candidates, count, np.random.default_rng(seed))[0]) for seed in range(DRAWS))


def fits(found: Counter[int], weights: Any) -> bool:
    """Compare frequencies with weights by chi-square; false alarm 1e-4."""
    weights = np.array(weights, dtype=float)
    assert set(found) <= {*np.flatnonzero(weights)}
    counts = np.array([found[place] for place in np.flatnonzero(weights)])
    return float(stats.chisquare(counts, DRAWS * weights[weights > 0] / weights.sum()).pvalue) > 1e-4


def test_a_fast_agent_is_asked_in_proportion_to_its_weight() -> None:
    """The first of a race is agent i with probability w_i / sum w, w = min(1, T / t)^2; the median T of the times is 3."""
    found = first_of(Speed(explore=0.0), known(lasted=[1.0, 2.0, 4.0, 8.0, 3.0]))
    assert fits(found, [1.0, 1.0, (3 / 4) ** 2, (3 / 8) ** 2, 1.0])


def test_the_explored_part_of_a_share_is_uniform() -> None:
    assert fits(first_of(Speed(explore=1.0), known(lasted=[1.0, 10.0, 100.0, 1e3, 1e4])), np.ones(5))


def test_a_useful_agent_is_asked_in_proportion_to_its_weight() -> None:
    """The formula of Oort's algorithm 1: usefulness scaled to [0, 1], plus the age term, times the factor of speed."""
    useful, age, lasted = [3.0, 1.0, 2.0, np.nan], [9.0, 1.0, 5.0, 2.0], [1.0, 1.0, 4.0, 1.0]
    found = first_of(Usefulness(explore=0.0, age=0.5), known(useful=useful, age=age, lasted=lasted, heard=[1, 2, 3, 1]))
    scaled, last = np.array([1.0, 0.0, 0.5, 0.0]), 10 - np.array(age)
    assert fits(found, (scaled + 0.5 * np.sqrt(math.log(10) / last)) * [1.0, 1.0, (1 / 4) ** 2, 1.0])


def test_a_part_of_the_useful_agents_are_new_ones() -> None:
    """Of four, half are drawn among those that have not been heard; all of them where too few have been."""
    some = known(useful=[1.0, 2.0, 3.0, 4.0, np.nan, np.nan, np.nan], age=[1.0] * 7, heard=[1, 1, 1, 1, 0, 0, 0])
    none = known(heard=[0] * 7, useful=[np.nan] * 7)
    for seed in range(50):
        drawn = Usefulness(explore=0.5).choose(some, 4, np.random.default_rng(seed))
        assert len({*drawn}) == 4 and sum(place >= 4 for place in drawn) == 2
        assert len({*Usefulness().choose(none, 4, np.random.default_rng(seed))}) == 4


def test_a_tier_is_of_one_speed_and_all_tiers_are_drawn() -> None:
    """Ten agents in three tiers, and two that have not been heard; with more than a tier has, the next in speed come too."""
    lasted = [*np.random.default_rng(1).permutation(10).astype(float), np.nan, np.nan]
    tier = {place: min(int(lasted[place]) // 4 + (lasted[place] == 7), 2) if place < 10 else 3 for place in range(12)}
    groups = Counter[tuple[int, ...]]()
    for seed in range(DRAWS):
        drawn = Tiers(3).choose(known(lasted=lasted), 2, np.random.default_rng(seed))
        groups[tuple(sorted({tier[int(place)] for place in drawn}))] += 1
    assert all(len(group) == 1 for group in groups)
    assert stats.chisquare([*groups.values()]).pvalue > 1e-4 and len(groups) == 4
    assert len({*Tiers(3).choose(known(lasted=lasted), 7, np.random.default_rng(0))}) == 7


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"who": "spead"}, "did you mean 'speed'"),
        ({"who": "speed", "settings": {"x": 1}}, "are for plug-ins"),
        ({"who": "poisson", "others": "idle"}, 'must be "work"'),
    ],
)
def test_a_selection_that_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Selection(**settings)


# Turns.


def talk(exchange: Any, working: int, **changes: Any) -> Any:
    exchange = replace(exchange, selection=replace(exchange.selection, concurrency=working))
    world = {"evaluation": Exponential(1.0), "availability": Always(), "agents": 40, "initial": 1, "iterations": 30, **changes}
    return Setting(Talk(), exchange=exchange, **world).run()


def at_work(ran: Any) -> int:
    """Return the most agents that worked at once; the end of a step comes before the start of another one at its time."""
    times = [(one.time, one.kind == "started") for one in ran.records if one.kind in ("started", "finished")]
    return int(np.cumsum([1 if starts else -1 for _, starts in sorted(times)]).max())


def test_the_age_of_a_message_is_geometric_where_a_part_of_the_agents_work() -> None:
    """Where M agents work for exponential times, an agent is overtaken by others with probability (M - 1) / M each time.

    So their number is geometric with mean M - 1 (FedBuff's setting without a buffer); chi-square on every tenth message, which
    are nearly independent: seed 5, false alarm 1e-3.
    """
    ran, working = talk(Immediate(), 4, latency=Constant(0.0), seed=5), 4
    assert at_work(ran) == working and len(ran.of("finished")) == 40 * 31
    ages = [one.staleness for one in ran.of("arrived")][100:-100]
    assert np.mean(ages) == pytest.approx(working - 1, rel=0.05)  # four standard errors
    some = Counter(min(age, 8) for age in ages[::10])
    share = [0.25 * 0.75**age for age in range(8)]
    assert stats.chisquare([some[age] for age in range(9)], len(ages[::10]) * np.array([*share, 0.75**8])).pvalue > 1e-3


def test_with_a_buffer_the_age_of_a_message_is_in_updates() -> None:
    """Its mean is (M - 1) / k updates (Nguyen et al. 2022, section 4); within four standard errors: seed 6."""
    ran = talk(Buffered(5), 8, latency=Constant(0.0), seed=6)
    ages = [one.staleness for one in ran.of("arrived")][100:-100]
    assert np.mean(ages) == pytest.approx(7 / 5, rel=0.08)
    assert len(ran.of("round")) == 40 * 31 // 5
    told = [one.bytes for one in ran.of("delivered")]
    assert 0 <= sum(told) - sum(one.bytes for one in ran.of("round")) <= 8 * max(told)


def test_all_agents_end_under_absences_losses_crashes_and_outages_and_never_more_work_than_may() -> None:
    plan = (Loss((0, 1, 2), 0.5), Crash((5, 6), at=2.0, restart=1.0), Crash((7,), at=3.0), Restart(at=4.0, duration=2.0))
    models = {9: AgentModels(evaluation=Constant(0.3), availability=Daily(day=2.0, present=1.0, start=0.0, zones=1))}
    for exchange in (
        Immediate(),
        Buffered(3),
        Immediate(selection=Selection("speed")),
        Immediate(selection=Selection("tiers")),
    ):
        ran = talk(exchange, 3, iterations=6, latency=Constant(0.1), world={"plan": plan, "exceptions": models})
        assert {one.agent for one in ran.of("done")} == {*range(40)} - {7}
        assert at_work(ran) <= 3


def test_fast_agents_take_more_turns_where_they_are_preferred() -> None:
    """Agents end after equally many steps, so the fast ones end first; under a uniform draw slow ones end as early."""
    models = {number: AgentModels(evaluation=Constant(1.0 if number < 25 else 5.0)) for number in range(40)}
    selection = Selection("speed", penalty=8.0, explore=0.0)
    ran = talk(Immediate(selection=selection), 4, world={"exceptions": models})
    ends = {one.agent: one.time for one in ran.of("done")}
    assert np.median([ends[agent] for agent in range(25)]) < 0.5 * np.median([ends[agent] for agent in range(25, 40)])


def test_a_round_that_asks_by_tier_asks_agents_of_one_speed() -> None:
    """Once all have been asked, their durations are known: 1 to 8, in four tiers of two."""
    models = {number: AgentModels(evaluation=Constant(1.0 + number), latency=Constant(0.1)) for number in range(8)}
    exchange = Barrier(selection=Selection("tiers", 0.25, tiers=4, others="idle"))
    setting = Setting(Talk(), exchange=exchange, agents=8, initial=1, iterations=40, world={"exceptions": models})
    ran, rounds = setting.run(), [set[int]()]
    for one in ran.records:
        if one.kind == "arrived":
            rounds[-1].add(one.agent)
        elif one.kind == "round":
            rounds.append(set())
    assert {frozenset(asked) for asked in rounds[20:-1]} == {frozenset((tier, tier + 1)) for tier in (0, 2, 4, 6)}


@pytest.mark.parametrize(
    "exchange", [Barrier(selection=Selection("speed", share=0.3)), Immediate(selection=Selection("speed"))]
)
def test_a_choice_is_told_how_often_each_agent_was_asked_before(exchange: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, choose, calls = Counter[int](), Speed.choose, list[int]()

    def noted(self: Speed, told: Candidates, count: int, rng: np.random.Generator) -> Any:
        assert told.asked.tolist() == [asked[int(agent)] for agent in told.agents]
        places = choose(self, told, count, rng)
        asked.update(told.agents[places].tolist())
        calls.append(count)
        return places

    monkeypatch.setattr(Speed, "choose", noted)
    if exchange.is_synchronous:
        Setting(Talk(), exchange=exchange, agents=10, initial=1, iterations=5, evaluation=Exponential(1.0)).run()
    else:
        talk(exchange, 4, iterations=3)
    assert len(calls) > 4 and max(asked.values()) > 1


@pytest.mark.parametrize("fewest", [1, 10**9])  # in windows of events, and event by event
def test_a_choice_is_told_when_each_agent_reported_last(fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo.fast.accelerate._FEWEST", fewest)
    told, choose = list[dict[int, float]](), Speed.choose

    def noted(self: Speed, known: Candidates, count: int, rng: np.random.Generator) -> Any:
        told.append(dict(zip(known.agents.tolist(), known.reported.tolist(), strict=True)))
        return choose(self, known, count, rng)

    monkeypatch.setattr(Speed, "choose", noted)
    exchange = Barrier(selection=Selection("speed", share=0.3))
    world = {"latency": Constant(0.25)}
    ran = Setting(Talk(), exchange=exchange, agents=10, initial=1, iterations=6, evaluation=Exponential(1.0), **world).run()
    last, rounds = dict.fromkeys(range(10), math.nan), [dict.fromkeys(range(10), math.nan)]
    for one in ran.records:
        if one.kind == "arrived":
            last[one.agent] = one.time
        elif one.kind == "round":
            rounds.append(dict(last))
    assert len(told) > 5
    for found, expected in zip(told, rounds, strict=False):
        assert list(found.values()) == pytest.approx([expected[agent] for agent in found], nan_ok=True)
