"""One agent on functions that fail in a part of their space: failed evaluations and the best value, beside other libraries.

    python benchmarks/failing.py [--tasks slope branin] [--methods gp_ei ts random tpe] [--seeds 10] [--out FILE] [--table]

Six functions fail in a region and one by chance. `slope` and `ackley` have their optima on and next to the border of the
region, and `network` has categories, whole numbers and conditions. Our methods begin with ten uniform points, as Optuna's
samplers do. An evaluation that fails raises. In Optuna its trial is failed, or pruned with `tpe_pruned`. SMAC records a
crashed trial, at a cost of 100. Optuna's `gpsampler` needs PyTorch. Methods that are not installed are left out.

With `--out FILE` each result is a line of the file, and those in it are not run again. `--from FILE ...` prints their table.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402

Configuration = dict[str, Any]
INITIAL = 10


class Failed(ValueError):
    """The failure of an evaluation."""


class Task(NamedTuple):
    """A function to maximise: value of a configuration, with a generator for chance; its space, and the optimum if known."""

    value: Callable[[Configuration, np.random.Generator], float]
    space: dict[str, Any]


def _box(dim: int) -> dict[str, Any]:
    return {f"x{k}": {"low": 0.0, "high": 1.0} for k in range(dim)}


def _point(configuration: Configuration) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([configuration[name] for name in sorted(configuration)])


def _unless(fails: Any) -> None:
    if fails:
        raise Failed("diverged")


def slope(c: Configuration, rng: np.random.Generator) -> float:
    """The optimum, 1, lies at (.4, .6), on the border of what fails: half of the square."""
    x = _point(c)
    _unless(x.sum() > 1)
    return float(x.sum() - (x[0] - 0.4) ** 2 - 0.5 * (x[1] - 0.6) ** 2)


def branin(c: Configuration, rng: np.random.Generator) -> float:
    """A third of the square fails, with one of the three optima in it."""
    x = _point(c)
    _unless(x[0] < 0.35)
    a, b = 15 * x[0] - 5, 15 * x[1]
    return -float((b - 5.1 * a**2 / (4 * np.pi**2) + 5 * a / np.pi - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def ackley(c: Configuration, rng: np.random.Generator) -> float:
    """Half of the cube fails, beside the optimum, which is 0."""
    x = _point(c)
    _unless(x.sum() > 2.0)
    z = 4 * (x - [0.55, 0.45, 0.5, 0.45])
    return -float(20 + np.e - 20 * np.exp(-0.2 * np.sqrt((z**2).mean())) - np.exp(np.cos(2 * np.pi * z).mean()))


def narrow(c: Configuration, rng: np.random.Generator) -> float:
    """All fails but for 30 % of the cube; the optimum is 0."""
    x = _point(c)
    _unless(not (0.2 < x[0] < 0.65 and x[1] < 0.67))
    return -float(20 * (x[0] - 0.6) ** 2 + (x[1] - 0.3) ** 2 + 0.3 * (x[2] - 0.5) ** 2)


A = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]])
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(x: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Compute Hartmann's function of six inputs, with the maximum 3.322."""
    return float(np.array([1, 1.2, 3, 3.2]) @ np.exp(-(A * (x - P) ** 2).sum(axis=1)))


def balls(c: Configuration, rng: np.random.Generator) -> float:
    """Three balls fail, 40 % of the cube."""
    x = _point(c)
    _unless(min(float(((x - centre) ** 2).sum()) for centre in (0.5, 0.2, 0.8)) < 0.4)
    return hartmann(x)


def chance(c: Configuration, rng: np.random.Generator) -> float:
    """A quarter of all evaluations fails, wherever they are."""
    _unless(rng.random() < 0.25)
    return hartmann(_point(c))


def network(c: Configuration, rng: np.random.Generator) -> float:
    """Training diverges at large learning rates, at smaller ones with momentum; the optimum, .93, is near that border."""
    rate = np.log10(c["rate"])
    sgd = c["optimiser"] == "sgd"
    limit = -0.5 - 1.2 * c["momentum"] if sgd else -2.2
    _unless(rate > limit - 0.1 * c["layers"])
    best = limit - 0.1 * c["layers"] - 0.4
    loss = 0.08 * (rate - best) ** 2 + 0.03 * (c["layers"] - 4) ** 2 + (0.2 * (c["momentum"] - 0.8) ** 2 if sgd else 0.04)
    return float(0.93 - loss)


NETWORK = {
    "optimiser": {"choices": ["sgd", "adam"]},
    "rate": {"low": 1e-5, "high": 1.0, "log": True},
    "layers": {"low": 1, "high": 8, "type": "int"},
    "momentum": {"low": 0.0, "high": 0.99, "when": {"optimiser": "sgd"}},
}
TASKS = {
    "slope": Task(slope, _box(2)),
    "branin": Task(branin, _box(2)),
    "ackley": Task(ackley, _box(4)),
    "narrow": Task(narrow, _box(3)),
    "balls": Task(balls, _box(6)),
    "chance": Task(chance, _box(6)),
    "network": Task(network, NETWORK),
}
Evaluate = Callable[[Configuration], float]


def ours(name: str, task: Task, evaluate: Evaluate, budget: int, seed: int) -> None:
    """Let one agent of an algorithm evaluate as often as the budget says, without a simulation."""
    from fedbo.actors.evaluation.failed_points import other_than, with_failures
    from fedbo.algorithms.base import Decision, Problem
    from fedbo.algorithms.catalog import entry
    from fedbo.algorithms.streams import Streams
    from fedbo.objectives.typed_spaces.declared_space import read_space
    from fedbo.objectives.typed_spaces.spaces import written_space

    space = read_space(written_space(configuration_space(task)))
    dim = len(space.parameters)
    algorithm: Any = entry(name).make()
    streams, lattice = Streams(seed).of(0), space if task.space is NETWORK else None
    problem = Problem(dim, 1, [0], INITIAL, budget - INITIAL, 0, lattice=lattice)
    state, failed = algorithm.agent_init(problem, streams), None
    initial = streams.rng("initial points").random((INITIAL, dim))
    for step in range(1 - INITIAL, budget - INITIAL + 1):
        if step > 0:
            decision, state = algorithm.ask(state, (), streams.at(step))
        else:
            decision = Decision(initial[[step - 1]], "initial")
        decision = decision._replace(x=space.project(decision.x))
        if failed is not None:
            decision = other_than(failed, decision, problem, streams.at(step))
        try:
            value = evaluate(space.decode(decision.x[0]))
        except Failed:
            state, failed = with_failures(algorithm, state, failed, decision.x)
        else:
            state = algorithm.tell(state, decision.x, np.array([value]))


def optuna(name: str, task: Task, evaluate: Evaluate, budget: int, seed: int) -> None:
    """Let a sampler of Optuna do so; `tpe_pruned` reports failures as pruned trials."""
    import optuna

    warnings.filterwarnings("ignore", module="optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: Any) -> float:
        try:
            return evaluate(_suggested(trial, task.space))
        except Failed:
            if name.endswith("_pruned"):
                raise optuna.TrialPruned from None
            raise

    samplers = optuna.samplers
    kinds = {"tpe": samplers.TPESampler, "tpe_pruned": samplers.TPESampler, "gpsampler": samplers.GPSampler}
    study = optuna.create_study(direction="maximize", sampler=kinds.get(name, samplers.RandomSampler)(seed=seed))
    study.optimize(objective, budget, catch=(Failed,))


def _suggested(trial: Any, space: dict[str, Any]) -> Configuration:
    found: Configuration = {}
    for name, of in space.items():
        if any(found.get(parent) != value for parent, value in of.get("when", {}).items()):
            continue
        if "choices" in of:
            found[name] = trial.suggest_categorical(name, of["choices"])
        elif of.get("type") == "int":
            found[name] = trial.suggest_int(name, of["low"], of["high"])
        else:
            found[name] = trial.suggest_float(name, of["low"], of["high"], log=of.get("log", False))
    return found


def smac(name: str, task: Task, evaluate: Evaluate, budget: int, seed: int) -> None:
    """Let SMAC do so, with its forest."""
    import logging

    from smac import HyperparameterOptimizationFacade, Scenario

    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"deterministic": True, "n_trials": budget, "seed": seed, "crash_cost": 100.0}
        settings["output_directory"] = Path(folder)
        scenario = Scenario(configuration_space(task), **settings)
        design = HyperparameterOptimizationFacade.get_initial_design(scenario, n_configs=INITIAL)

        def cost(configuration: Any, seed: int = 0) -> float:
            return -evaluate(dict(configuration))

        HyperparameterOptimizationFacade(scenario, cost, initial_design=design, overwrite=True).optimize()


def configuration_space(task: Task) -> Any:
    """Make the ConfigSpace of a task."""
    import ConfigSpace

    space, made = ConfigSpace.ConfigurationSpace(seed=0), {}
    for name, of in task.space.items():
        if "choices" in of:
            made[name] = ConfigSpace.CategoricalHyperparameter(name, of["choices"])
        else:
            kind = {"int": ConfigSpace.UniformIntegerHyperparameter}.get(of.get("type"), ConfigSpace.UniformFloatHyperparameter)
            made[name] = kind(name, of["low"], of["high"], log=of.get("log", False))
        space.add(made[name])
        for parent, value in of.get("when", {}).items():
            space.add(ConfigSpace.EqualsCondition(made[name], made[parent], value))
    return space


METHODS = ("gp_ei", "ts", "gp_ucb", "fed_prior_alone", "random", "tpe", "tpe_pruned", "gpsampler", "smac")
OTHERS = {
    "random": (optuna, "optuna"),
    "tpe": (optuna, "optuna"),
    "tpe_pruned": (optuna, "optuna"),
    "gpsampler": (optuna, "torch"),
    "smac": (smac, "smac"),
}


def run(method: str, name: str, seed: int, budget: int) -> dict[str, Any]:
    """Count the failed evaluations, and find the best value, of one method on one task."""
    task, rng = TASKS[name], np.random.default_rng(1000 + seed)
    values: list[float] = []
    points: list[str] = []

    def evaluate(configuration: Configuration) -> float:
        values.append(float("nan"))
        points.append(json.dumps(configuration, sort_keys=True, default=str))
        values[-1] = task.value(configuration, rng)
        return values[-1]

    OTHERS.get(method, (ours,))[0](method, task, evaluate, budget, seed)
    values, points = values[:budget], points[:budget]
    lost = [point for point, value in zip(points, values, strict=True) if np.isnan(value)]
    best = float(np.nanmax(values)) if len(lost) < len(values) else None
    return {
        "task": name,
        "method": method,
        "seed": seed,
        "failed": len(lost),
        "again": len(lost) - len(set(lost)),
        "best": best,
    }


def installed(method: str) -> bool:
    """Check whether what a method needs can be imported."""
    try:
        __import__(OTHERS[method][1] if method in OTHERS else "fedbo")
    except ImportError:
        return False
    return True


def records(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield results, those in the file first, and run what is missing, one seed after another."""
    there = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out and given.out.exists() else []
    yield from there
    done = {(one["task"], one["method"], one["seed"]) for one in there}
    for seed in range(given.first, given.seeds):
        for name in given.tasks:
            for method in given.methods:
                if (name, method, seed) in done or not installed(method):
                    continue
                one = run(method, name, seed, given.evaluations)
                if given.out:
                    with given.out.open("a") as file:
                        file.write(json.dumps(one) + "\n")
                yield one


def table(found: list[dict[str, Any]], given: argparse.Namespace) -> list[list[str]]:
    """Make rows: for each task and method the mean number of failures, of points asked again, and the median best value."""
    methods = [method for method in given.methods if any(one["method"] == method for one in found)]
    rows = [["", *methods]]
    for name in given.tasks:
        cells = []
        for method in methods:
            of = [one for one in found if (one["task"], one["method"]) == (name, method)]
            best = [-np.inf if one["best"] is None else one["best"] for one in of]
            again = sum(one["again"] for one in of)
            words = f"{np.mean([one['failed'] for one in of]):.1f} / {np.median(best):.3g}" if of else ""
            cells.append(words + (f" ({again} again)" if again else "") + (f" [{len(of)}]" if len(of) < given.seeds else ""))
        rows.append([name, *cells])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", nargs="+", type=Path, dest="files", default=[])
    parser.add_argument("--table", action="store_true", help="print the table as Markdown")
    given = parser.parse_args()
    found = [json.loads(line) for file in given.files for line in file.read_text().splitlines()]
    rows = table(found or list(records(given)), given)
    for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]] if given.table else rows:
        print("| " + " | ".join(row) + " |" if given.table else f"{row[0]:10}" + "".join(f"{cell:>26}" for cell in row[1:]))


if __name__ == "__main__":
    main()
