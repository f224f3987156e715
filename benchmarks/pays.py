"""Where federation pays: regret by likeness, scales, an earlier task and failures, over functions whose truth is known.

    python benchmarks/pays.py --out pays.jsonl [--replicates 8] [--figure pays.png] [--time 3]

Agents' functions are draws on the unit square with variance 1 and length scale 0.2; any two have the correlation `likeness`.
With `units`, each agent observes its function times exp(N(0, 1)), plus N(0, 10^2). With `earlier`, each agent has that many
evaluations of a function that has the correlation 0.9 with its own. Evaluations fail over the share `failing` of the square,
the same for all. A regret is the gap to the best point, in standard deviations of the function.

Every line of the file is one method in one world. Run it again to continue after an interruption, or for more replicates.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import qmc
from scipy.stats import t as student

from fedbo.algorithms.base import Algorithm, Avoiding, Decision, Problem
from fedbo.algorithms.catalog import entry
from fedbo.objectives.models.cosines import drawn_cosines
from fedbo.testing.lockstep import Lockstep, noisy

Array = npt.NDArray[np.float64]
AGENTS, INITIAL, DECISIONS, EARLIER, RELATED, LENGTH = 8, 3, 5, 12, 0.9, 0.2
AXES = {"likeness": (0.0, 0.5, 0.9), "units": (False, True), "earlier": (0, EARLIER), "failing": (0.0, 0.3)}
TIMES = (1, 3, DECISIONS)
FEW = 4  # worlds below which an interval would say nothing
METHODS: dict[str, dict[str, Any]] = {
    "gp_ei": {},
    "gp_ei_earlier": {},
    "fed_prior": {"every": 1},
    "fed_prior_shuffled": {"every": 1},
    "share_best": {"every": 1},
    "trust_best": {},
    "trust_best_noise": {},
}
FEDERATED = ("fed_prior", "share_best", "trust_best")


class Cell(NamedTuple):
    """One point of the map."""

    likeness: float
    units: bool
    earlier: int
    failing: float


Found = dict[tuple[int, Cell, str], Array]


@dataclass(frozen=True)
class World:
    """The functions of all agents at points of the square, as sums of cosines, and what is true of them."""

    present: list[tuple[Array, Array, Array]]
    before: list[tuple[Array, Array, Array]]
    obstacle: tuple[Array, Array, Array]
    level: float
    scale: Array
    offset: Array
    best: Array
    points: Array

    def fails(self, x: Array) -> npt.NDArray[np.bool_]:
        """Tell where evaluations fail, `(n,)`."""
        return _cosines(x, self.obstacle) < self.level

    def values(self, x: Array, agent: int) -> Array:
        """Return what an agent observes `(n,)`; NaN where the evaluation fails."""
        seen = self.offset[agent] + self.scale[agent] * _cosines(x, self.present[agent])
        return np.where(self.fails(x), np.nan, seen)

    def earlier(self, agent: int) -> tuple[Array, Array]:
        """Return an agent's successful evaluations of an earlier task."""
        x = self.points[agent][~self.fails(self.points[agent])]
        return x, self.offset[agent] + self.scale[agent] * _cosines(x, self.before[agent])


def _cosines(x: Array, drawn: tuple[Array, Array, Array]) -> Array:
    frequencies, phases, amplitudes = drawn
    return np.asarray(np.cos(x @ frequencies.T + phases) @ amplitudes)


def world(cell: Cell, replicate: int) -> World:
    """Draw a world, the same for cells that differ in units and the earlier task alone; others are independent."""
    place = [replicate, AXES["likeness"].index(cell.likeness), AXES["failing"].index(cell.failing)]

    def drawn(variance: float, *name: int) -> tuple[Array, Array, Array]:
        return drawn_cosines(np.random.default_rng([*place, *name]), 2, LENGTH, variance)

    def mixed(*parts: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        frequencies, phases, amplitudes = (np.concatenate(held) for held in zip(*parts, strict=True))
        return frequencies, phases, amplitudes

    present, before = [], []
    for agent in range(AGENTS):
        common, own = drawn(cell.likeness, 0), drawn(1.0 - cell.likeness, 1, agent)
        present.append(mixed(common, own))
        frequencies, phases, amplitudes = present[-1]
        before.append(mixed((frequencies, phases, np.sqrt(RELATED) * amplitudes), drawn(1.0 - RELATED, 2, agent)))
    rng = np.random.default_rng([*place, 3])
    scale, offset = np.exp(rng.standard_normal(AGENTS)), 10.0 * rng.standard_normal(AGENTS)
    grid = qmc.Sobol(2, scramble=False).random(2**13)
    obstacle = drawn(1.0, 4)
    level = float(np.quantile(_cosines(grid, obstacle), cell.failing)) if cell.failing else -np.inf
    kept = grid[_cosines(grid, obstacle) >= level]
    best = np.array([_cosines(kept, one).max() for one in present])
    plain = np.ones(AGENTS), np.zeros(AGENTS)
    scales = (scale, offset) if cell.units else plain
    points = rng.random((AGENTS, max(cell.earlier, 1), 2))
    return World(present, before, obstacle, level, *scales, best, points)


class Failing(Lockstep):
    """The same with evaluations that fail, as in a study with `failure = "avoid"`."""

    def tell(self, agent: int, decision: Decision) -> None:
        """Report successful evaluations; failed ones are avoided, or count as the worst value so far."""
        y = self.evaluate(decision, self.streams.of(agent).at(self.step))
        self.observed[agent].append((decision.x, y))
        done = ~np.isnan(y)
        if not done.all():
            assert isinstance(self.algorithm, Avoiding)
            held = [x[np.isnan(values)] for x, values in self.observed[agent]]
            self.states[agent] = self.algorithm.avoiding(self.states[agent], np.concatenate(held))
        if done.any():
            self.states[agent] = self.algorithm.tell(self.states[agent], decision.x[done], y[done])


def regrets(name: str, cell: Cell, replicate: int) -> Array:
    """Return the regret at `TIMES`, the mean over agents; before an agent's first success it is that of a random point."""
    drawn = world(cell, replicate)
    algorithm: Algorithm = entry(name.removesuffix("_earlier")).make(**METHODS[name])
    histories = [drawn.earlier(agent) for agent in range(AGENTS)] if cell.earlier else []
    problem = Problem(2, AGENTS, tuple(range(AGENTS)), INITIAL, DECISIONS, history=cell.earlier)
    run = Failing(algorithm, problem, noisy(drawn.values), replicate, histories)
    if name == "gp_ei_earlier":
        run.states = [algorithm.tell(state, *histories[agent]) for agent, state in enumerate(run.states)]
    run.begin()
    run.exchange()
    run.run(DECISIONS)
    found = []
    for agent, observed in enumerate(run.observed):
        rounds = np.array([np.nanmax(np.append(y, np.nan if (~np.isnan(y)).any() else -np.inf)) for _, y in observed])
        best = np.maximum.accumulate((rounds - drawn.offset[agent]) / drawn.scale[agent])
        found.append(drawn.best[agent] - np.where(np.isfinite(best), best, 0.0))
    return np.asarray(np.mean(found, axis=0)[list(TIMES)])


def representative(cell: Cell, name: str) -> Cell:
    """Return the cell whose runs stand for this one.

    Only `fed_prior` sends values, so that units change no other method; its controls are not run with them. `gp_ei` does not
    use an earlier task.
    """
    if name != "fed_prior":
        cell = cell._replace(units=False)
    return cell._replace(earlier=0) if name == "gp_ei" else cell


def cells() -> list[Cell]:
    """List the cells of the map."""
    return [Cell(*values) for values in product(*AXES.values())]


def runs(replicates: int, methods: Sequence[str]) -> Iterator[tuple[int, Cell, str]]:
    """List what is to be run, replicate by replicate."""
    for replicate, cell, name in product(range(replicates), cells(), methods):
        if representative(cell, name) == cell and (cell.earlier or name != "gp_ei_earlier"):
            yield replicate, cell, name


def run_all(out: Path, replicates: int, methods: Sequence[str]) -> Found:
    """Run what is missing in a file, line by line, and return the regrets of all."""
    found: Found = {}
    for line in out.read_text().splitlines() if out.exists() else []:
        row = json.loads(line)
        found[row["replicate"], Cell(*row["cell"]), row["method"]] = np.array(row["regret"])
    with out.open("a") as file:
        for replicate, cell, name in runs(replicates, methods):
            if (replicate, cell, name) in found:
                continue
            begun = time.process_time()
            found[replicate, cell, name] = regret = regrets(name, cell, replicate)
            row = {"replicate": replicate, "cell": cell, "method": name, "regret": regret.tolist()}
            print(json.dumps({**row, "seconds": round(time.process_time() - begun, 2)}), file=file, flush=True)
    return found


def gains(found: Found, method: str, base: str, chosen: Callable[[Cell], bool]) -> Array:
    """Return by how much regrets of a method are below those of another `(n, times)`, a row for each independent world.

    A row is the mean over the chosen cells that share the world and have both.
    """
    apart: dict[tuple[float, ...], list[Array]] = {}
    for replicate, cell in product(sorted({replicate for replicate, _, _ in found}), filter(chosen, cells())):
        mine, other = ((replicate, representative(cell, name), name) for name in (method, base))
        if mine in found and other in found:
            apart.setdefault((replicate, cell.likeness, cell.failing), []).append(found[other] - found[mine])
    return np.array([np.mean(rows, axis=0) for rows in apart.values()]).reshape(-1, len(TIMES))


def interval(apart: Array) -> Array:
    """Return half of the 95 % interval of the mean of each column; NaN for fewer than `FEW` rows."""
    if len(apart) < FEW:
        return np.full(apart.shape[1], np.nan)
    return np.asarray(student.ppf(0.975, len(apart) - 1) * apart.std(axis=0, ddof=1) / np.sqrt(len(apart)))


def _is(cell: Cell, **values: float) -> bool:
    return all(getattr(cell, axis) == value for axis, value in values.items())


def tables(found: Found) -> Iterator[str]:
    """Write the gains of each method over `gp_ei`, and over its control, at each value of each axis."""
    pairs = [(name, "gp_ei") for name in FEDERATED] + [("fed_prior", "fed_prior_shuffled"), ("trust_best", "trust_best_noise")]
    pairs += [("gp_ei_earlier", "gp_ei")]
    yield "| where | method | over | " + " | ".join(f"t = {t}" for t in TIMES) + " | worlds |"
    yield "|---" * (len(TIMES) + 4) + "|"
    places = [("anywhere", partial(_is))]
    places += [(f"{axis} {value:g}", partial(_is, **{axis: value})) for axis, values in AXES.items() for value in values]
    for likeness, earlier in product(AXES["likeness"], AXES["earlier"]):
        places.append((f"likeness {likeness:g}, earlier {earlier:g}", partial(_is, likeness=likeness, earlier=earlier)))
    for (words, chosen), (method, base) in product(places, pairs):
        apart = gains(found, method, base, chosen)
        if len(apart):
            each = zip(apart.mean(axis=0), interval(apart), strict=True)
            shown = [f"{mean:+.2f}" + (f" ± {half:.2f}" if half == half else "") for mean, half in each]
            yield f"| {words} | `{method}` | `{base}` | {' | '.join(shown)} | {len(apart)} |"


def figure(found: Found, path: Path, time: int) -> None:
    """Draw the gains over `gp_ei` by likeness after so many decisions, without and with an earlier task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(1, 2, figsize=(8.0, 3.8), sharex=True, sharey=True)
    lines = {
        "gp_ei_earlier": "k:D",
        "share_best": "C0-o",
        "trust_best": "C1-s",
        "trust_best_noise": "C1--",
        "fed_prior": "C2-^",
    }
    for panel, earlier in zip(axes, AXES["earlier"], strict=True):
        for number, (name, style) in enumerate(lines.items()):
            here = [gains(found, name, "gp_ei", partial(_is, likeness=one, earlier=earlier)) for one in AXES["likeness"]]
            if all(map(len, here)):
                mean, half = np.array([(one.mean(axis=0), interval(one)) for one in here])[:, :, TIMES.index(time)].T
                x = np.array(AXES["likeness"]) + 0.012 * (number - 2)
                panel.errorbar(x, mean, half, fmt=style, ms=4, lw=1.2, elinewidth=0.8, label=name)
        panel.axhline(0.0, color="0.5", lw=0.8)
        panel.set_title(f"{earlier} earlier evaluations" if earlier else "no earlier task", fontsize=10)
        panel.set_xlabel("likeness: correlation of two agents")
    axes[0].set_ylabel("gain over gp_ei, standard deviations")
    axes[-1].legend(fontsize=8, frameon=False, loc="upper left")
    drawn.suptitle(f"Regret after {time} decisions, 95 % intervals", fontsize=10)
    drawn.tight_layout()
    drawn.savefig(path, dpi=150)


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("pays.jsonl"))
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS], help="methods to run")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--time", type=int, choices=TIMES, default=3)
    given = parser.parse_args()
    found = run_all(given.out, given.replicates, given.methods)
    print("\n".join(tables(found)))
    if given.figure:
        figure(found, given.figure, given.time)


if __name__ == "__main__":
    main()
