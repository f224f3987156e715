"""One agent alone against other libraries: simple regret after a number of evaluations, and processor time of a decision.

    python benchmarks/alone.py [--tasks branin levy8] [--methods gp_ei ts random gpsampler] [--seeds 20] [--held-out]

Tasks are functions with known optima, tuning of support vector machines (`digits`), and tuning of networks (`lcbench`), the
last where onnxruntime is installed and $FEDBO_DATA/yahpo/lcbench has the files; there regret is to the best of 20,000 uniform
points, so that it may be below 0. Optuna's samplers (`gpsampler` needs PyTorch, `tpe`) and scikit-optimize (`skopt`) are left
out where they are not installed. Our methods begin with 10 uniform points, as Optuna's and scikit-optimize's do by default.
`--held-out` takes tasks that were not looked at while defaults were chosen. Results are kept with `--out FILE`, which adds
lines to it, and `--from FILE ...` prints the tables of such files without running anything.

Ranks are of the final regrets of one task and seed, 1 the best. Differences are tested by Wilcoxon's signed ranks over the
seeds, each method against the first one.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
from scipy.stats import rankdata, wilcoxon  # noqa: E402

from fedbo.algorithms.base import Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.algorithms.streams import Streams  # noqa: E402
from fedbo.objectives.digits import Digits  # noqa: E402

Array = npt.NDArray[np.float64]
Evaluate = Callable[[Array], float]  # of a point of the unit cube (d,); larger is better, and 0 the best where that is known
METHODS = ("gp_ei", "ts", "gpsampler", "tpe", "skopt", "random")
INITIAL = 10


class Task(NamedTuple):
    """A number of inputs, and what makes the function of a seed."""

    dim: int
    make: Callable[[int], Evaluate]


def _in(low: float, high: float, function: Callable[[Array], Any]) -> Callable[[int], Evaluate]:
    return lambda seed: lambda x: -float(function(low + (high - low) * x))


def _branin(x: Array) -> Any:
    a, b = 15.0 * x[0] - 5.0, 15.0 * x[1]
    bend = b - 5.1 / (4.0 * np.pi**2) * a * a + 5.0 / np.pi * a - 6.0
    return bend**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(a) + 10.0 - 0.39788735772973816


HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def _hartmann(x: Array) -> Any:
    return 3.322368011415515 - np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-(HARTMANN_A * (x - HARTMANN_P) ** 2).sum(axis=1))


def _ackley(x: Array) -> Any:
    return 20.0 + np.e - 20.0 * np.exp(-0.2 * np.sqrt((x * x).mean())) - np.exp(np.cos(2.0 * np.pi * x).mean())


def _levy(x: Array) -> Any:
    w = 1.0 + (x - 1.0) / 4.0
    middle = (w[:-1] - 1.0) ** 2 * (1.0 + 10.0 * np.sin(np.pi * w[:-1] + 1.0) ** 2)
    return np.sin(np.pi * w[0]) ** 2 + middle.sum() + (w[-1] - 1.0) ** 2 * (1.0 + np.sin(2.0 * np.pi * w[-1]) ** 2)


def _rosenbrock(x: Array) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def _griewank(x: Array) -> Any:
    return x @ x / 4000.0 - np.prod(np.cos(x / np.sqrt(np.arange(1, len(x) + 1)))) + 1.0


def _styblinski_tang(x: Array) -> Any:
    return 0.5 * (x**4 - 16.0 * x**2 + 5.0 * x).sum() + 39.16616570377142 * len(x)


def _michalewicz(x: Array) -> Any:
    return 4.687658 - (np.sin(x) * np.sin(np.arange(1, len(x) + 1) * x**2 / np.pi) ** 20).sum()


def _trid(x: Array) -> Any:
    d = len(x)
    return ((x - 1.0) ** 2).sum() - (x[1:] * x[:-1]).sum() + d * (d + 4) * (d - 1) / 6.0


def _digits(seed: int) -> Evaluate:
    """One of 30 agents with few, partly mislabelled images; its best value is not known."""
    rng = np.random.default_rng((seed, 1))
    agent = Digits().objective(seed % 30, np.random.default_rng((seed, 0)), rng)
    low, high = (np.array([getattr(p, end) for p in Digits.parameters]) for end in ("low", "high"))
    return lambda x: agent.evaluate(np.clip(low * (high / low) ** x, low, high), rng)


LCBENCH = Path(os.environ.get("FEDBO_DATA", "data")) / "yahpo" / "lcbench"


@cache
def _network() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(LCBENCH / "model.onnx"), options)


def _balanced_accuracy(task: str, x: Array) -> Array:
    """Validation accuracy `(n,)` after 52 epochs at `x (n, 7)`, in percent; whole numbers are rounded."""
    code = json.loads((LCBENCH / "encoding.json").read_text())["OpenML_task_id"][task]
    batch, rate = np.round(16.0 * 32.0 ** x[:, 0]), 1e-4 * 1e3 ** x[:, 1]
    momentum, decay = 0.1 + 0.89 * x[:, 2], 1e-5 + (0.1 - 1e-5) * x[:, 3]
    layers, units = np.clip(np.round(0.5 + 5.0 * x[:, 4]), 1, 5), np.round(64.0 * 16.0 ** x[:, 5])
    columns = [np.full(len(x), 52.0), batch, rate, momentum, decay, layers, units, x[:, 6]]
    inputs = {"x_cat": np.full((len(x), 1), code, np.int32), "x_cont": np.column_stack(columns).astype(np.float32)}
    return 100.0 * np.asarray(_network().run(None, inputs)[0][:, 3], dtype=np.float64)


@cache
def _level(task: str) -> float:
    return float(_balanced_accuracy(task, np.random.default_rng(0).random((20_000, 7))).max())


def _lcbench(task: str) -> Task:
    return Task(7, lambda seed: lambda x: float(_balanced_accuracy(task, x[None, :])[0]) - _level(task))


TASKS = {
    "branin": Task(2, lambda seed: lambda x: -float(_branin(x))),
    "hartmann6": Task(6, _in(0.0, 1.0, _hartmann)),
    "ackley5": Task(5, _in(-32.768, 32.768, _ackley)),
    "levy8": Task(8, _in(-10.0, 10.0, _levy)),
    "rosenbrock10": Task(10, _in(-5.0, 10.0, _rosenbrock)),
    "digits": Task(2, _digits),
    **{f"lcbench-{task}": _lcbench(task) for task in ("3945", "126026", "168330", "189906")},
}
HELD_OUT = {
    "griewank6": Task(6, _in(-600.0, 600.0, _griewank)),
    "styblinski4": Task(4, _in(-5.0, 5.0, _styblinski_tang)),
    "michalewicz5": Task(5, _in(0.0, np.pi, _michalewicz)),
    "trid6": Task(6, _in(-36.0, 36.0, _trid)),
    "ackley12": Task(12, _in(-32.768, 32.768, _ackley)),
    **{f"lcbench-{task}": _lcbench(task) for task in ("7593", "167168")},
}


def ours(name: str, function: Evaluate, dim: int, budget: int, seed: int) -> None:
    """Let one agent of an algorithm evaluate as often as the budget says, without a simulation."""
    algorithm, streams = entry(name).make(), Streams(seed).of(0)
    problem = Problem(dim, 1, [0], INITIAL, budget - INITIAL, 0)
    state = algorithm.agent_init(problem, streams)
    x = streams.rng("initial points").random((INITIAL, dim))
    state = algorithm.tell(state, x, np.array([function(point) for point in x]))
    for step in range(1, budget - INITIAL + 1):
        decision, state = algorithm.ask(state, (), streams.at(step))
        state = algorithm.tell(state, decision.x, np.array([function(decision.x[0])]))


def optuna(name: str, function: Evaluate, dim: int, budget: int, seed: int) -> None:
    """Let a sampler of Optuna do so."""
    import optuna

    warnings.filterwarnings("ignore", module="optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed) if name == "tpe" else optuna.samplers.GPSampler(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: function(np.array([trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(dim)])), budget)


def scikit_optimize(name: str, function: Evaluate, dim: int, budget: int, seed: int) -> None:
    """Let scikit-optimize do so."""
    from skopt import gp_minimize

    warnings.filterwarnings("ignore", module="skopt")
    gp_minimize(lambda x: -function(np.array(x)), [(0.0, 1.0)] * dim, n_calls=budget, random_state=seed)


OTHERS = {"gpsampler": (optuna, "torch"), "tpe": (optuna, "optuna"), "skopt": (scikit_optimize, "skopt")}


def run(method: str, task: Task, seed: int, budget: int) -> tuple[list[float], float]:
    """Give the best values after each evaluation, and milliseconds of processor time that a decision took."""
    values: list[float] = []
    spent = 0.0
    function = task.make(seed)

    def evaluate(x: Array) -> float:
        nonlocal spent
        begun = process_time()
        values.append(function(x))
        spent += process_time() - begun
        return values[-1]

    begun = process_time()
    OTHERS.get(method, (ours,))[0](method, evaluate, task.dim, budget, seed)
    return np.maximum.accumulate(values).tolist(), 1e3 * (process_time() - begun - spent) / max(budget - INITIAL, 1)


def installed(method: str) -> bool:
    """Say whether what a method needs can be imported."""
    try:
        __import__("optuna" if method in ("gpsampler", "tpe") else "numpy")
        __import__(OTHERS[method][1] if method in OTHERS else "numpy")
    except ImportError:
        return False
    return True


def records(names: list[str], methods: list[str], seeds: range, budget: int) -> Iterator[dict[str, Any]]:
    """Run every method on every task and seed."""
    for name in names:
        for method in methods:
            for seed in seeds:
                best, spent = run(method, {**TASKS, **HELD_OUT}[name], seed, budget)
                yield {"task": name, "method": method, "seed": seed, "best": best, "ms": spent}


def tables(found: list[dict[str, Any]]) -> None:
    """Print regrets, ranks, tests against the first method, and milliseconds."""
    names, methods = (list(dict.fromkeys(one[key] for one in found)) for key in ("task", "method"))
    regrets = {(one["task"], one["method"], one["seed"]): -one["best"][-1] for one in found}
    print(f"{'task':16}" + "".join(f"{method:>25}" for method in methods))
    ranks: list[Array] = []
    for name in names:
        seeds = [s for s in sorted({one["seed"] for one in found}) if all((name, m, s) in regrets for m in methods)]
        table = np.array([[regrets[name, method, seed] for method in methods] for seed in seeds])
        if not len(table):
            continue
        ranks.append(rankdata(table, axis=1).mean(axis=0))
        cells = [f"{np.median(column):.3g} / {column.mean():.3g}{_test(table[:, 0], column)}" for column in table.T]
        print(f"{name:16}" + "".join(f"{cell:>25}" for cell in cells) + f"   {len(seeds)} seeds")
    print(f"{'mean rank':16}" + "".join(f"{rank:>25.2f}" for rank in np.mean(ranks, axis=0)))
    spent = [np.mean([one["ms"] for one in found if one["method"] == method]) for method in methods]
    print(f"{'ms per decision':16}" + "".join(f"{one:>25.1f}" for one in spent))


def _test(ours: Array, theirs: Array) -> str:
    """A sign where the difference to the first method is significant at .05: + where that method is better, - where worse."""
    if np.array_equal(ours, theirs) or wilcoxon(ours, theirs).pvalue >= 0.05:
        return ""
    return " +" if rankdata(np.column_stack([ours, theirs]), axis=1)[:, 0].mean() < 1.5 else " -"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=sorted({**TASKS, **HELD_OUT}))
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", nargs="+", type=Path, dest="files", default=[])
    given = parser.parse_args()
    found = [json.loads(line) for file in given.files for line in file.read_text().splitlines()]
    if not found:
        names = given.tasks or list(HELD_OUT if given.held_out else TASKS)
        methods = [method for method in given.methods if installed(method)]
        for one in records(names, methods, range(given.seeds), given.evaluations):
            found.append(one)
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(one) + "\n")
    tables(found)


if __name__ == "__main__":
    main()
