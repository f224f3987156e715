"""What the gain of guided optimisation consists of: the centre of the cube, the base optimiser, and the messages.

    python benchmarks/guide.py run CELLS.jsonl [--agents 16] [--rounds 50] [--replicates 10] [--parts PART ...] [--methods ...]
    python benchmarks/guide.py show CELLS.jsonl
    python benchmarks/guide.py messages
    python benchmarks/guide.py private

`run` appends a line for each cell, a method on a task, and goes on after an interruption. Functions, numbers of agents, initial
points and rounds, noise, shifts and rotations are those of Wei, Li and Wang (2026), whose code says that level 2 has
shifts with a deviation of 5 % of the range and rotations by 0.1, and level 3 of 30 % and 1. In `shifted` all optima are away
from the middle, in `rotated` all axes are turned about it. A score is the share of the gap between an agent's best initial
value and its optimum that is closed, both without noise. Differences are paired over tasks and replicates. The methods are
those of the plug-in fedbo-rivals (`plugins/rivals`), which must be installed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy
from scipy.stats import rankdata, ttest_1samp

from fedbo.algorithms.base import Decision, Problem
from fedbo.algorithms.catalog import entry
from fedbo.analysis.summary import holm
from fedbo.objectives.classifiers.har import Har
from fedbo.objectives.classifiers.landmine import Landmine
from fedbo.objectives.space import from_unit
from fedbo.testing.lockstep import Lockstep, noisy

Array = npt.NDArray[np.float64]
DIM, INITIAL, NOISE = 10, 30, 0.1
TIMES = (1, 3, 5, 10, 20)  # and then the last one
LEVELS = {1: (0.0, 0.0), 2: (0.05, 0.1), 3: (0.3, 1.0)}  # standard deviation of shifts over the range, strength of rotations
BASE = "guide_alone"
CHIEF = ("guide", BASE, "guide_centre")
CONTROLS = ("guide_noise", "guide_shuffled")
FAITHFUL = tuple(f"{name}, faithful" for name in CHIEF)
MULTIPLIERS = {2.0: 1.4453, 1.0: 2.5747, 0.5: 4.6102}  # of the noise of one release by epsilon, at delta = 0.001
SHIFT = 0.25  # of the range, in each input


class Function(NamedTuple):
    """A function to minimise: values `(n,)` at points `(n, d)`, ends of the inputs, ten times the noise, the least value."""

    values: Callable[[Array], Array]
    low: float
    high: float
    unit: float
    least: float = 0.0


def _weierstrass(x: Array) -> Array:
    a, b = 0.5 ** np.arange(21), 3.0 ** np.arange(21)
    waves = (a * np.cos(2.0 * np.pi * b * (x[:, :, None] + 0.5))).sum(axis=2)
    return np.asarray((waves - (a * np.cos(np.pi * b)).sum()).sum(axis=1))


def _powell(x: Array) -> Array:
    a, b, c, d = np.moveaxis(x[:, : x.shape[1] // 4 * 4].reshape(len(x), -1, 4), 2, 0)
    return np.asarray(((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4).sum(axis=1))


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


# In turn two with the optimum in the middle and one of the others, so that a run that is stopped has both.
FUNCTIONS = {
    "sphere": Function(lambda x: (x**2).sum(axis=1), -5.0, 5.0, 200.0),
    "ackley": Function(_ackley, -32.768, 32.768, 20.0),
    "styblinski_tang": Function(lambda x: 0.5 * (x**4 - 16 * x**2 + 5 * x).sum(axis=1), -5.0, 5.0, 400.0, -39.16617 * DIM),
    "rastrigin": Function(lambda x: (x**2 - 10 * np.cos(2 * np.pi * x) + 10).sum(axis=1), -5.12, 5.12, 200.0),
    "griewank": Function(_griewank, -600.0, 600.0, 200.0),
    "michalewicz": Function(_michalewicz, 0.0, np.pi, 10.0, -9.66015),
    "ellipsoid": Function(lambda x: (np.arange(1, x.shape[1] + 1) * x**2).sum(axis=1), -5.12, 5.12, 2000.0),
    "weierstrass": Function(_weierstrass, -0.5, 0.5, 50.0),
    "levy": Function(_levy, -10.0, 10.0, 200.0),
    "powell": Function(_powell, -5.0, 5.0, 5000.0),
    "zakharov": Function(_zakharov, -5.0, 5.0, 1e7),
    "rosenbrock": Function(
        lambda x: (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1), -2.048, 2.048, 5000.0
    ),
}
OTHERS = ("styblinski_tang", "michalewicz", "levy", "rosenbrock")  # whose optimum is not in the middle
REAL: dict[str, Any] = {"landmine": Landmine(log=True), "har": Har(log=True)}


class Part(NamedTuple):
    """How tasks differ from the published ones: all optima shifted, axes rotated, agents absent, durations of heavy tail."""

    shifted: bool = False
    rotated: bool = False
    absent: float = 0.0
    pareto: bool = False


PARTS = {
    "published": Part(),
    "shifted": Part(shifted=True),
    "rotated": Part(rotated=True),
    "shifted, 20 % absent": Part(shifted=True, absent=0.2),
    "shifted, 50 % absent": Part(shifted=True, absent=0.5),
    "shifted, Pareto durations": Part(shifted=True, pareto=True),
    "real": Part(),
}
PACED = tuple(name for name in PARTS if name.startswith("shifted"))


class Cell(NamedTuple):
    """One run: a part, a task, its level of likeness (0 if real), a seed, and a method."""

    part: str
    task: str
    level: int
    seed: int
    method: str


def cells(replicates: int) -> Iterator[Cell]:
    """List all runs, three functions after three, so that a run that is stopped has whole functions of both kinds."""
    for seed in range(replicates):
        threes = [[*FUNCTIONS][start : start + 3] for start in range(0, len(FUNCTIONS), 3)]
        for number, names in enumerate(threes):
            centred = [name for name in names if name not in OTHERS]
            groups: list[tuple[Sequence[str], Sequence[str], Sequence[int], Sequence[str]]] = [
                (("published",), names, (1,), (*CHIEF, "gp_ei")),
                (("published",), names, (1,), (*FAITHFUL, "share_best")),
                (("shifted",), centred, (1,), (*CHIEF, *FAITHFUL)),
                (("published",), names, (2, 3), (*CHIEF, "gp_ei")),
                (("rotated",), centred, (1,), CHIEF),
            ]
            if number == 0:
                groups.append((("published",), centred, (1,), (*CONTROLS, "guide_shuffled, faithful")))
                groups.append((PACED, centred, (2,), CHIEF[:2]))
                groups.append((("real",), [*REAL], (0,), (*CHIEF, *CONTROLS, "gp_ei", "share_best", *FAITHFUL)))
            for parts, tasks, levels, methods in groups:
                for name, level, part, method in product(tasks, levels, parts, methods):
                    yield Cell(part, name, level, seed, method)
        rest = (*CONTROLS, "guide_shuffled, faithful")
        for name, level, method in product(FUNCTIONS, (1, 3, 2), (*FAITHFUL, "share_best", *rest)):
            if level > 1 or (method in rest and (name in OTHERS or name not in threes[0])):
                yield Cell("published", name, level, seed, method)


@dataclass(frozen=True)
class World:
    """Agents' functions in the unit cube: one function, moved by `shifts (N, d)` and turned by `turns (N, d, d)`."""

    function: Function
    shifts: Array
    turns: Array

    def values(self, x: Array, agent: int) -> Array:
        """Return the values `(n,)` to maximise at `x (n, d)`, in units of the noise."""
        low, high = self.function.low, self.function.high
        native = (low + (high - low) * (x - self.shifts[agent])) @ self.turns[agent].T
        return np.asarray(-self.function.values(native) / self.function.unit)

    def optimum(self, agent: int) -> float:
        """Return the largest value, which lies outside the cube for some agents of level 3."""
        return -self.function.least / self.function.unit


class RealWorld:
    """Agents' real tasks in the unit cube; `optimum` is not known."""

    def __init__(self, name: str, agents: int) -> None:
        rng = np.random.default_rng(0)  # which no objective draws from
        self.parameters = REAL[name].parameters
        self.objectives = [REAL[name].objective(agent, rng, rng) for agent in range(agents)]

    def values(self, x: Array, agent: int) -> Array:
        """Return the values `(n,)` to maximise at `x (n, d)`."""
        rng = np.random.default_rng(0)
        return np.array([self.objectives[agent].evaluate(point, rng) for point in from_unit(self.parameters, x)])

    def optimum(self, agent: int) -> None:
        """Return None."""


def world(cell: Cell, agents: int) -> World | RealWorld:
    """Draw the agents of a task."""
    if cell.part == "real":
        return RealWorld(cell.task, agents)
    part, (shift, rotation) = PARTS[cell.part], LEVELS[cell.level]
    rng = np.random.default_rng([cell.seed, cell.level, sorted(FUNCTIONS).index(cell.task)])
    shifts, skew = shift * rng.standard_normal((agents, DIM)), rng.standard_normal((agents, DIM, DIM))
    turns = scipy.linalg.expm(rotation * (skew - np.swapaxes(skew, 1, 2)))
    if part.shifted:
        shifts = shifts + SHIFT * rng.choice([-1.0, 1.0], DIM)
    if part.rotated:
        turns = turns @ scipy.stats.ortho_group.rvs(DIM, random_state=rng)
    return World(FUNCTIONS[cell.task], shifts, turns)


class Absent(Lockstep):
    """The same with agents that are absent from a round with this probability, and make their decisions later."""

    share = 0.0

    def active(self) -> list[int]:
        """Return the agents that are there and have decisions left."""
        there = self.streams.of(-2).at(self.step).rng("absence").random(len(self.states)) >= self.share
        left = [len(observed) <= self.problem.iterations for observed in self.observed]
        return [agent for agent in range(len(self.states)) if there[agent] and left[agent]]

    def play(self) -> None:
        """Run until every agent has made its decisions."""
        while any(len(observed) <= self.problem.iterations for observed in self.observed):
            self.act()
            there = self.decisions[-1]
            self.exchange(deaf=[agent for agent in range(len(self.states)) if agent not in there])


class Paced(Lockstep):
    """The same without rounds: durations are Pareto with exponent 1.5, and an agent exchanges whenever it has evaluated."""

    def play(self) -> None:
        """Run until every agent has made its decisions."""
        everybody, made = range(len(self.states)), [0] * len(self.states)
        durations = 1.0 + self.streams.of(-2).rng("durations").pareto(1.5, (len(made), self.problem.iterations))
        ends, pending = durations[:, 0].copy(), dict[int, Decision]()
        for agent in everybody:
            pending[agent] = self.ask(agent)
        while pending:
            agent = min(pending, key=lambda one: float(ends[one]))
            self.step += 1
            self.decisions.append({agent: pending.pop(agent)})
            self.tell(agent, self.decisions[-1][agent])
            self.exchange(deaf=[other for other in everybody if other != agent])
            made[agent] += 1
            if made[agent] < self.problem.iterations:
                pending[agent], ends[agent] = self.ask(agent), ends[agent] + durations[agent, made[agent]]


def best(cell: Cell, agents: int, rounds: int) -> dict[str, Any]:
    """Run a cell: the best value without noise of each agent, after the initial points and at each time, and its optimum."""
    name, _, preset = cell.method.partition(", ")
    drawn, part = world(cell, agents), PARTS[cell.part]
    algorithm = entry(name).make(preset or None, **({"every": 1} if name == "share_best" else {}))
    real = isinstance(drawn, RealWorld)
    dim = len(drawn.parameters) if isinstance(drawn, RealWorld) else DIM
    problem = Problem(dim, agents, tuple(range(agents)), INITIAL, rounds)
    run = (Paced if part.pareto else Absent)(algorithm, problem, noisy(drawn.values, 0.0 if real else NOISE), cell.seed)
    if isinstance(run, Absent):
        run.share = part.absent
    run.begin()
    run.exchange()
    run.play()
    found, times = [], [0, *(at for at in TIMES if at < rounds), rounds]
    for agent, observed in enumerate(run.observed):
        exact = [y.max() if real else drawn.values(x, agent).max() for x, y in observed]
        found.append([float(value) for value in np.maximum.accumulate(exact)[times]])
    return {"times": times, "best": found, "optimum": [drawn.optimum(agent) for agent in range(agents)]}


def written(path: Path) -> list[dict[str, Any]]:
    """Read the cells of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(given: argparse.Namespace) -> None:
    """Append the cells that are missing."""
    there = {(*(row[field] for field in Cell._fields), row["agents"], row["rounds"]) for row in written(given.file)}
    for cell in cells(given.replicates):
        left_out = cell.part not in (given.parts or PARTS) or cell.method not in (given.methods or [cell.method])
        if left_out or (*cell, given.agents, given.rounds) in there:
            continue
        begun = time.process_time()
        found = best(cell, given.agents, given.rounds)
        size = {"agents": given.agents, "rounds": given.rounds, "seconds": round(time.process_time() - begun, 2)}
        with given.file.open("a") as file:
            file.write(json.dumps({**cell._asdict(), **size, **found}) + "\n")


def show(given: argparse.Namespace) -> None:
    """Print a table for each part and level, of the tasks that are whole."""
    rows = written(given.file)
    highest: dict[tuple[Any, ...], Array] = {}  # of real tasks, whose optimum is not known: the best of all methods
    for row in rows:
        key, seen = (row["task"], row["seed"]), np.max(row["best"], axis=1)
        highest[key] = np.maximum(highest.get(key, seen), seen)
    scores: dict[tuple[str, int], dict[str, dict[Any, Array]]] = {}
    for row in rows:
        value = np.array(row["best"])
        optimum = highest[row["task"], row["seed"]] if row["optimum"][0] is None else np.array(row["optimum"])
        gap = np.maximum(optimum - value[:, 0], 1e-12)
        closed = ((value[:, 1:] - value[:, :1]) / gap[:, None]).mean(axis=0)
        scores.setdefault((row["part"], row["level"]), {}).setdefault(row["method"], {})[row["task"], row["seed"]] = closed
    times = rows[0]["times"][1:]
    for (part, level), methods in scores.items():
        title = part if part == "real" else f"{part}, level {level}"
        most = max(len(found) for found in methods.values())
        whole = {name: found for name, found in methods.items() if len(found) >= most - 1}
        table(title, whole, times)
        if part == "published":
            for words, middle in (("optimum in the middle", True), ("the others", False)):
                some = {
                    name: {unit: row for unit, row in found.items() if (unit[0] not in OTHERS) == middle}
                    for name, found in whole.items()
                }
                table(f"{title}, {words}", some, times)
        if len(whole) < len(methods):
            table(f"{title}, all methods", methods, times)
    differences(scores, times)


def differences(scores: dict[tuple[str, int], dict[str, dict[Any, Array]]], times: Sequence[int]) -> None:
    """Print the paired differences that tell messages from the middle, and from agents alone, with Holm's correction."""
    found: dict[tuple[str, int, str, str], Array] = {}
    for (part, level), methods in scores.items():
        for preset in ("", ", faithful"):
            guide, alone, centre = (f"{name}{preset}" for name in CHIEF)
            for one, other in ((guide, alone), (centre, alone), (guide, centre), (alone, "guide_alone" if preset else "gp_ei")):
                units = [unit for unit in methods.get(one, ()) if unit in methods.get(other, ())]
                if len(units) > 2:
                    found[part, level, one, other] = 100.0 * np.array([methods[one][u] - methods[other][u] for u in units])
    middle = times.index(5) if 5 in times else 0
    chances = iter(holm([_chance(rows[:, at]) for rows in found.values() for at in (middle, -1)]))
    print(f"\n### Paired differences\n\n| | tasks | | minus | t = {times[middle]} | t = {times[-1]} |\n{'|---' * 6}|")
    for (part, level, one, other), rows in found.items():
        cells_ = [_interval(rows[:, at], next(chances)) for at in (middle, -1)]
        print(f"| {part}, level {level} | {len(rows)} | `{one}` | `{other}` | {' | '.join(cells_)} |")


def table(title: str, methods: dict[str, dict[Any, Array]], times: Sequence[int]) -> None:
    """Print the mean score of each method, its mean rank at the end, and paired differences from `guide_alone`."""
    units, names = [unit for unit in methods.get(BASE, ()) if all(unit in found for found in methods.values())], [*methods]
    if not units:
        return
    found = {name: 100.0 * np.array([methods[name][unit] for unit in units]) for name in names}
    middle = times.index(5) if 5 in times else 0
    ranks = np.mean([rankdata(-column) for column in np.array([rows[:, -1] for rows in found.values()]).T], axis=0)
    tests = {(name, at): found[name][:, at] - found[BASE][:, at] for name in names if name != BASE for at in (middle, -1)}
    chances = dict(zip(tests, holm([_chance(apart) for apart in tests.values()]), strict=True))
    heads = [f"t = {t}" for t in times] + ["rank", *(f"minus `{BASE}`, t = {times[at]}" for at in (middle, -1))]
    print(f"\n### {title}: {len(units)} tasks\n\n| | {' | '.join(heads)} |\n{'|---' * (len(heads) + 1)}|")
    for (name, rows), rank in zip(found.items(), ranks, strict=True):
        words = [_interval(tests[name, at], chances[name, at]) if name != BASE else "" for at in (middle, -1)]
        cells_ = [f"{value:.1f}" for value in rows.mean(axis=0)] + [f"{rank:.2f}", *words]
        print(f"| `{name}` | {' | '.join(cells_)} |", flush=True)


def _chance(apart: Array) -> float:
    return float(ttest_1samp(apart, 0.0).pvalue) if len(apart) > 1 and apart.any() else float("nan")


def _interval(apart: Array, chance: float) -> str:
    if len(apart) < 2:
        return f"{apart.mean():+.1f}"
    low, high = ttest_1samp(apart, 0.0).confidence_interval(0.95)
    return f"{apart.mean():+.1f} ± {(high - low) / 2:.1f}, p = {chance:.2g}"


def messages(given: argparse.Namespace) -> None:
    """Print where messages point: root mean square distances over the inputs; of a uniform point to the middle, 0.289."""
    print("| | | messages after | to the middle | to the optimum | standard deviation | share |\n|---|---|---|---|---|---|---|")
    for preset, name, part in product(("faithful", None), [*FUNCTIONS][:4], ("published", "shifted")):
        if name in OTHERS:
            continue
        drawn, algorithm = world(Cell(part, name, 1, 0, "guide"), given.agents), entry("guide").make(preset)
        assert isinstance(drawn, World)
        problem = Problem(DIM, given.agents, tuple(range(given.agents)), INITIAL, given.rounds)
        played = Absent(algorithm, problem, noisy(drawn.values, NOISE), 0)
        played.begin()
        played.exchange()
        played.play()
        for after in (0, given.rounds):
            sent = played.sent[after].values()
            mean, spread = np.array([one["mean"] for one in sent]), np.sqrt([one["variance"] for one in sent]).mean()
            away = [np.sqrt(((mean - place) ** 2).mean(axis=1)).mean() for place in (0.5, 0.5 + drawn.shifts)]
            cells_ = [*(f"{value:.3f}" for value in (*away, spread)), f"{np.mean([one['share'] for one in sent]):.2f}"]
            print(f"| {name}, {part} | {preset or 'ours'} | {after} | {' | '.join(cells_)} |", flush=True)


def private(given: argparse.Namespace) -> None:
    """Compare private methods, with one message about an earlier task: 20 agents with bowls in two inputs."""
    count, rounds = 20, 5
    names = ("share_best", "fed_prior", "fed_prior_alone", "gp_ei")
    made = {name: entry(name).make(**dict[str, Any]({"every": 0} if name in names[:2] else {})) for name in names}
    for epsilon, noise in MULTIPLIERS.items():
        made[f"dp_share_best, {epsilon:g}"] = entry("dp_share_best").make(epsilon=epsilon)
        for name in ("dp_guide", "dp_fed_prior"):
            made[f"{name}, {epsilon:g}"] = entry(name).make(noise_multiplier=noise)
    for name in ("dp_share_best_noise", "dp_guide_noise", "dp_fed_prior_noise"):
        made[f"{name}, 2"] = entry(name).make(
            **dict[str, Any]({"noise_multiplier": MULTIPLIERS[2.0]} if "share" not in name else {})
        )
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
            run_ = Lockstep(algorithm, problem, noisy(value), seed, [(x, value(x, agent)) for agent, x in enumerate(known)])
            run_.begin()
            run_.exchange()
            run_.run(rounds)
            best = [np.maximum.accumulate([float(y.max()) for _, y in observed]) for observed in run_.observed]
            found[name].append(-np.mean(best, axis=0)[[1, 2, 3, rounds]])
            print(f"# {seed} {name}: {found[name][-1].round(4).tolist()}", flush=True)
    print(f"\n### one message, 20 agents, {given.replicates} replicates; after the comma epsilon: regret\n")
    print("| | t = 1 | 2 | 3 | 5 | minus `gp_ei`, t = 3 |\n|---|---|---|---|---|---|")
    for name, rows in found.items():
        apart = np.array(rows)[:, 2] - np.array(found["gp_ei"])[:, 2]
        words = _interval(apart, _chance(apart)) if name != "gp_ei" and len(apart) > 1 else ""
        print(f"| `{name}` | {' | '.join(f'{value:.4f}' for value in np.mean(rows, axis=0))} | {words} |")


def main() -> None:
    """Run or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "messages", "private"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("guide.jsonl"))
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--replicates", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    parser.add_argument("--methods", nargs="+")
    given = parser.parse_args()
    {"run": run, "show": show, "messages": messages, "private": private}[given.what](given)


if __name__ == "__main__":
    main()
