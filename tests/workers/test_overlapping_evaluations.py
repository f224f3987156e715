"""Evaluations of one agent that overlap in virtual time: how many at once, for how long, and what interrupts them."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any

import numpy as np
import pytest
from small_runs import Ran, Setting

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.base import Algorithm
from fedbo.algorithms.catalog import entry
from fedbo.coordinator.environment.availability import Always, Markov
from fedbo.coordinator.environment.faults import Crash, Hang, Slow
from fedbo.coordinator.environment.timing import Constant, DecisionTimeModel, Lognormal

RANDOM: Algorithm = entry("random").make()
ALONE = Setting(RANDOM, agents=1, iterations=30, initial=2, availability=Always())
WIDE = Lognormal(1.0, 1.0)


def most_at_once(ran: Ran, agent: int = 0) -> int:
    """Give the largest number of an agent's evaluations that were under way at one time."""
    rows = [row for row in ran.rows if row.agent == agent]
    changes = sorted([(row.started, 1) for row in rows] + [(row.finished, -1) for row in rows])
    return int(np.cumsum([change for _, change in changes]).max())


def durations(ran: Ran) -> dict[tuple[int, int], float]:
    return {(row.step, row.query): row.finished - row.started for row in ran.rows}


@pytest.mark.parametrize("places", [2, 5, 16])
def test_an_agent_has_as_many_evaluations_under_way_as_it_may_each_as_long_as_one_after_the_other(places: int) -> None:
    alone = ALONE.run(evaluation=WIDE)
    ran = ALONE.run(evaluation=WIDE, policy=Policy(parallel=places))
    assert most_at_once(ran) == places
    assert durations(ran) == pytest.approx(durations(alone))
    assert ran.outcome.time < alone.outcome.time


def test_evaluations_end_when_list_scheduling_says_so() -> None:
    """Each next evaluation begins on the place that is free first, as in Graham's list scheduling."""
    alone = ALONE.run(evaluation=WIDE)
    lengths = [durations(alone)[row.step, row.query] for row in alone.rows]
    ran = ALONE.run(evaluation=WIDE, policy=Policy(parallel=4), initial=2)
    free, ends = [0.0] * 4, []
    for length in lengths:  # the third waits for the first value, as a decision does
        begins = max(heapq.heappop(free), min(lengths[:2]) if len(ends) >= 2 else 0.0)
        ends.append(begins + length)
        heapq.heappush(free, ends[-1])
    assert sorted(row.finished for row in ran.rows) == pytest.approx(sorted(ends))


def test_one_value_after_the_other_is_learned_in_the_order_of_the_ends() -> None:
    ran = ALONE.run(evaluation=WIDE, policy=Policy(parallel=4))
    by_end = sorted(ran.rows, key=lambda row: row.finished)
    assert [row.t_n for row in by_end] == list(range(1, len(by_end) + 1))


def test_synchronous_batches_begin_together_and_take_as_long_as_their_longest() -> None:
    ran = ALONE.run(evaluation=WIDE, policy=Policy(parallel=5, wait="all"), initial=5)
    begun = Counter(row.started for row in ran.rows)
    assert set(begun.values()) == {5}
    starts = sorted(begun)
    longest = [max(row.finished for row in ran.rows if row.started == start) for start in starts]
    assert longest[:-1] == pytest.approx(starts[1:])


def test_equal_durations_make_asynchronous_evaluations_synchronous() -> None:
    one, other = (
        ALONE.run(evaluation=Constant(1.0), policy=Policy(parallel=4, wait=wait), initial=4) for wait in ("any", "all")
    )
    assert sorted(row.started for row in one.rows) == sorted(row.started for row in other.rows)


def test_evaluations_beyond_the_places_are_decided_early_and_begin_when_others_end() -> None:
    ran = ALONE.run(evaluation=WIDE, policy=Policy(parallel=2, prefetch=1))
    assert most_at_once(ran) == 2
    decided = {event.step: event.time for event in ran.of("started")}
    assert sum(row.started > decided[row.step] for row in ran.rows) > 10


def test_a_decision_that_takes_time_holds_up_no_evaluation_that_is_under_way() -> None:
    models = {"decision": DecisionTimeModel(0.5, 0.0)}
    ran = ALONE.run(evaluation=Constant(1.0), policy=Policy(parallel=3), models=models)
    assert all(duration == pytest.approx(1.0) for duration in durations(ran).values())
    assert most_at_once(ran) == 2  # while one decision takes half as long as an evaluation, there are two to keep up with
    later = [row for row in ran.rows if row.step > 3]
    assert min(np.diff(sorted(row.started for row in later))) == pytest.approx(0.5)


def test_a_hang_stops_all_that_is_under_way_and_slowness_stretches_it() -> None:
    plain = ALONE.run(evaluation=Constant(2.0), policy=Policy(parallel=3), initial=3)
    hung = ALONE.run(evaluation=Constant(2.0), policy=Policy(parallel=3), initial=3, world={"plan": (Hang((0,), at=1.0),)})
    slow = Slow((0,), at=1.0, duration=2.0, factor=4.0)
    slowed = ALONE.run(evaluation=Constant(2.0), policy=Policy(parallel=3), initial=3, world={"plan": (slow,)})
    ends = [sorted(row.finished for row in ran.rows)[:6] for ran in (plain, hung, slowed)]
    assert ends == [[2.0] * 3 + [4.0] * 3, [3.0] * 3 + [5.0] * 3, [3.5] * 3 + [5.5] * 3]


@pytest.mark.parametrize(("length", "took"), [(1.0, 1.0), (1.5, 1.5), (2.0, 1.5)])
def test_a_time_limit_cuts_off_what_is_longer_and_nothing_else(length: float, took: float) -> None:
    ran = ALONE.run(evaluation=Constant(length), policy=Policy(0, "drop", parallel=3, time_limit=1.5))
    assert {(row.finished - row.started, row.error is None) for row in ran.rows} == {(took, length == took)}


def test_what_a_crash_cuts_short_is_begun_again_and_nothing_is_evaluated_twice() -> None:
    crashes = Crash((0,), rate=0.5, restart=0.5)
    ran = ALONE.run(evaluation=WIDE, policy=Policy(parallel=3), world={"plan": (crashes,)})
    assert len(ran.of("crashed")) > 2
    assert len({(row.step, row.query) for row in ran.rows}) == len(ran.rows) == 32
    for crash in ran.of("crashed"):
        assert not any(row.started < crash.time < row.finished for row in ran.rows)


def test_an_agent_that_forgets_begins_again_what_was_pending_at_its_checkpoint() -> None:
    crash = Crash((0,), at=4.3, restart=0.5, state="lost")
    ran = ALONE.run(evaluation=Constant(1.0), policy=Policy(parallel=3), initial=3, checkpoint=4, world={"plan": (crash,)})
    forgotten = [row for row in ran.rows if row.error]
    kept = [row for row in ran.rows if not row.error]
    assert forgotten and all(row.finished < 4.3 for row in forgotten)
    assert len({(row.step, row.query) for row in kept}) == len(kept)
    assert max(row.t_n for row in kept) == len(kept)
    assert {row.step for row in kept} >= set(range(20, 31))


def test_absences_neither_lose_nor_shorten_what_resumes_after_them() -> None:
    away = Markov(3.0, 1.0)
    alone = ALONE.run(evaluation=WIDE)
    ran = ALONE.run(evaluation=WIDE, policy=Policy(parallel=3), availability=away)
    assert len(ran.of("absent")) > 1
    assert durations(ran).keys() == durations(alone).keys()
    assert all(length >= durations(alone)[key] - 1e-9 for key, length in durations(ran).items())


@pytest.mark.parametrize("algorithm", ["ts", "gp_ei"])
@pytest.mark.parametrize("values", ["hallucinated", "constant_liar", "ignore"])
def test_what_is_supposed_of_points_under_way_changes_decisions_and_leaves_the_rest(algorithm: str, values: str) -> None:
    made: Any = entry(algorithm).make(refit=1000, pending_values=values)
    chosen = []
    for places in (1, 4):
        ran = Setting(made, agents=1, iterations=5, initial=4, availability=Always()).run(policy=Policy(parallel=places))
        chosen.append([row.u for row in sorted(ran.rows, key=lambda row: (row.step, row.query))])
    assert chosen[0][:4] == chosen[1][:4]
    assert chosen[0][4:] != chosen[1][4:]
    assert len({tuple(u) for u in chosen[1]}) == 9
