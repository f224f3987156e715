"""`fedbo.optuna.Sampler` beside Optuna's samplers, SMAC and nevergrad: ranks on mixed problems, and time for each suggestion.

SMAC (its facade for hyperparameters) and nevergrad (NGOpt) get the union of all parameters that 200 random trials ask for, and
those that a configuration does not use are ignored. They are left out where they are not installed. `--set new` takes the
problems of `mixed_problems.py`, on which no method was developed.

The best value after 20, 60 and 200 evaluations is of one run. An evaluation that fails is a failed trial for `Sampler`, which
learns from it. All others are told the worst value so far in its place, as TPE leaves failed trials out and nevergrad knows
none. Every result is a line of `--out`: run it again to continue, in another environment if need be. `--table` prints alone.

python benchmarks/optuna_samplers.py --seeds 10 --trials 60 --out ranks.jsonl
python benchmarks/optuna_samplers.py --set new --seeds 10 --trials 200 --out new.jsonl
python benchmarks/optuna_samplers.py --times 50 200 1000
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from mixed_problems import PROBLEMS as NEW
from mixed_problems import Failed
from sklearn import datasets, model_selection, svm, tree

MARKS = (20, 60, 200)  # evaluations after which the best value is kept
ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
A = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]])
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")


def ours(seed: int) -> Any:
    from fedbo.optuna import Sampler  # not where SMAC and nevergrad have an environment of their own

    return Sampler(seed=seed)


SAMPLERS: dict[str, Callable[[int], Any]] = {
    "fedbo": ours,
    "TPE": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "TPE, multivariate, group": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True),
    "GPSampler": lambda seed: optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


def branin(t: Any) -> float:
    x, y = t.suggest_float("x", -5.0, 10.0), t.suggest_float("y", 0.0, 15.0)
    a = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return float(a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def ackley(t: Any) -> float:
    x = np.array([t.suggest_float(f"x{i}", -5.0, 10.0) for i in range(3)] + [t.suggest_int(f"n{i}", -5, 10) for i in range(2)])
    first = -20.0 * np.exp(-0.2 * np.sqrt(np.mean(x**2)))
    return float(first - np.exp(np.mean(np.cos(2 * np.pi * x))) + 20.0 + math.e)


def training(t: Any) -> float:
    """A bowl in logarithms, whole numbers, a step and a category, as of a training."""
    rate, width = t.suggest_float("rate", 1e-5, 1.0, log=True), t.suggest_int("width", 8, 512, log=True)
    drop, kind = t.suggest_float("drop", 0.0, 0.8, step=0.1), t.suggest_categorical("kind", ["adam", "sgd", "rms", "lion"])
    shift = {"adam": 0.0, "sgd": 1.5, "rms": 0.3, "lion": -1.0}[kind]
    worse = {"adam": 0.1, "sgd": 0.0, "rms": 0.3, "lion": 0.2}[kind]
    return float((math.log10(rate) + 3 - shift) ** 2 * 0.3 + (math.log2(width) - 7) ** 2 * 0.1 + abs(drop - 0.3) + worse)


def branches(t: Any) -> float:
    """A choice of models, each with parameters of its own."""
    kind = t.suggest_categorical("kind", ["linear", "tree", "net"])
    if kind == "linear":
        return float(0.6 + 0.1 * (math.log10(t.suggest_float("C", 1e-3, 1e3, log=True)) - 1) ** 2)
    if kind == "tree":
        depth, leaves = t.suggest_int("depth", 1, 20), t.suggest_int("leaves", 1, 50)
        return float(0.3 + 0.004 * (depth - 9) ** 2 + 0.0005 * (leaves - 20) ** 2)
    rate, units = t.suggest_float("rate", 1e-5, 1e-1, log=True), t.suggest_int("units", 4, 256, log=True)
    return float(0.2 + 0.3 * (math.log10(rate) + 2.5) ** 2 + 0.05 * (math.log2(units) - 6.0) ** 2)


def layers(t: Any) -> float:
    """A number of layers, each with its width."""
    count, rate = t.suggest_int("layers", 1, 4), t.suggest_float("rate", 1e-5, 1e-1, log=True)
    widths = [math.log2(t.suggest_int(f"width {place}", 4, 256, log=True)) for place in range(count)]
    misfit = sum((width - 7 + place) ** 2 for place, width in enumerate(widths)) / count
    return float(0.2 * (count - 3) ** 2 + 0.1 * misfit + 0.2 * (math.log10(rate) + 3) ** 2)


def noisy(t: Any) -> float:
    """A valley in four numbers, observed with noise; the value without noise counts."""
    x = np.array([t.suggest_float(f"x{place}", -2.0, 2.0) for place in range(4)])
    value = float(np.log1p(np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)))
    t.set_user_attr("true", value)
    return value + 0.3 * float(np.random.default_rng(abs(hash((t.number, round(value, 9)))) % 2**32).standard_normal())


def choices(t: Any) -> float:
    """Categories alone, whose values add up with one pair that matters."""
    picks = [t.suggest_categorical(f"c{place}", list("abcdef")) for place in range(5)]
    scores = [abs("abcdef".index(pick) * 7 % 6 - 2 - place % 3) for place, pick in enumerate(picks)]
    return float(sum(scores) + 2.0 * (picks[0] != picks[4]))


def hartmann(t: Any) -> float:
    """Hartmann's function of six numbers."""
    x = np.array([t.suggest_float(f"x{place}", 0.0, 1.0) for place in range(6)])
    return -float(ALPHA @ np.exp(-np.sum(A * (x - P) ** 2, axis=1)))


def valley(t: Any) -> float:
    """Rosenbrock's valley in two numbers, a stepped one and two whole ones."""
    x = [t.suggest_float("x0", -2.0, 2.0), t.suggest_float("x1", -2.0, 2.0), t.suggest_float("x2", -2.0, 2.0, step=0.1)]
    x += [t.suggest_int("n0", -2, 2), t.suggest_int("n1", -2, 2)]
    z = np.array(x)
    return float(np.sum(100.0 * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2))


def nested(t: Any) -> float:
    """Branches within branches, and a parameter that two of them share."""
    value = 0.3 * (math.log10(t.suggest_float("rate", 1e-5, 1.0, log=True)) + 2.0) ** 2
    if t.suggest_categorical("optimiser", ["adam", "sgd"]) == "sgd":
        value += 0.2 + abs(t.suggest_float("momentum", 0.0, 0.99) - 0.9)
        if t.suggest_categorical("nesterov", [True, False]):
            value += abs(t.suggest_float("damping", 0.0, 1.0) - 0.2) - 0.35
    if t.suggest_categorical("decay", ["none", "step", "cosine"]) != "none":
        value += 0.05 * (t.suggest_int("epochs", 1, 50) - 20) ** 2 / 20 - 0.1
    return float(value)


@cache
def digits() -> tuple[Any, Any]:
    x, y = datasets.load_digits(return_X_y=True)
    return x[:400] / 16.0, y[:400]


def vectors(t: Any) -> float:
    """The error of a support vector machine on handwritten digits, by cross-validation."""
    kernel = t.suggest_categorical("kernel", ["rbf", "poly", "linear"])
    given = {"C": t.suggest_float("C", 1e-3, 1e3, log=True), "kernel": kernel}
    if kernel != "linear":
        given["gamma"] = t.suggest_float("gamma", 1e-5, 1e2, log=True)
    if kernel == "poly":
        given["degree"] = t.suggest_int("degree", 2, 5)
    return 1.0 - float(model_selection.cross_val_score(svm.SVC(**given), *digits(), cv=3).mean())


def trees(t: Any) -> float:
    """The error of one decision tree on handwritten digits, by cross-validation."""
    model = tree.DecisionTreeClassifier(
        max_depth=t.suggest_int("depth", 1, 30),
        min_samples_leaf=t.suggest_int("leaf", 1, 60, log=True),
        min_impurity_decrease=t.suggest_float("decrease", 1e-6, 0.1, log=True),
        max_features=t.suggest_categorical("features", ["sqrt", "log2", None]),
        criterion=t.suggest_categorical("criterion", ["gini", "entropy"]),
        random_state=0,
    )
    return 1.0 - float(model_selection.cross_val_score(model, *digits(), cv=3).mean())


PROBLEMS = {
    each.__name__: each
    for each in (branin, ackley, training, branches, layers, noisy, choices, hartmann, valley, nested, vectors, trees)
}


class Watched:
    """A problem that keeps the value without noise of each evaluation, infinite where it failed, and the worst one told."""

    def __init__(self, function: Callable[[Any], float]) -> None:
        self.function, self.true, self.worst = function, list[float](), -math.inf

    def __call__(self, trial: Any) -> float | None:
        """Evaluate; return nothing where it fails."""
        try:
            value = self.function(trial)
        except Failed:
            self.true.append(math.inf)
            return None
        self.true.append(trial.user_attrs.get("true", value))
        self.worst = max(self.worst, value)
        return value

    def at(self, params: dict[str, Any]) -> float | None:
        """Evaluate a configuration; return the worst value so far where it fails, and nothing where there is none yet."""
        value = self(optuna.trial.FixedTrial(params, number=len(self.true)))
        return self.worst if value is None and math.isfinite(self.worst) else value


def by_optuna(name: str, problem: Watched, seed: int, trials: int) -> None:
    """Let a sampler minimise a problem in Optuna."""
    study = optuna.create_study(sampler=SAMPLERS[name](seed))
    for _ in range(trials):
        trial = study.ask()
        value = problem(trial)
        if value is None and (name == "fedbo" or not math.isfinite(problem.worst)):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, problem.worst if value is None else value)


def union(function: Any) -> dict[str, Any]:
    """Return the distributions of all parameters that random trials ask for."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(function, n_trials=200, catch=(Failed,))
    return {name: held for trial in study.trials for name, held in trial.distributions.items()}


def by_nevergrad(problem: Watched, seed: int, trials: int) -> None:
    """Let NGOpt minimise a problem."""
    import nevergrad as ng

    def part(held: Any) -> Any:
        if hasattr(held, "choices"):
            return ng.p.Choice(list(held.choices))
        if held.step is not None and held.step != 1:
            return ng.p.TransitionChoice(
                [held.low + held.step * i for i in range(round((held.high - held.low) / held.step) + 1)]
            )
        made = (ng.p.Log if held.log else ng.p.Scalar)(lower=held.low, upper=held.high)
        return made.set_integer_casting() if isinstance(held.low, int) else made

    space = ng.p.Dict(**{name: part(held) for name, held in union(problem.function).items()})
    space.random_state.seed(seed)
    optimizer = ng.optimizers.NGOpt(space, budget=trials)
    for _ in range(trials):
        asked = optimizer.ask()
        value = problem.at(asked.value)
        if value is not None:
            optimizer.tell(asked, value)


def by_smac(problem: Watched, seed: int, trials: int) -> None:
    """Let SMAC's facade for hyperparameters minimise a problem."""
    import tempfile

    from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
    from smac import HyperparameterOptimizationFacade, Scenario

    space = ConfigurationSpace(seed=seed)
    steps: dict[str, Any] = {}
    for name, held in union(problem.function).items():
        if hasattr(held, "choices"):
            steps[name] = list(held.choices)
            space.add(Categorical(name, list(range(len(held.choices)))))
        elif held.step is not None and held.step != 1:
            steps[name] = [held.low + held.step * i for i in range(round((held.high - held.low) / held.step) + 1)]
            space.add(Integer(name, (0, len(steps[name]) - 1)))
        else:
            space.add((Integer if isinstance(held.low, int) else Float)(name, (held.low, held.high), log=held.log))

    def target(config: Any, seed: int = 0) -> float:
        given = {name: steps[name][int(value)] if name in steps else value for name, value in dict(config).items()}
        value = problem.at(given)
        if value is None:
            raise Failed("no value yet, which counts as a crash")
        return value

    with tempfile.TemporaryDirectory() as folder:
        crash = {"crash_cost": 100.0}  # before there is a value; its forest takes no infinite one
        scenario = Scenario(space, deterministic=True, n_trials=trials, seed=seed, output_directory=Path(folder), **crash)
        HyperparameterOptimizationFacade(scenario, target, overwrite=True, logging_level=False).optimize()


RIVALS = {"SMAC": by_smac, "nevergrad": by_nevergrad}


Key = tuple[str, str, int]  # a problem, a sampler and a seed


def ran(out: Path | None, trials: int) -> dict[Key, dict[str, Any]]:
    """Return the results of a file that tell the best value after that many trials."""
    lines = out.read_text(encoding="utf-8").splitlines() if out and out.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["problem"], row["sampler"], row["seed"]): row for row in rows if str(trials) in row["best"]}


def run(function: Callable[[Any], float], name: str, seed: int, trials: int) -> dict[str, Any]:
    problem, began = Watched(function), time.process_time()
    if name in RIVALS:
        RIVALS[name](problem, seed, trials)
    else:
        by_optuna(name, problem, seed, trials)
    spent, marks = time.process_time() - began, sorted({*(mark for mark in MARKS if mark < trials), trials})
    best = {str(mark): min(problem.true[:mark]) for mark in marks}
    return {"seed": seed, "trials": trials, "best": best, "failed": problem.true.count(math.inf), "seconds": round(spent, 2)}


def run_missing(given: argparse.Namespace, problems: dict[str, Callable[[Any], float]]) -> dict[Key, dict[str, Any]]:
    """Run what the file does not have, one seed after another; return all results."""
    found = ran(given.out, given.trials)
    for seed in range(given.seeds):
        for problem in given.problems or problems:
            for name in given.only:
                if (problem, name, seed) not in found:
                    row = {"problem": problem, "sampler": name, **run(problems[problem], name, seed, given.trials)}
                    found[problem, name, seed] = row
                    print(json.dumps(row), flush=True)
                    if given.out:
                        with given.out.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(row) + "\n")
    return found


def tables(found: dict[Key, dict[str, Any]], problems: list[str], names: list[str], trials: int) -> None:
    """Print the tables of every mark, of the seeds that all samplers have, and the seconds of a run without the evaluations."""
    seeds = [seed for seed in range(1000) if all((p, name, seed) in found for p in problems for name in names)]
    if not seeds:
        raise SystemExit("no seed has been run with all samplers on all problems")
    for mark in map(str, sorted({*(mark for mark in MARKS if mark < trials), trials})):
        print(f"## {mark} evaluations, {len(seeds)} seeds")
        table({p: {name: [found[p, name, seed]["best"][mark] for seed in seeds] for name in names} for p in problems})
    for name in names:
        rows = [found[p, name, seed] for p in problems for seed in seeds]
        spent = 1e3 * statistics.median(row["seconds"] / row["trials"] for row in rows)
        print(f"{name}: {spent:.1f} ms for an evaluation and its decision")


def table(found: dict[str, dict[str, list[float]]]) -> None:
    """Print medians, mean ranks and their differences to the first sampler, with 95 % bootstraps over problems and seeds."""
    names = list(next(iter(found.values())))
    ranked = {}
    for problem, values in found.items():
        grid = np.array([values[name] for name in names])  # (samplers, seeds)
        below, same = (grid[None] < grid[:, None]).sum(1), (grid[None] == grid[:, None]).sum(1)
        ranked[problem] = below + (same + 1) / 2
        medians = ", ".join(f"{name} {statistics.median(values[name]):.4g}" for name in names)
        print(f"{problem}: medians {medians}; mean ranks {np.round(ranked[problem].mean(1), 2).tolist()}")
    grid = np.array(list(ranked.values()))  # (problems, samplers, seeds)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(2000):
        chosen = rng.integers(len(grid), size=len(grid))
        drawn.append(np.mean([grid[p][:, rng.integers(grid.shape[2], size=grid.shape[2])].mean(1) for p in chosen], axis=0))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    for place, name in enumerate(names):
        behind = np.array(drawn)[:, place] - np.array(drawn)[:, 0]
        least, most = np.quantile(behind, [0.025, 0.975])
        print(
            f"{name}: mean rank {grid[:, place].mean():.2f} [{low[place]:.2f}, {high[place]:.2f}], behind {names[0]} "
            f"{behind.mean():+.2f} [{least:+.2f}, {most:+.2f}]"
        )


def times(counts: list[int], only: list[str]) -> None:
    """Print the processor seconds of a suggestion after some trials, the median of five."""
    for name in only:
        for count in counts:
            study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
            study.optimize(training, n_trials=count)
            study.sampler = SAMPLERS[name](0)
            spent = []
            for _ in range(6):
                began = time.process_time()
                trial = study.ask()
                value = training(trial)
                spent.append(time.process_time() - began)
                study.tell(trial, value)
            print(
                f"{name}, n = {count}: first {1e3 * spent[0]:.1f} ms, then {1e3 * statistics.median(spent[1:]):.1f} ms",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=60)
    there = [name for name in RIVALS if find_spec(name.lower())]
    parser.add_argument(
        "--only", nargs="*", default=[*(name for name in SAMPLERS if name != "GPSampler" or find_spec("torch")), *there]
    )
    parser.add_argument("--set", choices=("old", "new"), default="old")
    parser.add_argument("--problems", nargs="*")
    parser.add_argument("--times", nargs="*", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_args()
    chosen: dict[str, Callable[[Any], float]] = NEW if given.set == "new" else PROBLEMS
    if given.times:
        times(given.times, given.only)
    else:
        results = ran(given.out, given.trials) if given.table else run_missing(given, chosen)
        tables(results, given.problems or list(chosen), given.only, given.trials)
