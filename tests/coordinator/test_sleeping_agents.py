"""What happens to idle agents is no event unless its rows are asked for, and no observation tells which."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count, takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from plans import settings
from small_runs import Ran, Setting
from test_idle_agents import ROUNDS, idle, world

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.endless import EndlessError
from fedbo.coordinator.environment.availability import Changes, Daily, Markov, Within
from fedbo.coordinator.environment.fault_times import FaultTimes
from fedbo.coordinator.environment.faults import Crash, Hang, NetworkPartition, Slow
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.idle.passing import Passing, gaps_of_changes, gaps_of_strikes
from fedbo.coordinator.kernel.exchange import Deadline, Exchange
from fedbo.settings.durations import DurationLaw

BEGINS = {"absent": "returned", "crashed": "restarted", "hung": "woke", "slowed": "recovered", "cut": "joined"}
EVERYBODY = tuple(range(20))
UNREST: dict[str, Any] = {
    "markov": {"availability": Markov(4.0, 3.0)},
    "by day": {"availability": Daily(8.0, 5.0, 2.0, 1)},
    "for a while": {"availability": Within(Markov(4.0, 2.0), 1.0, 18.0)},
    "crashes": {"world": {"plan": (Crash(EVERYBODY, rate=0.1, restart=1.5), Crash(EVERYBODY, rate=0.005))}},
    "hangs": {
        "world": {"plan": (Hang(EVERYBODY, rate=0.1, duration=2.0), Crash(EVERYBODY, rate=0.1, restart=1.0))},
        "availability": Markov(4.0, 1.0),
    },
    "everything": {
        "world": {
            "plan": (
                Crash(EVERYBODY, rate=0.1, restart=1.0),
                Crash(EVERYBODY, rate=0.05, restart=2.0, state="lost"),
                Hang(EVERYBODY, rate=0.1, duration=1.0),
                Hang(EVERYBODY[:9], rate=0.2, duration=0.5),
                Slow(EVERYBODY, rate=0.1, duration=2.0, factor=4.0),
                Slow(EVERYBODY[5:], rate=0.3, duration=3.0, factor=3.0),
            )
        },
        "availability": Markov(3.0, 1.0),
    },
    "laws": {
        "world": {
            "plan": (
                Crash(EVERYBODY, rate=0.1, restart=DurationLaw("exponential", 1.0)),
                Crash(EVERYBODY[:9], rate=0.05, restart=DurationLaw("gamma", 2.0), together=True),
                Crash(EVERYBODY, at=(2.0, 2.5, 9.0), restart=DurationLaw("pareto", 2.0), state="lost"),
                Hang(EVERYBODY, rate=0.1, duration=DurationLaw("lognormal", 1.0)),
                Hang(EVERYBODY[4:], rate=0.05, duration=2.0, together=True),
                Slow(EVERYBODY, at=(1.0, 3.0), duration=DurationLaw("exponential", 3.0)),
            )
        }
    },
    "all at once": {
        "world": {
            "plan": (Crash(EVERYBODY[:9], at=4.0, restart=2.5), NetworkPartition(EVERYBODY, rate=0.1), Slow(EVERYBODY, at=3.0))
        }
    },
}


def with_rows(setting: Setting) -> Setting:
    return replace(setting, world={**setting.world, "idle_rows": True})


def carried_out(setting: Setting) -> Ran | None:
    try:
        return setting.run()
    except EndlessError:
        return None


def compare(setting: Setting) -> tuple[Ran, Ran] | None:
    """Check that no observation tells whether idle agents have rows, nor any other row; return both runs."""
    without, every = carried_out(setting), carried_out(with_rows(setting))
    if without is None or every is None:
        assert without is every
        return None
    assert list(map(str, without.rows)) == list(map(str, every.rows))
    of_idle = {*BEGINS, *BEGINS.values()}
    assert [one for one in without.records if one.kind not in of_idle] == [
        one._replace(sequence=one.sequence) for one in every.records if one.kind not in of_idle
    ]
    return without, every


@pytest.mark.parametrize("name", UNREST)
def test_rows_of_idle_agents_change_no_observation_and_what_begins_in_rows_ends_in_them(name: str) -> None:
    for seed, exchange in enumerate((idle(0.2), idle(0.3, Deadline(1.5), who="speed"))):
        found = compare(world(exchange=exchange, iterations=25, seed=seed, evaluation=Constant(1.0), **UNREST[name]))
        assert found is not None
        without, every = found
        kinds = Counter(one.kind for one in without.records), Counter(one.kind for one in every.records)
        assert any(kinds[0][kind] < kinds[1][kind] for kind in BEGINS)
        under_way = Counter[tuple[str, int]]()
        for one in without.records:
            if one.kind in BEGINS:
                under_way[BEGINS[one.kind], one.agent] += 1
            elif one.kind in BEGINS.values():
                assert under_way[one.kind, one.agent] > 0
                under_way[one.kind, one.agent] -= 1


@pytest.mark.parametrize("examples", [30, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("exchange", ROUNDS, ids=lambda mode: mode.mode + "-carry" * mode.accepts_late)
def test_whatever_goes_wrong_no_observation_tells_whether_idle_agents_have_rows(exchange: Exchange, examples: int) -> None:
    @profile(suppress_health_check=list(HealthCheck), derandomize=True, database=None, max_examples=examples, deadline=None)
    @given(settings(), st.sampled_from(["fraction", "speed"]), st.sampled_from([0.3, 0.6, 1.0]))
    def holds(setting: Setting, who: str, share: float) -> None:
        assume(setting.algorithm.queries is not None)
        compare(replace(setting, exchange=idle(share, exchange, who)))

    holds()


def test_agents_that_nobody_asks_cost_no_event() -> None:
    plan = (Crash(tuple(range(2000)), rate=0.05, restart=1.0),)
    ran = world(exchange=idle(0.005), agents=2000, availability=Markov(4.0, 2.0), world={"plan": plan}).run()
    assert ran.outcome.events < 1000 and len(ran.of("started")) > 50


MODELS = [Markov(3.0, 1.5), Daily(8.0, 5.0, 2.0, 4), Within(Markov(2.0, 2.0), 1.0, 30.0)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_times_that_pass_for_many_agents_are_those_of_each(model: Any) -> None:
    streams, agents = Streams(7, 2), np.arange(0, 600, 3)
    changes = Changes(lambda agent: model, streams)
    passing = Passing(agents, (changes, lambda agent, number: 0.0), streams, gaps_of_changes(model))
    each = Changes(lambda agent: model, streams)
    for now in (0.0, 0.5, 40.0, 41.0, 200.0):
        passing.go_on(now)
        for place, agent in enumerate(agents.tolist()):
            number = passing.number.item(place)
            assert passing.next.item(place) == each(agent, number) > now
            assert not number or passing.last.item(place) == each(agent, number - 1) <= now


@pytest.mark.parametrize("restart", [1.0, DurationLaw("lognormal", 1.0), None], ids=["constant", "drawn", "for good"])
def test_strikes_that_pass_for_many_agents_are_those_of_each_and_never_overlap(restart: Any) -> None:
    fault, streams, agents = Crash(EVERYBODY, rate=0.7, restart=restart), Streams(3), np.arange(100)
    times, each = (FaultTimes({4: fault}, "fault", lambda owner: streams.of(owner).at(0), streams) for _ in range(2))
    passing = Passing(agents, (partial(times.at, 4), partial(times.lasting, 4)), streams, gaps_of_strikes(4, fault))
    assert (gaps_of_strikes(4, fault) is None) == isinstance(restart, DurationLaw)
    for now in (0.1, 3.0, 20.0):
        passing.go_on(now)
        for agent in range(100):
            strikes = list(takewhile(lambda time: time <= now, (each.at(4, agent, number) for number in count())))  # noqa: B023
            ends = [time + each.lasting(4, agent, number) for number, time in enumerate(strikes)]
            assert passing.last[agent] == max(strikes, default=-np.inf) and passing.ends[agent] == max(ends, default=-np.inf)
            assert all(end <= after for end, after in zip(ends, strikes[1:], strict=False))
