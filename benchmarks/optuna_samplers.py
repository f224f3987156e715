"""`fedbo.optuna.Sampler` beside Optuna's samplers, SMAC and nevergrad: ranks on mixed problems, and time for each suggestion.

SMAC (its facade for hyperparameters) and nevergrad (NGOpt) get the union of all parameters that 200 random trials ask for, and
those that a configuration does not use are ignored. They are left out where they are not installed.

python benchmarks/optuna_samplers.py --seeds 10 --trials 60 --out ranks.json
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
from sklearn import datasets, model_selection, svm, tree

from fedbo.optuna import Sampler

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

SAMPLERS: dict[str, Callable[[int], Any]] = {
    "fedbo": lambda seed: Sampler(seed=seed),
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


def best(study: Any) -> float:
    return min(trial.user_attrs.get("true", trial.value) for trial in study.trials)


def union(function: Any) -> dict[str, Any]:
    """Return the distributions of all parameters that random trials ask for."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(function, n_trials=200)
    return {name: held for trial in study.trials for name, held in trial.distributions.items()}


def value_at(function: Any, params: dict[str, Any]) -> tuple[float, float]:
    """Return the value of a configuration, and its value without noise."""
    trial = optuna.trial.FixedTrial(params)
    value = function(trial)
    return value, trial.user_attrs.get("true", value)


def by_nevergrad(function: Any, seed: int, trials: int) -> float:
    """Let NGOpt minimise a problem; return the best value."""
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

    space = ng.p.Dict(**{name: part(held) for name, held in union(function).items()})
    space.random_state.seed(seed)
    optimizer, found = ng.optimizers.NGOpt(space, budget=trials), []
    for _ in range(trials):
        asked = optimizer.ask()
        value, true = value_at(function, asked.value)
        optimizer.tell(asked, value)
        found.append(true)
    return min(found)


def by_smac(function: Any, seed: int, trials: int) -> float:
    """Let SMAC's facade for hyperparameters minimise a problem; return the best value."""
    import tempfile

    from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
    from smac import HyperparameterOptimizationFacade, Scenario

    space, found = ConfigurationSpace(seed=seed), list[float]()
    steps: dict[str, Any] = {}
    for name, held in union(function).items():
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
        value, true = value_at(function, given)
        found.append(true)
        return value

    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(space, deterministic=True, n_trials=trials, seed=seed, output_directory=Path(folder))
        HyperparameterOptimizationFacade(scenario, target, overwrite=True, logging_level=False).optimize()
    return min(found)


RIVALS = {"SMAC": by_smac, "nevergrad": by_nevergrad}


def ranks(seeds: int, trials: int, only: list[str], problems: list[str]) -> dict[str, Any]:
    found: dict[str, dict[str, list[float]]] = {}
    for problem in problems:
        function = PROBLEMS[problem]
        for name in only:
            for seed in range(seeds):
                began = time.process_time()
                if name in RIVALS:
                    end = RIVALS[name](function, seed, trials)
                else:
                    study = optuna.create_study(sampler=SAMPLERS[name](seed))
                    study.optimize(function, n_trials=trials)
                    end = best(study)
                found.setdefault(problem, {}).setdefault(name, []).append(end)
                print(f"{problem}, {name}, {seed}: {end:.4g} ({time.process_time() - began:.1f} s)", flush=True)
    return found


def table(found: dict[str, dict[str, list[float]]]) -> None:
    """Print mean ranks of the samplers with intervals of 95 % by a bootstrap over problems and seeds, and medians."""
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
        print(f"{name}: mean rank {grid[:, place].mean():.2f} [{low[place]:.2f}, {high[place]:.2f}]")


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
    parser.add_argument("--only", nargs="*", default=[*SAMPLERS, *there])
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--times", nargs="*", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.times:
        times(given.times, given.only)
    else:
        results = ranks(given.seeds, given.trials, given.only, given.problems)
        if given.out:
            given.out.write_text(json.dumps(results), encoding="utf-8")
        table(results)
