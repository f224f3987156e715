"""The studies of `examples/stragglers`, each against a small simulation of its own that shares no code with the package.

Each statistic of the replicates is compared with 300 simulated ones by Kolmogorov-Smirnov: 26 comparisons with a false alarm of
1e-4 each, seed 1 of the studies.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedbo

EXAMPLES = Path(__file__).parents[2] / "examples" / "stragglers"
Draw = Callable[[np.random.Generator], float]
SIMULATED = 300


def run(name: str, tmp_path: Path) -> list[list[dict[str, Any]]]:
    """Run an example; return the events of each replicate."""
    rows = fedbo.run(EXAMPLES / f"{name}.toml", out=tmp_path / name).events.to_pylist()
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["replicate"], []).append(row)
    return list(found.values())


def agree(what: str, measured: list[float], simulated: list[float]) -> None:
    """Compare a statistic of replicates with simulated ones; `pytest -s` shows both means."""
    test = stats.ks_2samp(measured, simulated)
    error = np.std(measured, ddof=1) / math.sqrt(len(measured))
    print(f"\n{what}: {np.mean(measured):.4g} ± {error:.2g}, simulated {np.mean(simulated):.4g}, p = {test.pvalue:.2g}")
    assert test.pvalue > 1e-4, f"{np.mean(measured):.4g} is measured on average and {np.mean(simulated):.4g} simulated"


# Rounds of agents that all work.


def rounds(
    rng: np.random.Generator, draw: Draw, rule: dict[str, Any], steps: int = 21, agents: int = 10
) -> tuple[float, float]:
    """Simulate rounds; return the mean length of one and the mean number of its messages."""
    busy = [(draw(rng), agent, 0) for agent in range(agents)]  # until when, who, the round in which it began
    heapq.heapify(busy)
    left, now, opened, number, lengths, counts = dict.fromkeys(range(agents), steps), 0.0, 0.0, 0, list[float](), list[int]()
    waiting, heard, expected = list[int](), list[float](), agents
    while busy:
        limit = math.inf
        if rule["mode"] == "adaptive":
            quorum = math.ceil(rule["quorum"] * expected)
            if len(heard) >= quorum:
                first = heard[:quorum]
                limit = median(first) + rule["factor"] * median(abs(one - median(first)) for one in first)
        elif rule["mode"] != "barrier":
            limit = dict(enumerate(rule.get("lengths", ()))).get(number, rule["length"])
        enough = len(heard) >= rule.get("minimum", 1) and bool(waiting)
        if enough and busy[0][0] > max(opened + limit, now):
            now = max(opened + limit, now)
        else:
            now, agent, base = heapq.heappop(busy)
            left[agent] -= 1
            if base == number or rule.get("late") == "carry":
                heard.append(now - opened)
            waiting += [agent] if left[agent] else []
            if not waiting or (busy and len(heard) < rule.get("k", math.inf)):
                continue
        lengths.append(now - opened)
        counts.append(len(heard))
        number, opened = number + 1, now
        for agent in waiting:
            heapq.heappush(busy, (now + draw(rng), agent, number))
        waiting, heard, expected = [], [], len(busy)
    return float(np.mean(lengths)), float(np.mean(counts))


def pareto(rng: np.random.Generator) -> float:
    return float((rng.pareto(1.5) + 1) / 3)


ROUNDS: dict[str, tuple[Draw, dict[str, Any]]] = {
    "least_messages": (pareto, {"mode": "deadline", "length": 0.8, "minimum": 4}),
    "first_with_limit": (lambda rng: float(rng.lognormal(-0.5, 1.0)), {"mode": "first_k", "k": 7, "length": 1.5}),
    "lengths": (
        lambda rng: float(rng.gamma(2.0, 0.5)),
        {"mode": "deadline", "length": 0.7, "lengths": [3.0, 2.0, 1.0], "late": "carry"},
    ),
    "adaptive": (pareto, {"mode": "adaptive", "quorum": 0.5, "factor": 3.0}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_are_as_long_and_have_as_many_messages_as_a_simulation_of_them(name: str, tmp_path: Path) -> None:
    draw, rule = ROUNDS[name]
    lengths, counts = [], []
    for events in run(name, tmp_path):
        closed = [row["time"] for row in events if row["kind"] == "round"]
        lengths.append(float(np.mean(np.diff([0.0, *closed]))))
        counts.append(sum(row["kind"] == "arrived" and row["time"] <= closed[-1] for row in events) / len(closed))
    simulated = [rounds(np.random.default_rng(seed), draw, rule) for seed in range(SIMULATED)]
    agree(f"{name}, length of a round", lengths, [length for length, _ in simulated])
    agree(f"{name}, messages of a round", counts, [count for _, count in simulated])


@pytest.mark.long
def test_a_round_asks_a_tier_of_speed(tmp_path: Path) -> None:
    def simulated(seed: int) -> float:
        rng, now = np.random.default_rng(seed), 0.0
        speeds, known = rng.choice([1.0, 2.0, 4.0, 8.0, 16.0], 50), np.zeros(50, dtype=bool)
        for _ in range(41):
            order = [agent for agent in np.argsort(speeds, kind="stable") if known[agent]]
            tiers = [list(part) for part in np.array_split(np.array(order, dtype=int), 5) if len(part)]
            tiers += [[agent for agent in range(50) if not known[agent]]] if not known.all() else []
            place = int(rng.integers(len(tiers)))
            asked = list(rng.permutation(tiers[place])[:10])
            more = [agent for tier in (*tiers[place + 1 :], *tiers[:place][::-1]) for agent in tier]
            asked += more[: 10 - len(asked)]
            known[asked], now = True, now + float(speeds[asked].max())
        return now

    ends = [max(row["time"] for row in one) for one in run("tiers", tmp_path)]
    agree("tiers, end", ends, [simulated(seed) for seed in range(SIMULATED)])


# Without rounds.


def turns(
    rng: np.random.Generator, agents: int, working: int, steps: int, k: int, penalty: float | None
) -> tuple[float, float]:
    """Simulate agents that take turns, uniformly or preferably fast ones; return the mean age and the end."""
    speed = rng.choice([1.0, 1.0, 1.0, 6.0], agents) if penalty is not None else np.ones(agents)
    left, lasted, ages, messages = np.full(agents, steps), np.full(agents, np.nan), list[int](), 0
    idle, busy = list(rng.permutation(agents)), list[tuple[float, int, int]]()
    now, busy_until = 0.0, np.zeros(agents)
    while idle or busy:
        while idle and len(busy) < working:
            place = int(rng.integers(len(idle)))
            if penalty is not None:
                typical = np.nanmedian(lasted[idle]) if not np.isnan(lasted[idle]).all() else 1.0
                times = np.where(np.isnan(lasted[idle]), typical, lasted[idle])
                weights = np.minimum(1.0, typical / times) ** penalty
                place = int(rng.choice(len(idle), p=weights / weights.sum()))
            agent = idle.pop(place)
            busy_until[agent] = rng.exponential() * speed[agent]
            heapq.heappush(busy, (now + busy_until[agent], agent, messages // k))
        now, agent, base = heapq.heappop(busy)
        lasted[agent] = busy_until[agent]
        ages.append(messages // k - base)
        messages, left[agent] = messages + 1, left[agent] - 1
        idle += [agent] if left[agent] else []
    return float(np.mean(ages)), now


TURNS = {"turns": (200, 20, 11, 5, None), "updates": (20, 20, 41, 5, None), "fast_first": (40, 10, 11, 1, 2.0)}


@pytest.mark.long
@pytest.mark.parametrize("name", ["turns", "fast_first"])
def test_agents_take_turns_as_a_simulation_of_them(name: str, tmp_path: Path) -> None:
    ages, ends = [], []
    for events in run(name, tmp_path):
        ages.append(float(np.mean([row["staleness"] for row in events if row["kind"] == "arrived"])))
        ends.append(max(row["time"] for row in events))
    simulated = [turns(np.random.default_rng(seed), *TURNS[name]) for seed in range(SIMULATED)]  # type: ignore[arg-type]
    agree(f"{name}, staleness", ages, [age for age, _ in simulated])
    agree(f"{name}, end", ends, [end for _, end in simulated])


@pytest.mark.long
def test_updates_of_a_buffer_come_as_those_of_a_poisson_process(tmp_path: Path) -> None:
    """While all 20 agents work, five messages take a sum of five exponential times of rate 20."""
    for events in run("updates", tmp_path):
        until = min(row["time"] for row in events if row["kind"] == "done")
        gaps = np.diff([0.0, *(row["time"] for row in events if row["kind"] == "round" and row["time"] < until)])
        assert stats.kstest(gaps, stats.gamma(5, scale=1 / 20).cdf).pvalue > 1e-4


# Crashes and preemptions.


def work(rng: np.random.Generator, draw: Draw, strikes: list[tuple[float, float]], steps: int) -> float:
    """Carry out steps, each of which begins again after a strike `(begin, end)`; return the end."""
    now, coming = 0.0, iter([*strikes, (math.inf, math.inf)])
    begin, end = next(coming)
    for _ in range(steps):
        length = draw(rng)
        while now + length > begin:
            now, length = end, draw(rng)
            begin, end = next(coming)
        now += length
    return now


def strikes_of(rng: np.random.Generator, rate: float, down: Draw) -> list[tuple[float, float]]:
    found, now = [], 0.0
    for _ in range(500):
        begin = now + rng.exponential(1 / rate)
        now = begin + down(rng)
        found.append((begin, now))
    return found


def down_share(events: list[dict[str, Any]], agent: int) -> float:
    """Return the share of its life in which an agent was down."""
    own = [row for row in events if row["agent"] == agent]
    begins = [row["time"] for row in own if row["kind"] == "crashed"]
    ends = [row["time"] for row in own if row["kind"] == "restarted"]
    return sum(ends) / own[-1]["time"] - sum(begins) / own[-1]["time"]


@pytest.mark.long
def test_agents_that_crash_at_a_rate_are_up_as_a_renewal_process_says(tmp_path: Path) -> None:
    def simulated(seed: int) -> float:
        rng = np.random.default_rng(seed)
        strikes = strikes_of(rng, 0.2, lambda rng: float(rng.lognormal(math.log(2.0) - 0.5, 1.0)))
        end = work(rng, lambda rng: 1.0, strikes, 61)
        return sum(min(last, end) - first for first, last in strikes if first < end) / end

    measured = [down_share(events, agent) for events in run("crash_rate", tmp_path) for agent in range(20)]
    agree("crash_rate, share of the time down", measured, [simulated(seed) for seed in range(SIMULATED)])
    assert np.mean(measured) == pytest.approx(1 - 1 / (1 + 0.2 * 2.0), abs=0.03)


@pytest.mark.long
def test_a_rack_fails_together(tmp_path: Path) -> None:
    def simulated(seed: int) -> list[float]:
        rng = np.random.default_rng(seed)
        strikes = strikes_of(rng, 0.1, lambda rng: 1.0)
        return [work(rng, lambda rng: float(rng.exponential()), strikes, 61) for _ in range(4)]

    ends = []
    for events in run("rack", tmp_path):
        struck = {
            agent: [row["time"] for row in events if row["kind"] == "crashed" and row["agent"] == agent] for agent in range(8)
        }
        done = {row["agent"]: row["time"] for row in events if row["kind"] == "done"}
        longest = max(range(4), key=done.__getitem__)
        for agent in range(4):
            assert struck[agent] == [time for time in struck[longest] if time < done[agent]]
        assert not any(struck[agent] for agent in range(4, 8))
        ends.append(max(done[agent] for agent in range(4)))
    agree("rack, end", ends, [max(simulated(seed)) for seed in range(SIMULATED)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "every", "cost", "notice"), [("checkpoints", 1.0, 0.05, 0.0), ("notice", math.inf, 0.0, 0.03)]
)
def test_what_a_preemption_loses_is_the_work_since_the_last_checkpoint(
    name: str, every: float, cost: float, notice: float, tmp_path: Path
) -> None:
    def simulated(seed: int) -> float:
        rng, now, done, left = np.random.default_rng(seed), 0.0, 0.0, 11
        strike = rng.exponential(10.0)
        while left:
            stages = [every] * (math.ceil((10.0 - done) / every - 1e-9) - 1) if every < math.inf else []
            stages.append(10.0 - done - sum(stages))
            for number, stage in enumerate(stages):
                last = number == len(stages) - 1
                length = stage + (0.0 if last else cost)
                if now + length > strike + notice:  # away before it is saved; with notice all work is
                    done, now = done + (strike + notice - now if notice else 0.0), strike + notice + 0.5
                    strike = now + rng.exponential(10.0)
                    break
                now += length
                done += stage
                if last:
                    left, done = left - 1, 0.0
                    if now > strike:  # nothing new begins in the notice
                        now = strike + notice + 0.5
                        strike = now + rng.exponential(10.0)
        return now

    ends = [max(row["time"] for row in events if row["kind"] == "done") for events in run(name, tmp_path)]
    agree(f"{name}, end", ends, [simulated(seed) for seed in range(SIMULATED)])


# A cluster with jobs of others.


def shared(rng: np.random.Generator, most: int, least: int, delay: float, idle: float) -> tuple[float, float]:
    """Simulate 5 agents and the jobs of the log, one processor each, first come first served; return end and mean wait.

    So many workers are there at `least`, and up to `most` come `delay` after they are needed, and go once `idle` for long.
    """
    jobs = [[int(word) for word in line.split()] for line in (EXAMPLES / "jobs.swf").read_text().splitlines() if line[0] != ";"]
    events, order = list[tuple[float, int, str, Any]](), itertools.count()
    for _, submit, wait, run, cores, *_ in sorted(jobs, key=lambda job: (job[1] + job[2] > 21600, job[1])):
        if run > 0 and submit + wait + run > 21600:
            length = (run - max(0, 21600 - submit - wait)) / 3600
            heapq.heappush(events, (max(0.0, (submit - 21600) / 3600), next(order), "came", (cores, length)))
    for agent in range(5):
        heapq.heappush(events, (0.0, next(order), "asks", (agent, 11)))
    queue, free, starting, there = list[tuple[float, float, Any]](), [0.0] * least, 0, least
    waits, end = list[float](), 0.0
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, _, kind, what = heapq.heappop(events)
            if kind == "came":
                queue += [(now, what[1], None)] * what[0]
            elif kind == "asks":
                queue += [(now, float(rng.exponential()), what)]
            elif kind == "started":
                starting, there, free = starting - 1, there + 1, [*free, now]
            elif kind == "ended":
                free.append(now)
                if what is not None and what[1] > 1:
                    queue.append((now, float(rng.exponential()), (what[0], what[1] - 1)))
                elif what is not None:
                    end = max(end, now)
        while queue and free:
            came, length, who = queue.pop(0)
            free.pop()
            heapq.heappush(events, (now + length, next(order), "ended", who))
            waits += [] if who is None else [now - came]
        for _ in range(min(len(queue) - starting, most - there - starting)):
            starting += 1
            heapq.heappush(events, (now + delay, next(order), "started", None))
        free.sort()
        while there + starting > least and free and free[0] + idle <= now:
            del free[0]
            there -= 1
        if there + starting > least and free:
            heapq.heappush(events, (free[0] + idle, next(order), "looked", None))
        if len(waits) == 55 and not any(kind == "ended" and what is not None for _, _, kind, what in events):
            break
    return end, float(np.mean(waits))


CLUSTERS = {"background": (16, 16, 0.0, 0.0), "cloud": (24, 2, 0.2, 0.5)}


@pytest.mark.long
@pytest.mark.parametrize("name", CLUSTERS)
def test_jobs_of_a_log_keep_evaluations_waiting_as_in_a_simulation_of_them(name: str, tmp_path: Path) -> None:
    ends, waits = [], []
    for events in run(name, tmp_path):
        ends.append(max(row["time"] for row in events if row["kind"] == "released"))
        waits.append(float(np.mean([row["time"] - row["queued_at"] for row in events if row["kind"] == "placed"])))
    simulated = [shared(np.random.default_rng(seed), *CLUSTERS[name]) for seed in range(SIMULATED)]
    agree(f"{name}, end", ends, [end for end, _ in simulated])
    agree(f"{name}, wait", waits, [wait for _, wait in simulated])


def test_each_agent_is_asked_once_before_any_is_asked_again(tmp_path: Path) -> None:
    rounds = [set[int]()]
    settings = {"study.replicates": 1, "budget.iterations": 14}
    result = fedbo.run(EXAMPLES / "longest_silent.toml", out=tmp_path / "run", overrides=settings)
    for row in result.events.to_pylist():
        if row["kind"] == "arrived":
            rounds[-1].add(row["agent"])
        elif row["kind"] == "round":
            rounds.append(set())
    assert [len(asked) for asked in rounds[:10]] == [10] * 10
    assert set().union(*rounds[:5]) == set().union(*rounds[5:10]) == set(range(50)) and rounds[:5] == rounds[5:10]
