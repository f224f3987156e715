"""Agents whose evaluations end at their own times, on twenty federations: points under way, and messages that age; in Markdown.

    python benchmarks/pending.py points messages [--half development] [--seeds 5] [--evaluations 13] [--out FILE]

`points`: agents alone, each with four evaluations at once of exponential duration, decide whenever one ends. What the method
assumes of points under way is its `pending_values`: "hallucinated" gives them the expected values, "constant_liar" the worst
value seen, and "ignore" leaves them out, though none is chosen again.

`messages`: each agent has one evaluation at a time, and its mean duration is drawn from 1/3 to 3. When one ends the agent
sends its message, and is answered at once, as under `immediate`. The answer weighs the newest message of every agent alike
(`newest`), by its staleness as `[exchange.staleness]` does (`polynomial`, `exponential`, `hinge`: their defaults, the last
`after` as many updates as there are agents), or takes only those of agents that have reported since the agent's last answer
(`reported`). Times do not depend on the variant.

Scores are in per cent of an agent's range over all that was evaluated with a seed, after as many evaluations of its own. Each
federation of `federations.py` counts once; Holm's correction covers all differences after the last evaluation, of both.
`--skip` leaves out models whose training is slow. Every result is a line of `--out`; run it again to continue.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from federations import INITIAL, MODELS, Federation, Function, federations, functions
from scipy.stats import ttest_1samp

from fedbo.algorithms.base import Inbound, Overlapping, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.surrogate import PENDING_VALUES
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.analysis.summary import holm
from fedbo.coordinator.staleness import Staleness

Array = npt.NDArray[np.float64]
PLACES, TIMES = 4, (5, 7, 10)
ALONE = ("gp_ei", "gp_ucb", "ts")
FEDERATED = {"fed_prior": {"every": 1}, "careful": {"turn": 1, "pay": 0.25}}
# `trust_best` asks only whose messages there are, and so takes any weight above 0 for 1.
WEIGHTS = {"fed_prior": ("newest", "reported", "polynomial", "exponential", "hinge"), "careful": ("newest", "reported")}
VARIANTS = {
    "points": [(name, way) for name in ALONE for way in PENDING_VALUES],
    "messages": [(name, way) for name in FEDERATED for way in WEIGHTS[name]],
}
PAIRS = {
    "points": [(name, one, "ignore") for name in ALONE for one in PENDING_VALUES[:2]],
    "messages": [(name, way, "newest") for name in FEDERATED for way in WEIGHTS[name][1:]],
}


def with_points(now: list[Function], dim: int, variant: tuple[str, str], seed: int, count: int) -> Array:
    """Return the best value of each agent after each of its evaluations `(agents, count)`, alone with four places."""
    return np.array([_alone(one, dim, variant, (seed, agent), count) for agent, one in enumerate(now)])


def _alone(function: Function, dim: int, variant: tuple[str, str], keys: tuple[int, int], count: int) -> Array:
    method, way = variant
    algorithm = entry(method).make(pending_values=way)
    streams, rng = Streams(keys[0]).of(keys[1]), np.random.default_rng([*keys, 1])
    state = algorithm.agent_init(Problem(dim, 1, (0,), INITIAL, count - INITIAL, agent=0), streams)
    assert isinstance(algorithm, Overlapping)
    x = rng.random((INITIAL, dim))
    found = [function(point) for point in x]
    state = algorithm.tell(state, x, np.array(found))
    under_way: list[tuple[float, int, Array]] = []
    now = 0.0
    for step in range(1, count - INITIAL + 1):
        if len(under_way) == PLACES:
            now, _, point = heapq.heappop(under_way)
            found.append(function(point))
            state = algorithm.tell(state, point[None], np.array(found[-1:]))
        points = [point for _, _, point in sorted(under_way, key=lambda one: one[1])]
        state = algorithm.pending(state, np.array(points).reshape(-1, dim))
        decision, state = algorithm.ask(state, (), streams.at(step))
        heapq.heappush(under_way, (now + rng.exponential(), step, decision.x[0]))
    found += [function(point) for _, _, point in sorted(under_way, key=lambda one: one[:2])]
    return np.maximum.accumulate(found)


class Weights:
    """The weights of all messages at an answer, by the update at which each was begun and received; there are none at first."""

    def __init__(self, way: str, agents: int) -> None:
        self.way, self.updates = way, 0
        self.begun, self.received = np.full(agents, -1), np.full(agents, -1)
        self.answered = np.zeros(agents, np.int64)
        self.staleness = Staleness(way, after=agents if way == "hinge" else 0) if way in _AGEING else Staleness()

    def note(self, agent: int) -> None:
        """Note a message, whose step was begun with the agent's last answer."""
        self.updates += 1
        self.begun[agent], self.received[agent] = self.answered[agent], self.updates

    def answer(self, agent: int) -> Array:
        """Return the weights `(N,)` of the answer to an agent."""
        since, self.answered[agent] = self.answered[agent], self.updates
        if self.way == "reported":
            return np.asarray(self.received > since, float)
        return np.array([self.staleness.of(int(self.updates - one)) if one >= 0 else 0.0 for one in self.begun])


_AGEING = ("polynomial", "exponential", "hinge")


def with_messages(now: list[Function], dim: int, variant: tuple[str, str], seed: int, count: int) -> Array:
    """Return the best value of each agent after each of its evaluations `(agents, count)`, with answers at their own times."""
    (method, way), n = variant, len(now)
    algorithm: Any = entry("trust_best" if method == "careful" else method).make(**FEDERATED[method])
    problem = Problem(dim, n, tuple(range(n)), INITIAL, count - INITIAL, rounds=False)
    streams, weights, server = Streams(seed), Weights(way, n), algorithm.server_init(problem)
    means = 3.0 ** np.random.default_rng([seed, n]).uniform(-1.0, 1.0, n)
    clocks = [np.random.default_rng([seed, agent, 1]) for agent in range(n)]
    states, found, inbox = list[Any](), list[list[float]](), list[list[Inbound]]([[] for _ in range(n)])
    ends: list[tuple[float, int, int, Array]] = []
    for agent in range(n):
        x = clocks[agent].random((INITIAL, dim))
        own = algorithm.agent_init(replace(problem, agent=agent), streams.of(agent))
        found.append([now[agent](point) for point in x])
        states.append(algorithm.tell(own, x, np.array(found[agent])))
        heapq.heappush(ends, (means[agent] * clocks[agent].exponential(), agent, 0, x[:0]))
    while ends:
        time, agent, step, x = heapq.heappop(ends)
        if len(x):
            found[agent].append(now[agent](x[0]))
            states[agent] = algorithm.tell(states[agent], x, np.array(found[agent][-1:]))
        if step == count - INITIAL:
            continue
        payload, states[agent] = algorithm.outbox(states[agent], streams.of(agent).at(step))
        server = algorithm.receive(server, Inbound(agent, step, time, payload), time)
        weights.note(agent)
        drawn = streams.of(COORDINATOR).at(weights.updates)
        answers, server = algorithm.broadcast(server, [agent], weights.answer(agent), drawn)
        inbox[agent] = [Inbound(COORDINATOR, step, time, answers[agent])] if agent in answers else []
        decision, states[agent] = algorithm.ask(states[agent], tuple(inbox[agent]), streams.of(agent).at(step + 1))
        heapq.heappush(ends, (time + means[agent] * clocks[agent].exponential(), agent, step + 1, decision.x))
    return np.maximum.accumulate(np.array(found), axis=1)


Run = Callable[[list[Function], int, tuple[str, str], int, int], Array]
RUNS: dict[str, Run] = {"points": with_points, "messages": with_messages}
Found = dict[tuple[int, str, str], Array]  # by seed and variant


def results(what: str, given: argparse.Namespace, chosen: list[Federation]) -> Iterator[tuple[Federation, Found]]:
    """Run what the file does not have, one seed after another; give the results of each federation in the end."""
    lines = given.out.read_text().splitlines() if given.out and given.out.exists() else []
    there: dict[int, Found] = {one.number: {} for one in federations()}
    for row in map(json.loads, lines):
        if row["what"] == what and row["evaluations"] == given.evaluations:
            there[row["federation"]][row["seed"], *row["variant"]] = np.array(row["best"])
    for seed in range(given.seeds):
        for one in chosen:
            missing = [way for way in VARIANTS[what] if (seed, *way) not in there[one.number]]
            dim, now, _ = functions(one, seed) if missing else (0, [], [])
            for way in missing:
                best = RUNS[what](now, dim, way, seed, given.evaluations)
                there[one.number][seed, *way] = best
                row = {"what": what, "evaluations": given.evaluations, "federation": one.number, "seed": seed}
                if given.out:
                    with given.out.open("a") as file:
                        file.write(json.dumps({**row, "variant": way, "best": best.tolist()}) + "\n")
    for one in chosen:
        yield one, {key: values for key, values in there[one.number].items() if key[0] < given.seeds}


def shares(found: Found, seed: int) -> dict[tuple[str, str], Array]:
    """Return the mean over agents by variant `(count,)`, in per cent of an agent's range with that seed."""
    rows = {key[1:]: values for key, values in found.items() if key[0] == seed}
    together = np.stack([*rows.values()])
    low, high = together.min(axis=(0, 2))[:, None], together.max(axis=(0, 2))[:, None]
    span = np.maximum(high - low, 1e-300)
    return {key: np.where(high > low, 100.0 * (one - low) / span, 100.0).mean(axis=0) for key, one in rows.items()}


def table(what: str, means: dict[int, dict[tuple[str, str], Array]], chances: Sequence[float]) -> Iterator[str]:
    """Write the differences with intervals of 95 %, each federation counted once."""
    ways = "; ".join(
        f"`{name}` {way} {np.mean([m[name, way][-1] for m in means.values()]):.1f}" for name, way in VARIANTS[what]
    )
    count = len(next(iter(means.values()))[VARIANTS[what][0]])
    times = (*(t for t in TIMES if t < count), count)
    yield f"Means after {count} evaluations, in per cent: {ways}."
    yield ""
    yield f"| {what}, each of {len(means)} federations once | {' | '.join(f't = {t}' for t in times)} | p, t = {count} |"
    yield "|---" * (2 + len(times)) + "|"
    for (name, way, base), chance in zip(PAIRS[what], chances, strict=True):
        gaps = np.array([one[name, way] - one[name, base] for one in means.values()])
        cells = []
        for t in times:
            low, high = ttest_1samp(gaps[:, t - 1], 0.0).confidence_interval(0.95)
            cells.append(f"{gaps[:, t - 1].mean():+.1f} ± {(high - low) / 2:.1f}")
        yield f"| `{name}`, {way} - {base} | {' | '.join(cells)} | {chance:.2g} |"
    yield ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all variants, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=RUNS, nargs="+")
    parser.add_argument("--half", choices=("development", "held-out"), default="development")
    parser.add_argument("--skip", nargs="*", choices=MODELS, default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=INITIAL + 10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    chosen = [one for one in federations() if one.half == given.half and one.model not in given.skip]
    tables: dict[str, dict[int, dict[tuple[str, str], Array]]] = {what: {} for what in given.what}
    tests = list[float]()
    for what, means in tables.items():
        for federation, found in results(what, given, chosen):
            rows = [shares(found, seed) for seed in range(given.seeds)]
            means[federation.number] = {way: np.mean([row[way] for row in rows], axis=0) for way in VARIANTS[what]}
        for name, way, base in PAIRS[what]:
            gaps = np.array([one[name, way][-1] - one[name, base][-1] for one in means.values()])
            tests.append(float(ttest_1samp(gaps, 0.0).pvalue) if np.ptp(gaps) else 1.0)
    corrected = iter(holm(tests))
    for what, means in tables.items():
        print("\n".join(table(what, means, [next(corrected) for _ in PAIRS[what]])))


if __name__ == "__main__":
    main()
