"""Presence and absence: each model against its law, and changes that depend on agent and number alone."""

from __future__ import annotations

from bisect import bisect
from itertools import islice, takewhile
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import (
    AVAILABILITIES,
    Always,
    Ascending,
    Availability,
    Bernoulli,
    Changes,
    Daily,
    Markov,
    Within,
    absences,
    never_before_steps,
)

MODELS: list[Availability] = [Always(), Bernoulli(), Markov(3.0, 1.0), Daily(), Daily(24.0, 10.0, 3.0, 7)]


def _there(changes: list[float], times: np.ndarray) -> np.ndarray:
    """Say at which of the times an agent with these changes is there: after an even number of them."""
    return np.searchsorted(changes, times, side="right") % 2 == 0


@pytest.mark.parametrize("model", [Always(), Markov(), Daily()], ids=lambda model: model.model)
def test_models_in_continuous_time_keep_nobody_from_an_iteration(model: Availability) -> None:
    assert not model.absences(np.random.default_rng(1), 50).any()
    length = absences(lambda agent: model, Streams(1))
    assert {length(agent, step) for agent in range(3) for step in range(70)} == {0.0}


def test_absences_before_iterations_come_from_their_stream() -> None:
    model = Bernoulli(0.3, 2.5)
    length = absences(lambda agent: model, Streams(9))
    for block in (1, 0):
        expected = np.where(Streams(9).of(4).at(block).rng("absence").random(64) < 0.3, 2.5, 0.0)
        assert [length(4, 64 * block + place) for place in range(64)] == expected.tolist()


def test_agents_are_away_before_iterations_each_with_its_own_probability() -> None:
    """Exact binomial test of 5,000 iterations for each agent, seed 2: false alarm below 1e-5 each."""
    models: list[Availability] = [Bernoulli(0.1, 1.0), Always(), Bernoulli(0.6, 3.0)]
    length, n = absences(models.__getitem__, Streams(2)), 5_000
    lengths = [[length(agent, step) for step in range(n)] for agent in range(3)]
    assert [set(own) for own in lengths] == [{0.0, 1.0}, {0.0}, {0.0, 3.0}]
    for agent, p in ((0, 0.1), (2, 0.6)):
        assert stats.binomtest(n - lengths[agent].count(0.0), n, p).pvalue > 1e-5


def test_a_markov_agents_presences_and_absences_are_exponential() -> None:
    """Kolmogorov-Smirnov on 10,000 lengths of each kind, seed 3: false alarm below 1e-5 each."""
    times = np.array(list(islice(Markov(10.0, 2.0).changes(0, np.random.default_rng(3)), 20_001)))
    lengths = np.diff(times)
    assert stats.kstest(lengths[0::2], stats.expon(scale=2.0).cdf).pvalue > 1e-5
    assert stats.kstest(lengths[1::2], stats.expon(scale=10.0).cdf).pvalue > 1e-5


@pytest.mark.parametrize("time", [0.0, 0.7, 40.0])
def test_markov_agents_are_there_with_the_stationary_probability_from_the_beginning(time: float) -> None:
    """Exact binomial test of 4,000 independent agents, seed 4: false alarm below 1e-5 for each time."""
    model, n, present = Markov(3.0, 1.0), 4_000, 0
    for agent in range(n):
        changes = model.changes(agent, Streams(4).of(agent).rng("availability"))
        present += next(number for number, change in enumerate(changes) if change > time) % 2 == 0
    assert stats.binomtest(present, n, 0.75).pvalue > 1e-5


def test_a_markov_agents_share_of_presence_over_a_long_time_is_the_stationary_one() -> None:
    """20,000 cycles, seed 5; normal approximation of the ratio of sums: false alarm below 1e-5."""
    times = np.array(list(islice(Markov(3.0, 1.0).changes(0, np.random.default_rng(5)), 40_001)))
    away, there = np.diff(times)[0::2], np.diff(times)[1::2]
    share = there.sum() / (times[-1] - times[0])
    spread = np.std(there - 0.75 * (there + away)) / np.mean(there + away) / np.sqrt(len(there))
    assert abs(share - 0.75) < 4.5 * spread


@pytest.mark.parametrize(
    "model",
    [
        Daily(zones=1),
        Daily(),
        Daily(24.0, 8.0, 0.0, 24),
        Daily(24.0, 8.0, 16.0, 1),
        Daily(10.0, 9.5, 9.0, 3),
        Daily(1.0, 0.25, 0.875, 8),
    ],
    ids=str,
)
def test_daily_agents_are_there_when_their_local_clock_says_so(model: Daily) -> None:
    grid = (np.arange(2_000) + 0.5) * 5 * model.day / 2_000
    zones = set()
    for agent in range(12):
        zone = int(Streams(1).of(agent).rng("availability").integers(model.zones))
        zones.add(zone)
        local = (grid + zone * model.day / model.zones) % model.day
        expected = (local - model.start) % model.day < model.present
        changes = list(islice(model.changes(agent, Streams(1).of(agent).rng("availability")), 14))
        assert changes == sorted(set(changes)) and changes[-1] > grid[-1]
        assert (_there(changes, grid) == expected).all()
    assert len(zones) > 1 or model.zones == 1


def test_an_agent_that_is_there_all_day_never_leaves_and_one_in_its_window_at_first_does_not_leave_at_once() -> None:
    rng = np.random.default_rng(1)
    assert list(Daily(24.0, 24.0, 7.0, 5).changes(0, rng)) == []
    assert list(islice(Daily(24.0, 8.0, 22.0, 1).changes(0, rng), 4)) == [6.0, 22.0, 30.0, 46.0]
    assert list(islice(Daily(1.0, 0.25, 0.875, 1).changes(0, rng), 3)) == [0.125, 0.875, 1.125]
    assert list(islice(Daily(24.0, 2.0, 22.0, 1).changes(0, rng), 4)) == [0.0, 22.0, 24.0, 46.0]
    assert list(islice(Daily(24.0, 8.0, 0.0, 1).changes(0, rng), 4)) == [8.0, 24.0, 32.0, 48.0]


def test_times_are_those_of_their_numbers_in_whatever_order_they_are_asked_for() -> None:
    times = Ascending(lambda: iter([1.0, 2.0, 4.0, 8.0]))
    assert [times.at(number) for number in (3, 2, 0, 1, 1, 5, 4, 3)] == [8.0, 4.0, 1.0, 2.0, 2.0, inf, inf, 8.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=30), st.sampled_from(MODELS))
@settings(max_examples=60)
def test_a_change_is_the_same_whatever_was_asked_before(asked: list[tuple[int, int]], model: Availability) -> None:
    used = Changes(lambda agent: model, Streams(7))
    for agent, number in asked:
        assert used(agent, number) == Changes(lambda agent: model, Streams(7))(agent, number)


@pytest.mark.parametrize("model", [Markov(), Daily()], ids=lambda model: model.model)
def test_changes_ascend_and_agents_do_not_share_luck(model: Availability) -> None:
    change = Changes(lambda agent: model, Streams(8))
    own = [[change(agent, number) for number in range(300)] for agent in range(6)]
    for times in own:
        assert times[0] >= 0.0
        assert all(one < other for one, other in zip(times, times[1:], strict=False))
    assert len({tuple(times) for times in own}) > 2


def test_each_agent_has_its_own_model_and_what_never_changes_changes_at_infinity() -> None:
    models: list[Availability] = [Always(), Markov(), Bernoulli(0.5)]
    change = Changes(models.__getitem__, Streams(1))
    assert [change(0, number) for number in (5, 0)] == [inf, inf]
    assert change(2, 0) == inf
    assert change(1, 40) == list(islice(Markov().changes(1, Streams(1).of(1).rng("availability")), 41))[40]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(1.0), r"^probability must be in \[0, 1\), not 1.0$"),
        (lambda: Bernoulli(absence=0.0), "^absence must be above 0 and finite, not 0.0$"),
        (lambda: Markov(present=0.0), "^present must be above 0 and finite, not 0.0$"),
        (lambda: Markov(absent=-2.0), "^absent must be above 0 and finite, not -2.0$"),
        (lambda: Daily(day=0.0), "^day must be above 0 and finite, not 0.0$"),
        (lambda: Daily(present=25.0), "^present must be above 0 and at most a day of 24.0, not 25.0$"),
        (lambda: Daily(start=24.0), "^start must be at least 0 and below a day of 24.0, not 24.0$"),
        (lambda: Daily(zones=0), "^zones must be at least 1, not 0$"),
    ],
)
def test_a_wrong_setting_is_named_with_what_came_and_what_would_do(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_catalogue_lists_every_model_by_its_name() -> None:
    assert list(AVAILABILITIES) == ["always", "bernoulli", "markov", "daily", "trace"]
    assert [declared.model for declared in AVAILABILITIES.values()] == list(AVAILABILITIES)


def test_within_a_span_an_agent_comes_and_goes_as_its_model_says_and_is_away_outside() -> None:
    for seed, (begin, end) in enumerate([(0.0, 7.5), (3.0, inf), (4.0, 30.0), (2.0, 2.5), (0.0, inf)]):
        alone = list(takewhile(lambda time: time < 60.0, Markov(4.0, 2.0).changes(0, np.random.default_rng(seed))))
        clipped = Within(Markov(4.0, 2.0), begin, end).changes(0, np.random.default_rng(seed))
        inside = list(takewhile(lambda time: time < 60.0, clipped))
        for now in np.linspace(0.01, 59.99, 999):  # there: as many changes before as make an even number
            there = bisect(alone, now) % 2 == 0
            assert (bisect(inside, now) % 2 == 0) == (there and begin <= now < end)


def test_an_agent_that_is_always_there_joins_once_and_leaves_once() -> None:
    def changes(begin: float, end: float) -> list[float]:
        return list(Within(Always(), begin, end).changes(0, np.random.default_rng(0)))

    assert changes(2.0, 5.0) == [0.0, 2.0, 5.0]
    assert changes(0.0, 5.0) == [5.0]
    assert changes(2.0, inf) == [0.0, 2.0, inf]
    assert never_before_steps(Within(Always())) and not never_before_steps(Within(Bernoulli()))
