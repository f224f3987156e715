"""What the gain of guided optimisation consists of: the centre of the cube, the base optimiser, and the messages.

    python benchmarks/guide.py [--only functions moved absent faithful private] [--levels 1 2 3] [--methods NAME ...]

Four agents optimise functions of Wei, Li and Wang (2026) in four inputs: three random points, and ten decisions in lock-step.
Agents differ by shifts of the optimum: none at level 1, up to 5 % of the range at level 2, 20 % at level 3. In the part `moved`
the common optimum is away from the middle, and the axes are rotated. A score is the share of the gap between the
best initial value and the optimum that is closed. Differences are paired over functions, levels and replicates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import ortho_group, rankdata, ttest_1samp

from fedbo.algorithms.base import Algorithm, Problem
from fedbo.algorithms.catalog import entry
from fedbo.testing.lockstep import Lockstep, noisy

Array = npt.NDArray[np.float64]
AGENTS, DIM, INITIAL, DECISIONS = 4, 4, 3, 10
TIMES = (1, 2, 3, 5, DECISIONS)
LEVELS = {1: 0.0, 2: 0.05, 3: 0.2}
NOISE = {2.0: 1.4453, 1.0: 2.5747, 0.5: 4.6102}  # noise multipliers of one release by epsilon, at delta = 0.001
METHODS = ("guide", "guide_alone", "guide_centre", "guide_noise", "guide_shuffled", "share_best")


class Function(NamedTuple):
    """A function to minimise: values `(n,)` at native points `(n, d)`, the range of each input, and the least value."""

    values: Callable[[Array], Array]
    low: float
    high: float
    least: float = 0.0


def _weierstrass(x: Array) -> Array:
    a, b = 0.5 ** np.arange(12), 3.0 ** np.arange(12)
    waves = (a * np.cos(2.0 * np.pi * b * (x[:, :, None] + 0.5))).sum(axis=2)
    return np.asarray((waves - (a * np.cos(np.pi * b)).sum()).sum(axis=1))


def _powell(x: Array) -> Array:
    a, b, c, d = x.T[:4]
    return np.asarray((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4)


def _levy(x: Array) -> Array:
    w = 1.0 + (x - 1.0) / 4.0
    inner = ((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2)).sum(axis=1)
    return np.asarray(np.sin(np.pi * w[:, 0]) ** 2 + inner + (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2))


def _zakharov(x: Array) -> Array:
    slope = 0.5 * (x * np.arange(1, x.shape[1] + 1)).sum(axis=1)
    return np.asarray((x**2).sum(axis=1) + slope**2 + slope**4)


def _ackley(x: Array) -> Array:
    return np.asarray(
        20.0 + np.e - 20.0 * np.exp(-0.2 * np.sqrt((x**2).mean(axis=1))) - np.exp(np.cos(2.0 * np.pi * x).mean(axis=1))
    )


def _griewank(x: Array) -> Array:
    scaled = x / np.sqrt(np.arange(1, x.shape[1] + 1))
    return np.asarray(1.0 + (x**2).sum(axis=1) / 4000.0 - np.cos(scaled).prod(axis=1))


def _michalewicz(x: Array) -> Array:
    return np.asarray(-(np.sin(x) * np.sin(np.arange(1, x.shape[1] + 1) * x**2 / np.pi) ** 20).sum(axis=1))


FUNCTIONS = {
    "ackley": Function(_ackley, -32.0, 32.0),
    "griewank": Function(_griewank, -600.0, 600.0),
    "rastrigin": Function(lambda x: (x**2 - 10 * np.cos(2 * np.pi * x) + 10).sum(axis=1), -5.12, 5.12),
    "weierstrass": Function(_weierstrass, -0.5, 0.5),
    "ellipsoid": Function(lambda x: (np.arange(1, x.shape[1] + 1) * x**2).sum(axis=1), -5.12, 5.12),
    "sphere": Function(lambda x: (x**2).sum(axis=1), -5.12, 5.12),
    "zakharov": Function(_zakharov, -10.0, 10.0),
    "powell": Function(_powell, -5.0, 5.0),
    "levy": Function(_levy, -10.0, 10.0),
    "rosenbrock": Function(
        lambda x: (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1), -2.048, 2.048
    ),
    "michalewicz": Function(_michalewicz, 0.0, np.pi, -3.6988571),
    "styblinski_tang": Function(lambda x: 0.5 * (x**4 - 16 * x**2 + 5 * x).sum(axis=1), -5.0, 5.0, -39.16617 * DIM),
}
CENTRED = ("ackley", "griewank", "rastrigin", "weierstrass", "ellipsoid", "sphere", "zakharov", "powell")


@dataclass(frozen=True)
class World:
    """Agents' functions in the unit cube: one function, shifted for all and for each `(N, d)`, and rotated about its middle."""

    function: Function
    shifts: Array
    rotation: Array

    def values(self, x: Array, agent: int) -> Array:
        """Return the values `(n,)` to maximise at `x (n, d)`."""
        centred = (x - 0.5 - self.shifts[agent]) @ self.rotation.T
        native = self.function.low + (self.function.high - self.function.low) * (0.5 + centred)
        return np.asarray(self.function.least - self.function.values(native))


def world(name: str, level: int, seed: int, moved: bool = False) -> World:
    """Draw the agents of a function at a level; a `moved` one has its optimum elsewhere and rotated axes."""
    rng = np.random.default_rng([seed, level, sorted(FUNCTIONS).index(name)])
    shifts = LEVELS[level] * rng.uniform(-1.0, 1.0, (AGENTS, DIM))
    common = 0.25 * rng.choice([-1.0, 1.0], DIM)
    rotation = ortho_group.rvs(DIM, random_state=rng)
    return World(FUNCTIONS[name], shifts + common * moved, rotation if moved else np.eye(DIM))


class Absent(Lockstep):
    """The same with agents that are absent from a round with this probability, and make their decisions later."""

    share = 0.0

    def active(self) -> list[int]:
        """Return the agents that are there and have decisions left."""
        there = self.streams.of(-2).at(self.step).rng("absence").random(len(self.states)) >= self.share
        return [agent for agent in range(len(self.states)) if there[agent] and len(self.observed[agent]) <= DECISIONS]

    def play(self) -> None:
        """Run until every agent has made its decisions."""
        while any(len(observed) <= DECISIONS for observed in self.observed):
            self.act()
            there = self.decisions[-1]
            self.exchange(deaf=[agent for agent in range(len(self.states)) if agent not in there])


def closed(algorithm: Algorithm, drawn: World, seed: int, absent: float = 0.0) -> Array:
    """Return the share of the gap that is closed at `TIMES`, the mean over agents."""
    problem = Problem(DIM, AGENTS, tuple(range(AGENTS)), INITIAL, DECISIONS)
    run = Absent(algorithm, problem, noisy(drawn.values), seed)
    run.share = absent
    run.begin()
    run.exchange()
    run.play()
    rows = []
    for observed in run.observed:
        first, *rest = [float(y.max()) for _, y in observed]
        best = np.maximum.accumulate([first, *rest])[list(TIMES)]
        rows.append((best - first) / max(-first, 1e-12))
    return np.asarray(np.mean(rows, axis=0))


def table(title: str, scores: dict[str, list[Array]], base: str) -> None:
    """Print the mean score of each method with its mean rank at the end, and paired differences from `base`."""
    print(f"\n### {title}\n\n| | {' | '.join(f't = {t}' for t in TIMES)} | rank at the end | minus `{base}`, end |")
    print("|---" * (len(TIMES) + 3) + "|")
    found = {name: 100.0 * np.array(rows) for name, rows in scores.items()}
    ranks = np.mean([rankdata(-column) for column in np.array([rows[:, -1] for rows in found.values()]).T], axis=0)
    for (name, rows), rank in zip(found.items(), ranks, strict=True):
        apart = rows[:, -1] - found[base][:, -1]
        words = "" if name == base or len(apart) < 2 else _interval(apart)
        print(f"| `{name}` | {' | '.join(f'{value:.1f}' for value in rows.mean(axis=0))} | {rank:.2f} | {words} |", flush=True)


def _interval(apart: Array) -> str:
    test = ttest_1samp(apart, 0.0)
    low, high = test.confidence_interval(0.95)
    return f"{apart.mean():+.3g} ± {(high - low) / 2:.2g}, p = {test.pvalue:.2g}"


def compare(
    title: str, made: dict[str, Algorithm], worlds: Sequence[tuple[World, int]], base: str, absent: float = 0.0
) -> dict[str, list[Array]]:
    """Run every method in every world and print a table."""
    scores = {name: [closed(algorithm, drawn, seed, absent) for drawn, seed in worlds] for name, algorithm in made.items()}
    table(title, scores, base)
    return scores


def made(*names: str, **settings: Any) -> dict[str, Algorithm]:
    """Make algorithms by name, those of `guide` with these settings."""
    return {name: entry(name).make(**(settings if name.startswith("guide") else {})) for name in names}


def functions(given: argparse.Namespace) -> None:
    """Compare all methods on the twelve functions as published, by level and by whether the optimum is in the middle."""
    for level in given.levels:
        centred = [(world(name, level, seed), seed) for name in CENTRED for seed in range(given.replicates)]
        others = [
            (world(name, level, seed), seed) for name in FUNCTIONS if name not in CENTRED for seed in range(given.replicates)
        ]
        first = compare(f"level {level}, optimum in the middle (8 functions)", made(*given.methods), centred, "guide_alone")
        rest = compare(f"level {level}, the four others", made(*given.methods), others, "guide_alone")
        table(f"level {level}, all twelve", {name: first[name] + rest[name] for name in first}, "guide_alone")


def moved(given: argparse.Namespace) -> None:
    """Compare all methods with the optimum of the eight functions away from the middle, and rotated axes."""
    for level in given.levels[:1]:
        worlds = [(world(name, level, seed, moved=True), seed) for name in CENTRED for seed in range(given.replicates)]
        compare(f"level {level}, moved and rotated (8 functions)", made(*given.methods), worlds, "guide_alone")


def absent(given: argparse.Namespace) -> None:
    """Compare with the method alone under absence; the optimum is away from the middle."""
    names = ("sphere", "ackley", "rastrigin", "styblinski_tang")
    worlds = [(world(name, 2, seed, moved=True), seed) for name in names for seed in range(given.replicates)]
    for share in (0.0, 0.2, 0.5):
        compare(f"level 2, moved, {share:.0%} absent", made("guide", "guide_alone"), worlds, "guide_alone", share)


def faithful(given: argparse.Namespace) -> None:
    """Compare the published settings with our base optimiser, each with and without messages."""
    worlds = [(world(name, 1, seed), seed) for name in ("sphere", "ackley", "michalewicz") for seed in range(given.replicates)]
    methods = {f"{name}, {preset or 'ours'}": entry(name).make(preset) for preset in ("faithful", None) for name in METHODS[:2]}
    methods["gp_ei"] = entry("gp_ei").make()
    compare("base optimiser, level 1 (sphere, ackley, michalewicz)", methods, worlds, "guide_alone, ours")


def private(given: argparse.Namespace) -> None:
    """Compare private methods, with one message about an earlier task: 20 agents with bowls in two inputs."""
    count, rounds = 20, 5
    names = ("share_best", "fed_prior", "fed_prior_alone", "gp_ei")
    made: dict[str, Algorithm] = {name: entry(name).make(**({"every": 0} if name in names[:2] else {})) for name in names}
    for epsilon, noise in NOISE.items():
        made[f"dp_share_best, {epsilon:g}"] = entry("dp_share_best").make(epsilon=epsilon)
        for name in ("dp_guide", "dp_fed_prior"):
            made[f"{name}, {epsilon:g}"] = entry(name).make(noise_multiplier=noise)
    for name in ("dp_share_best_noise", "dp_guide_noise", "dp_fed_prior_noise"):
        made[f"{name}, 2"] = entry(name).make(**({"noise_multiplier": NOISE[2.0]} if "share" not in name else {}))
    found: dict[str, list[Array]] = {name: [] for name in made}
    for seed in range(given.replicates):
        rng = np.random.default_rng([10, seed])
        centres = rng.uniform(0.2, 0.8, 2) + 0.05 * rng.standard_normal((count, 2))
        known = [rng.random((12, 2)) for _ in range(count)]

        def value(x: Array, agent: int, centres: Array = centres) -> Array:
            return np.asarray(
                -((x - centres[agent]) ** 2).sum(axis=1) + 0.05 * np.cos(9.0 * (x - centres[agent])).sum(axis=1) - 0.1
            )

        problem = Problem(2, count, tuple(range(count)), 1, rounds, history=12)
        for name, algorithm in made.items():
            run = Lockstep(algorithm, problem, noisy(value), seed, [(x, value(x, agent)) for agent, x in enumerate(known)])
            run.begin()
            run.exchange()
            run.run(rounds)
            best = [np.maximum.accumulate([float(y.max()) for _, y in observed]) for observed in run.observed]
            found[name].append(-np.mean(best, axis=0)[[1, 2, 3, rounds]])
            print(f"# {seed} {name}: {found[name][-1].round(4).tolist()}", flush=True)
    print(f"\n### one message, 20 agents, {given.replicates} replicates; after the comma epsilon: regret\n")
    print("| | t = 1 | 2 | 3 | 5 | minus `gp_ei`, t = 3 |\n|---|---|---|---|---|---|")
    for name, rows in found.items():
        apart = np.array(rows)[:, 2] - np.array(found["gp_ei"])[:, 2]
        words = _interval(apart) if name != "gp_ei" and len(apart) > 1 else ""
        print(f"| `{name}` | {' | '.join(f'{value:.4f}' for value in np.mean(rows, axis=0))} | {words} |")


PARTS = {"private": private, "functions": functions, "moved": moved, "absent": absent, "faithful": faithful}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--levels", nargs="+", type=int, choices=LEVELS, default=[*LEVELS])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--replicates", type=int, default=1)
    given = parser.parse_args()
    for name in given.only:
        begun = time.process_time()
        PARTS[name](given)
        print(f"\n{name}: {time.process_time() - begun:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
