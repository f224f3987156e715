"""Copies of slow evaluations on a cluster against their law and against an own simulation, event by event."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from small_runs import Ran
from test_queueing_theory import equal, one_each

from fedbo.coordinator.environment.measured import Empirical
from fedbo.coordinator.environment.timing import Exponential, Lognormal

FALSE_ALARM = 1e-4
Draw = Callable[[np.random.Generator], float]


def durations(ran: Ran) -> np.ndarray:
    """Return how long each evaluation took from its first start, in the order of the starts."""
    first = dict[int, float]()
    for event in ran.of("placed"):
        first.setdefault(event.agent, event.time)
    ends = {row.agent: row.finished for row in ran.rows if row.step == 0}
    return np.array([ends[agent] - first[agent] for agent in sorted(first, key=first.__getitem__)])


def work(ran: Ran) -> float:
    """Return the time that all workers were busy."""
    return sum(event.time for event in ran.of("released")) - sum(event.time for event in ran.of("placed"))


def test_slow_ones_of_two_lengths_are_copied_after_twice_the_short_one(tmp_path: Path) -> None:
    """A share p takes 1 and the others 10; these are copied at 2, so (1 - p) p end at 3 and (1 - p)^2 at 10.

    The rows have all work. The counts are compared by a chi-squared test.
    """
    path = tmp_path / "lengths.csv"
    path.write_text("duration\n" + "1.0\n" * 7 + "10.0\n" * 3)
    ran = one_each(tmp_path, equal(400, after=2.0, quantile=0.5), 4.0, Empirical(str(path)), 600, seed=4)
    took = durations(ran)[20:].round(6)
    found = [int((took == length).sum()) for length in (1.0, 3.0, 10.0)]
    assert sum(found) == len(took)
    law = np.array([0.7, 0.3 * 0.7, 0.3 * 0.3])
    assert stats.chisquare(found, law * len(took)).pvalue > FALSE_ALARM
    for row in ran.rows:
        copied = None if row.copied is None else round(row.copied, 6)
        assert (round(row.finished - row.started, 6), copied) in {(1.0, None), (1.0, 3.0), (10.0, 8.0), (10.0, None)}
    assert work(ran) == pytest.approx(sum(row.finished - row.started + (row.copied or 0.0) for row in ran.rows))


def simulated(draw: Draw, after: float, quantile: float, count: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Simulate evaluations that come at rate 4 and never wait; return how long each took, and the work of all."""
    begun, copied, ended, took, work = dict[int, float](), dict[int, float](), list[float](), dict[int, float](), 0.0
    events = [(time, "comes", number, 0.0) for number, time in enumerate(rng.exponential(1 / 4, count).cumsum().tolist())]
    heapq.heapify(events)
    while events:
        now, kind, number, since = heapq.heappop(events)
        if kind == "comes":
            begun[number] = now
            heapq.heappush(events, (now + draw(rng), "ends", number, now))
        elif kind == "ends" and number not in took:
            took[number] = now - begun[number]
            ended.append(now - since)
            work += took[number] + now - copied.get(number, now)
        if len(ended) < 1 / (1 - quantile):
            continue
        limit = after * float(np.quantile(ended, quantile))
        alone = [one for one in begun if one not in took and one not in copied]
        for one in alone:
            if begun[one] + limit <= now:
                copied[one] = now
                heapq.heappush(events, (now + draw(rng), "ends", one, now))
            elif events[0][0] > begun[one] + limit:
                heapq.heappush(events, (begun[one] + limit, "is looked at", one, 0.0))
                break
    return np.array([took[one] for one in sorted(took)]), work


LAWS: dict[str, tuple[Exponential | Lognormal, Draw]] = {
    "exponential": (Exponential(1.0), lambda rng: float(rng.exponential())),
    "lognormal": (Lognormal(1.0, 1.2), lambda rng: float(rng.lognormal(-0.72, 1.2))),
}


@pytest.mark.parametrize("law", [pytest.param("exponential", marks=pytest.mark.long), "lognormal"])
@pytest.mark.parametrize(("after", "quantile"), [(1.5, 0.75), pytest.param(1.0, 0.5, marks=pytest.mark.long)])
def test_times_and_work_are_those_of_a_simulation(law: str, after: float, quantile: float, tmp_path: Path) -> None:
    """How long evaluations take (Kolmogorov-Smirnov) and all work (at 4.5 standard deviations of 20 simulations)."""
    timing, draw = LAWS[law]
    ran = one_each(tmp_path, equal(400, after=after, quantile=quantile), 4.0, timing, 300, seed=7)
    rng = np.random.default_rng(8)
    others = [simulated(draw, after, quantile, 300, rng) for _ in range(20)]
    assert stats.ks_2samp(durations(ran), np.concatenate([times for times, _ in others])).pvalue > FALSE_ALARM
    works = np.array([total for _, total in others])
    assert abs(work(ran) - works.mean()) < 4.5 * works.std()
    assert any(event.copy for event in ran.of("placed"))
    rows = sum(row.finished - row.started + (row.copied or 0.0) for row in ran.rows)
    assert work(ran) == pytest.approx(rows)
