"""The simulator against queueing and renewal theory, and against clockwork that is computed in another way.

Every statistical test compares a mean with its exact law: a value that is `Z` standard errors away is an alarm. By the normal
approximation that happens by chance once in 60,000 times for each comparison; seeds are fixed, so it happens always or never.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from scipy import stats
from small_runs import Setting
from talking import Talk

from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import Always, Markov
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.environment import Ways
from fedbo.coordinator.environment.faults import Crash, Hang, Loss, Slow
from fedbo.coordinator.environment.timing import Constant, Cost, DecisionTimeModel, Exponential, Lognormal, SpeedClasses
from fedbo.coordinator.kernel.exchange import Barrier, Deadline, Exchange, FirstK, Immediate
from fedbo.settings.durations import DurationLaw

Z = 4.3


def tidy(exchange: Exchange | None = None, **changes: Any) -> Setting:
    """Give a world in which only evaluations take time, one to a step."""
    plain = Setting(Talk(), agents=4, initial=1, exchange=exchange or Immediate(), evaluation=Exponential(2.0))
    return replace(plain, **{"latency": Constant(0.0), "availability": Always(), **changes})


def agrees(values: Any, expected: float) -> None:
    """Check the mean of independent values against its law."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - expected) < Z * error, f"{values.mean():.4f} ± {error:.4f} is not {expected:.4f}"


def batches(values: Any, count: int = 40) -> list[float]:
    """Give the means of long stretches, which are nearly independent."""
    return [float(np.mean(batch)) for batch in np.array_split(np.asarray(values, dtype=float), count)]


def lengths(ran: Any) -> list[float]:
    closes = [record.time for record in ran.of("round")]
    return [later - earlier for earlier, later in pairwise([0.0, *closes])]


def harmonic(n: int) -> float:
    return sum(1 / i for i in range(1, n + 1))


# Exchange modes with exponential evaluation times.


@pytest.mark.parametrize("n", [2, pytest.param(7, marks=pytest.mark.long)])
def test_a_barrier_waits_for_the_slowest_of_n(n: int) -> None:
    """The mean of the largest of n exponential times is mean times H_n; rounds are independent. Seed 3, |z| < 4.3."""
    agrees(lengths(tidy(Barrier(), agents=n, iterations=600, seed=3).run()), 2.0 * harmonic(n))


@pytest.mark.long
@pytest.mark.parametrize("k", [3, *(pytest.param(k, marks=pytest.mark.long) for k in (1, 6))])
def test_with_late_messages_carried_a_round_waits_for_the_kth_of_n(k: int) -> None:
    """All n work whenever a round opens, and exponential times have no memory: mean (H_n - H_{n-k}). Seed 4, |z| < 4.3."""
    ran = tidy(FirstK(k, "carry"), agents=6, iterations=350, seed=4).run()
    first_done = min(record.time for record in ran.of("done"))  # from then on fewer work
    before = [r.time for r in ran.of("round") if r.time < first_done]
    assert len(before) > 280
    agrees(np.diff([0.0, *before]), 2.0 * (harmonic(6) - harmonic(6 - k)))


@cache
def race(n: int, k: int, b: int) -> tuple[float, dict[int, float]]:
    """Give the mean length in units of 1 of a round that b begin while n - b are late, and the law of who begins the next.

    Each of those who have not come is the next with the same chance; the late ones do not count. The round closes when k of
    the b have come, or all n.
    """
    mean, law, todo = 0.0, defaultdict(float), {(0, 0): 1.0}
    while todo:
        left: dict[tuple[int, int], float] = defaultdict(float)
        for (came, late), chance in todo.items():
            if came == k or came + late == n:
                law[came + late] += chance
                continue
            waiting = n - came - late
            mean += chance / waiting
            if came < b:
                left[came + 1, late] += chance * (b - came) / waiting
            if late < n - b:
                left[came, late + 1] += chance * (n - b - late) / waiting
        todo = left
    return mean, law


@pytest.mark.long
@pytest.mark.parametrize("k", [2, pytest.param(4, marks=pytest.mark.long)])
def test_with_late_messages_dropped_a_round_waits_for_the_kth_of_those_who_began_it(k: int) -> None:
    """A Markov chain in the number of those who begin a round, solved exactly. Seed 5, means of 40 batches, |z| < 4.3."""
    n = 6
    chain = np.zeros((n + 1, n + 1))
    for b in range(1, n + 1):
        for later, chance in race(n, k, b)[1].items():
            chain[b, later] += chance
    stationary = np.linalg.matrix_power(chain[1:, 1:], 4096)[-1]
    expected = 2.0 * sum(stationary[b - 1] * race(n, k, b)[0] for b in range(1, n + 1))
    ran = tidy(FirstK(k), agents=n, iterations=500, seed=5).run()
    first_done = min(record.time for record in ran.of("done"))
    before = [r.time for r in ran.of("round") if r.time < first_done]
    assert len(before) > 350
    agrees(batches(np.diff([0.0, *before])[20:]), expected)


@pytest.mark.long
def test_without_waiting_the_throughput_is_that_of_independent_agents() -> None:
    """Arrivals by time t are Poisson with mean n t / mean; exact two-sided tail, seed 6: false alarm below 1e-4."""
    ran = tidy(agents=8, iterations=10_000, until=500.0, seed=6).run()
    expected, came = 8 * 500.0 / 2.0, len(ran.of("arrived"))
    assert 5e-5 < stats.poisson(expected).cdf(came) < 1 - 5e-5
    gaps = np.diff([r.time for r in ran.of("arrived")])
    assert stats.kstest(gaps, stats.expon(scale=2.0 / 8).cdf).pvalue > 1e-4


def test_at_a_deadline_those_have_reported_whose_time_was_short_enough() -> None:
    """Binomial with 1 - exp(-D / mean) of 800 agents; exact two-sided tail, seed 7: false alarm below 1e-4."""
    ran = tidy(Deadline(1.5), agents=800, iterations=2, until=1.6, seed=7).run()
    (close,) = ran.of("round")
    assert close.time == 1.5
    came = sum(record.time <= 1.5 for record in ran.of("arrived"))
    assert 5e-5 < stats.binom(800, 1 - math.exp(-1.5 / 2.0)).cdf(came) < 1 - 5e-5
    assert len([r for r in ran.of("started") if r.time == 1.5]) == came, "others than the reporters were answered"


# Availability.


def presences(ran: Any, agent: int, until: float) -> float:
    """Give how long an agent was there."""
    there, since, total = True, 0.0, 0.0
    for record in ran.records:
        if record.agent == agent and record.kind == "absent":
            total, there = total + record.time - since, False
        elif record.agent == agent and record.kind == "returned":
            since, there = record.time, True
    return total + (until - since if there else 0.0)


@pytest.mark.long
def test_agents_that_come_and_go_are_there_for_the_stationary_share() -> None:
    """A share of present / (present + absent) from the first moment on; 60 independent agents, seed 8, |z| < 4.3."""
    until = 200.0
    ran = tidy(agents=60, iterations=10**6, until=until, availability=Markov(3.0, 1.5), algorithm=SILENT, seed=8).run()
    agrees([presences(ran, agent, until) / until for agent in range(60)], 3.0 / 4.5)


def test_steps_that_are_resumed_advance_exactly_while_their_agent_is_there() -> None:
    """With steps of length 1 an agent has done as many as it was there for, and they go at the stationary share of the rate."""
    until = 200.0
    world = {"availability": Markov(3.0, 1.5), "evaluation": Constant(1.0), "algorithm": SILENT}
    ran = tidy(agents=30, iterations=10**6, until=until, seed=8, **world).run()
    done = Counter(record.agent for record in ran.of("finished"))
    for agent in range(30):
        assert done[agent] == math.floor(presences(ran, agent, until) + 1e-9)
    agrees([done[agent] / until + 0.5 / until for agent in range(30)], 3.0 / 4.5)


# The network.


@pytest.mark.parametrize("load", [pytest.param(0.3, marks=pytest.mark.long), 0.8])
def test_the_link_of_the_coordinator_is_an_m_d_1_queue(load: float) -> None:
    """Mean wait rho / (2 mu (1 - rho)), Pollaczek and Khinchine. Seed 9, means of 40 batches, |z| < 4.3."""
    n, mean = 10, 2.0
    mu = n / mean / load
    ran = tidy(agents=n, iterations=10**6, until=500.0, world={"link": 8 * mu}, seed=9).run()
    sent = {(r.agent, r.step): r.time for r in ran.of("sent")}
    waits = [r.time - sent[r.agent, r.step] - 1 / mu for r in ran.of("arrived")]
    assert min(waits) > -1e-9 and len(waits) > 2_200
    agrees(batches(waits[500:]), load / (2 * mu * (1 - load)))


@pytest.mark.parametrize("bandwidth", [64.0, Ways(64.0, 16.0), Ways(64.0, None)])
def test_bytes_take_their_time_on_each_link(bandwidth: float | Ways) -> None:
    """Up: latency, bytes over the agent's bandwidth, bytes over the link; down: latency and bytes over the bandwidth."""
    slow = 1 / 64 if bandwidth == 64.0 else 1 / 16 if bandwidth.down else 0.0  # type: ignore[union-attr]
    times = {}
    for up, down in ((6, 6), (42, 6), (42, 42)):  # M, and M + M^2 for M = 6
        algorithm = Talk(up=up, down=down)
        world = {"latency": Constant(0.25), "models": {"bandwidth": bandwidth}, "world": {"link": 32.0}}
        ran = tidy(Barrier(), agents=1, iterations=4, evaluation=Constant(1.0), algorithm=algorithm, **world).run()
        there, back = 0.25 + 8 * up / 64 + 8 * up / 32, 0.25 + 8 * down * slow
        started = [record.time for record in ran.of("started")]
        assert np.diff(started) == pytest.approx(1.0 + there + back)
        times[up, down] = ran.outcome.time
        assert {record.bytes for record in ran.of("sent")} == {8 * up}
        assert {record.bytes for record in ran.of("delivered")} == {8 * down}
    assert times[42, 6] - times[6, 6] == pytest.approx(5 * 36 * 8 * (1 / 64 + 1 / 32))
    assert times[42, 42] - times[42, 6] == pytest.approx(4 * 36 * 8 * slow)


@pytest.mark.long
@pytest.mark.parametrize("p", [pytest.param(0.2, marks=pytest.mark.long), 0.7])
def test_the_transmissions_of_a_message_are_geometric(p: float) -> None:
    """Mean 1 / (1 - p) and P(1) = 1 - p; the time to arrive is theirs. Seed 10, |z| < 4.3 for each of the two."""
    world = {"retry": 0.75, "attempts": 10_000, "plan": (Loss(tuple(range(20)), p, direction="up"),)}
    ran = tidy(agents=20, iterations=100, latency=Constant(0.25), world=world, seed=10).run()
    sent = defaultdict(list)
    for record in ran.of("sent"):
        sent[record.agent, record.step].append(record.time)
    arrived = {(record.agent, record.step): record.time for record in ran.of("arrived")}
    assert arrived.keys() == sent.keys() and len(arrived) == 20 * 101
    for key, times in sent.items():
        assert np.diff(times) == pytest.approx(0.75)
        assert arrived[key] == pytest.approx(times[0] + 0.75 * (len(times) - 1) + 0.25)
    counts = [len(times) for times in sent.values()]
    agrees(counts, 1 / (1 - p))
    agrees([count == 1 for count in counts], 1 - p)


@pytest.mark.long
def test_a_message_is_given_up_after_so_many_transmissions() -> None:
    """The share p**3 of 2,020 messages; exact binomial tail, seed 11: false alarm below 1e-4."""
    plan = (Loss(tuple(range(20)), 0.6, direction="up"),)
    ran = tidy(agents=20, iterations=100, world={"attempts": 3, "plan": plan}, seed=11).run()
    given_up = [record for record in ran.of("rejected") if (record.reason, record.attempts) == ("given_up", 3)]
    assert len(given_up) + len(ran.of("arrived")) == 20 * 101
    assert 5e-5 < stats.binom(20 * 101, 0.6**3).cdf(len(given_up)) < 1 - 5e-5


# Crashes.


@pytest.mark.parametrize("law", ["constant", "exponential", "together"])
def test_an_agent_that_crashes_at_a_rate_is_up_as_in_an_alternating_renewal_process(law: str) -> None:
    """A rate strikes only what is up. Where restarts take r, an agent is up at time t after n outages with the probability of n
    strikes in the up time t - n r; where they are exponential, with that of a Markov chain of two states. 400 agents at time
    12, exact binomial tail; `together`, 100 racks of four: all of a rack are up or none. Seed 12, false alarm below 1e-4."""
    rate, until, mean = 0.4, 12.0, 2.0
    racks = [tuple(range(first, first + 4)) for first in range(0, 400, 4)] if law == "together" else [tuple(range(400))]
    restart = mean if law == "constant" else DurationLaw("exponential", mean)
    plan = tuple(Crash(rack, rate=rate, restart=restart, together=law == "together") for rack in racks)
    ran = tidy(agents=400, iterations=10**6, until=until, world={"plan": plan}, algorithm=SILENT, seed=12).run()
    down = Counter({agent: 0 for agent in range(400)})
    down.update(record.agent for record in ran.of("crashed"))
    down.subtract(record.agent for record in ran.of("restarted"))
    assert set(down.values()) <= {0, 1}, "a strike hit who was down"
    if law == "constant":
        chance = sum(stats.poisson(rate * (until - n * mean)).pmf(n) for n in range(int(until / mean) + 1))
    else:
        chance = (1 + rate * mean * math.exp(-(rate + 1 / mean) * until)) / (1 + rate * mean)
    if law == "together":
        assert all(len({down[agent] for agent in rack}) == 1 for rack in racks)
    units = [rack[0] for rack in racks] if law == "together" else range(400)
    assert 5e-5 < stats.binom(len(units), chance).cdf(sum(not down[unit] for unit in units)) < 1 - 5e-5


@pytest.mark.parametrize("state", [pytest.param("kept", marks=pytest.mark.long), "lost"])
def test_a_step_that_is_begun_again_after_every_crash_takes_as_long_as_renewal_theory_says(state: str) -> None:
    """(e^(rate L) - 1) (1 / rate + r) for length L and restart r: e^(rate L) - 1 crashes for each step, and as many mean times
    between them, on average. Seed 13, |z| < 4.3."""
    rate, length, restart, steps = 0.5, 1.5, 0.6, 40
    plan = (Crash(tuple(range(50)), rate=rate, state=state, restart=restart),)
    world = {"evaluation": Constant(length), "world": {"plan": plan}, "algorithm": SILENT}
    ran = tidy(agents=50, iterations=steps - 1, seed=13, **world).run()
    ends = [record.time for record in ran.of("done")]
    assert len(ends) == 50
    agrees(np.array(ends) / steps, math.expm1(rate * length) * (1 / rate + restart))


@pytest.mark.parametrize("model", ["exponential", "lognormal", "gamma", "pareto"])
def test_a_crash_lasts_as_its_law_says(model: str) -> None:
    """Kolmogorov-Smirnov of all restarts that ended against SciPy's law of the same settings; seed 14, false alarm 1e-4."""
    plan = (Crash(tuple(range(60)), at=tuple(10.0 * n for n in range(10)), restart=DurationLaw(model, 0.5)),)
    ran = tidy(agents=60, iterations=10**6, until=100.0, world={"plan": plan}, algorithm=SILENT, seed=14).run()
    began = {(record.agent, record.time // 10): record.time for record in ran.of("crashed")}
    lasted = [
        end - began[key] for record in ran.of("restarted") if (key := (record.agent, (end := record.time) // 10)) in began
    ]
    law = {
        "exponential": stats.expon(scale=0.5),
        "lognormal": stats.lognorm(1.0, scale=0.5 * math.exp(-0.5)),
        "gamma": stats.gamma(2.0, scale=0.25),
        "pareto": stats.pareto(2.5, scale=0.3),
    }[model]
    assert len(lasted) > 590 and stats.kstest(lasted, law.cdf).pvalue > 1e-4


# Clockwork: paces and pauses.


def clockwork(parts: list[float], begun: float, events: list[tuple[float, float, float]]) -> list[float]:
    """Give when each part of some work ends, by walking from one change of pace to the next.

    `events` are (start, duration, factor): so many times slower meanwhile, or not at all where the factor is infinite.
    """
    changes = sorted({time for start, duration, _ in events for time in (start, start + duration) if time > begun})
    ends, now, done, goals = [], begun, 0.0, list(np.cumsum(parts))
    for until in [*changes, math.inf]:
        middle = (now + until) / 2 if until < math.inf else now + 1.0
        pace = math.prod(1 / factor for start, duration, factor in events if start < middle < start + duration)
        while goals and pace > 0 and done + (until - now) * pace > goals[0]:
            now, done = now + (goals[0] - done) / pace, goals.pop(0)
            ends.append(now)
        # An end and a change at the same moment may come in either order.
        assume(not goals or until == math.inf or abs(done + (until - now) * pace - goals[0]) > 1e-9)
        done, now = done + (until - now) * pace if until < math.inf else done, until
    return ends


moments = st.floats(0.0, 9.0).map(lambda time: round(time, 3))
stretches = st.floats(0.05, 4.0).map(lambda time: round(time, 3))
paces = st.lists(st.tuples(moments, stretches, st.sampled_from([1.0, 1.5, 2.0, 5.0, math.inf])), max_size=5)


@profile(derandomize=True, database=None, max_examples=50)
@given(
    paces,
    st.integers(1, 4),
    st.sampled_from([DecisionTimeModel(), DecisionTimeModel(0.4, 1.0)]),
    st.sampled_from([Constant(1.0), Lognormal(1.0, 0.6)]),
)
def test_slow_and_hung_agents_end_each_evaluation_when_a_clockwork_does(events, initial, decision, evaluation) -> None:
    """Steps of several points with decisions, slowed and stopped by faults that overlap, against a walk over their changes."""
    plan = tuple(
        Hang((0,), at=start, duration=long) if factor == math.inf else Slow((0,), at=start, duration=long, factor=factor)
        for start, long, factor in events
    )
    world = {"models": {"decision": decision}, "world": {"plan": plan}, "algorithm": Talk(queries=2), "evaluation": evaluation}
    ran = tidy(agents=1, initial=initial, iterations=2, seed=14, **world).run()
    draw = durations(lambda agent: evaluation, "evaluation time", Streams(14))
    begun, number = 0.0, 0
    if any(start == 0.0 and factor == math.inf for start, _, factor in events):
        begun = ran.of("started")[0].time  # it could not even begin
    for step, count in enumerate((initial, 2, 2)):
        parts = [decision(number)] + [draw(0, number + place) for place in range(count)]
        ends = clockwork(parts, begun, [event for event in events])
        rows = [row for row in ran.rows if row.step == step]
        assert [row.started for row in rows] == pytest.approx([ends[0], *ends[1:-1]] if parts[0] else [begun, *ends[1:-1]])
        assert [row.finished for row in rows] == pytest.approx(ends[1:])
        begun, number = ends[-1], number + count


def test_a_pause_in_a_slow_stretch_ends_a_step_where_arithmetic_says() -> None:
    """Ten units of work: 2 done by 2, 1 more by 5 at a third of the pace, nothing until 7, 1 more by 10, the other 6 by 16."""
    plan = (Slow((0,), at=2.0, duration=8.0, factor=3.0), Hang((0,), at=5.0, duration=2.0))
    ran = tidy(agents=1, iterations=1, evaluation=Constant(10.0), world={"plan": plan}).run()
    assert [record.time for record in ran.of("finished")] == pytest.approx([16.0, 26.0])


# Lengths.

SILENT = entry("random").make()


def test_a_decision_takes_as_long_as_the_observations_say() -> None:
    models = {"decision": DecisionTimeModel(0.01, 1.7)}
    ran = tidy(algorithm=Talk(queries=2), initial=3, iterations=5, models=models, seed=15).run()
    started = {(record.agent, record.step): record.time for record in ran.of("started")}
    firsts = [row for row in ran.rows if row.query == 0]
    assert len(firsts) == 4 * 6
    for row in firsts:
        t_n = row.t_n - 1
        assert row.started == pytest.approx(started[row.agent, row.step] + 0.01 * t_n**1.7, abs=1e-12)


def test_a_class_of_speed_multiplies_every_evaluation_time_of_its_agents() -> None:
    speeds = SpeedClasses((1.0,)), SpeedClasses((1.0, 2.5))
    plain, classed = (tidy(agents=40, models={"speed": speed}).run() for speed in speeds)
    factors: dict[int, set[float]] = defaultdict(set)
    for before, after in zip(plain.rows, classed.rows, strict=True):
        factors[before.agent].add(round((after.finished - after.started) / (before.finished - before.started), 9))
    assert all(len(found) == 1 for found in factors.values())
    assert {factor for found in factors.values() for factor in found} == {1.0, 2.5}


@pytest.mark.parametrize(("limit", "pace"), [(None, 3.0), (3.9, 3.0), (None, 1.0)])
def test_evaluations_last_as_long_as_their_points_cost(limit: float | None, pace: float) -> None:
    from fedbo.objectives.functions import Quadratic

    class Dear(Setting):
        def task(self):
            return replace(super().task(), federation=Quadratic(agents=4, cost_spread=2.0))

    world = {"latency": Constant(0.1), "availability": Always(), "models": {"speed": SpeedClasses((pace,))}}
    ran = Dear(Talk(), 4, initial=2, evaluation=Cost(0.5), policy=Policy(0, "drop", limit), **world).run()
    assert len(ran.rows) == 4 * (2 + 6)
    expected = [0.5 * pace * (1.0 + 2.0 * np.mean(row.x)) for row in ran.rows]
    assert [row.finished - row.started for row in ran.rows] == pytest.approx([min(cost, limit or 99.0) for cost in expected])
    assert [row.error is not None for row in ran.rows] == [cost > (limit or 99.0) for cost in expected]


# Evaluations that take too long.


def limited(policy: Policy, **changes: Any) -> Any:
    algorithm = Talk(queries=2)
    return tidy(algorithm=algorithm, initial=2, iterations=40, policy=policy, seed=16, **changes).run(), algorithm


def test_an_evaluation_that_takes_too_long_ends_at_the_limit_and_has_failed() -> None:
    ran, algorithm = limited(Policy(0, "drop", 3.0))
    draw = durations(lambda agent: Exponential(2.0), "evaluation time", Streams(16))
    number: Counter[int] = Counter()
    failed = 0
    for row in ran.rows:
        length = draw(row.agent, number[row.agent])
        number[row.agent] += 1
        assert row.finished - row.started == pytest.approx(min(length, 3.0))
        assert (row.error is not None) == (length > 3.0) == math.isnan(row.outcome.value)
        assert row.error is None or "took longer than time_limit = 3" in row.error
        failed += row.error is not None
    assert failed == len(ran.of("failed")) > 30
    for agent in range(4):
        good = [row for row in ran.rows if row.agent == agent and row.error is None]
        assert algorithm.ends[agent, 40].told == tuple(row.outcome.value for row in good)
        assert [row.t_n for row in good] == list(range(1, len(good) + 1))


def test_a_retry_draws_a_new_length_and_comes_after_the_other_points() -> None:
    ran, _ = limited(Policy(2, "drop", 3.0))
    first_tries, retries = draws(16), draws(16, " again")
    number: Counter[tuple[int, bool]] = Counter()
    steps = defaultdict(list)
    for row in ran.rows:
        steps[row.agent, row.step].append(row)
        again = len(steps[row.agent, row.step]) > 2
        length = (retries if again else first_tries)(row.agent, number[row.agent, again])
        number[row.agent, again] += 1
        assert row.finished - row.started == pytest.approx(min(length, 3.0))
    retried = 0
    for rows in steps.values():
        assert all(later.started == pytest.approx(earlier.finished) for earlier, later in pairwise(rows))
        retried += len(rows) - 2
        todo = [0, 1]
        for _ in range(3):
            tried, rows = rows[: len(todo)], rows[len(todo) :]
            assert [row.query for row in tried] == todo
            todo = [row.query for row in tried if row.error]
        assert not rows
    assert retried > 30


def test_a_point_that_failed_for_good_is_told_as_the_worst_value_seen() -> None:
    ran, algorithm = limited(Policy(1, "avoid", 2.0))
    swapped = 0
    for agent in range(4):
        worst, told = math.inf, []
        for step in range(41):
            rows = [row for row in ran.rows if (row.agent, row.step) == (agent, step)]
            good = {row.query: row.outcome.value for row in rows if row.error is None}
            worst = min([worst, *good.values()])
            points = [good.get(point, worst) for point in range(2)]
            told += [value for value in points if value < math.inf]
            swapped += len(good) < 2
        assert algorithm.ends[agent, 40].told == tuple(told)
    assert swapped > 20


def test_a_run_whose_policy_is_to_stop_ends_with_the_agent_and_the_point() -> None:
    with pytest.raises(EvaluationError, match=r"agent \d at x = \[.*\]: took longer than time_limit = 3"):
        limited(Policy(0, "stop", 3.0))


def test_a_retry_in_a_slow_stretch_is_slow_too() -> None:
    """A point fails at 4 units of work, 3 at full and 1 at half pace with a pause of 1; then comes the retry."""
    wanted = [False, False, True]
    seed = next(
        s for s in range(10**6) if [draws(s)(0, n) > 4.0 for n in range(3)] == wanted and draws(s, " again")(0, 0) < 4.0
    )
    first, second, again = draws(seed)(0, 0), draws(seed)(0, 1), draws(seed, " again")(0, 0)
    start = first + second
    pauses = (Hang((0,), at=start + 4.5, duration=1.0), Hang((0,), at=start + 6.0 + again, duration=0.5))
    plan = (Slow((0,), at=start + 3.0, duration=100.0, factor=2.0), *pauses)
    world = {"world": {"plan": plan}, "policy": Policy(1, "drop", 4.0), "initial": 2, "algorithm": Talk(queries=1)}
    ran = tidy(agents=1, iterations=1, seed=seed, **world).run()
    *_, failed, good = ran.rows
    assert (failed.started, failed.finished) == pytest.approx((start, start + 3.0 + 2.0 + 1.0))
    assert (good.started, good.finished) == pytest.approx((failed.finished, failed.finished + 2 * again + 0.5))


def draws(seed: int, again: str = "") -> Any:
    return durations(lambda agent: Exponential(2.0), f"evaluation time{again}", Streams(seed))
