"""One agent alone against other libraries: simple regret after a number of evaluations, and processor time of a decision.

    python benchmarks/alone.py [--tasks branin levy8] [--methods gp_ei ts random gpsampler] [--seeds 20] [--out FILE] [--table]

Tasks are functions with known optima, tuning of support vector machines (`digits`), and tuning of networks (`lcbench`, with
onnxruntime and the files of $FEDBO_DATA/yahpo/lcbench). Regret on `lcbench` is to the best of 20,000 uniform points, so it may
be negative. Optuna's samplers (`gpsampler` needs PyTorch, `tpe`) and scikit-optimize (`skopt`) are left
out if they are not installed. Our methods begin with 10 uniform points, as Optuna's and scikit-optimize's do by default.
`--set held-out` and `--set unseen` are tasks that played no part in the choice of defaults.

With `--out FILE` every result is a line of the file, and existing results are not repeated: stop at any time, and give the
same command to continue. All methods and tasks run on one seed after another, so that a part of the results is balanced.
`--from FILE ...` prints the table of such files without running anything, and `--table` prints it as Markdown.

Ranks are of the final regrets of one task and seed, 1 the best. Differences are tested by Wilcoxon's signed ranks over the
seeds, each method against the first one.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
from alone_tasks import SETS, Array, Evaluate, Task  # noqa: E402
from scipy.stats import rankdata, wilcoxon  # noqa: E402

from fedbo.algorithms.base import Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.algorithms.streams import Streams  # noqa: E402

METHODS = ("gp_ei", "ts", "gpsampler", "tpe", "skopt", "random")
TASKS = {name: task for tasks in SETS.values() for name, task in tasks.items()}
INITIAL = 10


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


def records(names: list[str], methods: list[str], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Give what is there and run the rest: every method on every task, one seed after another."""
    there = {} if given.out is None or not given.out.exists() else {_key(one): one for one in read(given.out)}
    for seed in range(given.seeds):
        for name in names:
            for method in methods:
                if (name, method, seed) in there:
                    yield there[name, method, seed]
                    continue
                best, spent = run(method, TASKS[name], seed, given.evaluations)
                one = {"task": name, "method": method, "seed": seed, "best": best, "ms": spent}
                if given.out:
                    with given.out.open("a") as file:
                        file.write(json.dumps(one) + "\n")
                yield one


def read(file: Path) -> list[dict[str, Any]]:
    """Read results; a last line that was cut off, when its writer was stopped, does not count and is taken out."""
    whole, _, cut = file.read_text().rpartition("\n")
    if cut:
        file.write_text(whole + "\n" if whole else "")
    return [json.loads(line) for line in whole.splitlines()]


def _key(one: dict[str, Any]) -> tuple[str, str, int]:
    return one["task"], one["method"], one["seed"]


def table(found: list[dict[str, Any]], given: argparse.Namespace) -> list[list[str]]:
    """Make rows of regrets with tests against the first method, then of ranks and of milliseconds.

    A seed counts in a task where all methods have it.
    """
    names = list(dict.fromkeys(given.tasks or [one["task"] for one in found]))
    there = {one["method"] for one in found}
    methods = [method for method in given.methods if method in there]
    regrets = {_key(one): -one["best"][given.evaluations - 1] for one in found}
    ranks, rows = [], [["", *methods, "seeds"]]
    for name in names:
        seeds = [seed for seed in range(given.seeds) if all((name, method, seed) in regrets for method in methods)]
        if not seeds:
            continue
        ends = np.array([[regrets[name, method, seed] for method in methods] for seed in seeds])
        ranks.append(rankdata(ends, axis=1).mean(axis=0))
        cells = [f"{_short(np.median(column))} / {_short(column.mean())}{_test(ends[:, 0], column)}" for column in ends.T]
        rows.append([name, *cells, str(len(seeds))])
    spent = [np.mean([one["ms"] for one in found if one["method"] == method and one["task"] in names]) for method in methods]
    rows.append(["mean rank", *(f"{rank:.2f}" for rank in np.mean(ranks, axis=0)), ""])
    rows.append(["ms per decision", *(f"{each:.0f}" for each in spent), ""])
    return rows


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.2g}"


def _test(ours: Array, theirs: Array) -> str:
    """A sign where the difference to the first method is significant at .05: + where that method is better, - where worse."""
    if np.array_equal(ours, theirs) or wilcoxon(ours, theirs).pvalue >= 0.05:
        return ""
    return " +" if rankdata(np.column_stack([ours, theirs]), axis=1)[:, 0].mean() > 1.5 else " -"


def show(rows: list[list[str]], markdown: bool) -> None:
    """Print a table, as Markdown or in columns."""
    if markdown:
        rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    for row in rows:
        print("| " + " | ".join(row) + " |" if markdown else f"{row[0]:16}" + "".join(f"{cell:>25}" for cell in row[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=sorted(TASKS))
    parser.add_argument("--set", choices=list(SETS), default="main")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", nargs="+", type=Path, dest="files", default=[])
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    found = [one for file in given.files for one in read(file)]
    if not found:
        methods = [method for method in given.methods if installed(method)]
        found = list(records(given.tasks or list(SETS[given.set]), methods, given))
    show(table(found, given), given.table)


if __name__ == "__main__":
    main()
