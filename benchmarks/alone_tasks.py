"""The tasks of `alone.py`: functions with known optima, tuning of support vector machines, and tuning of networks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.objectives.classifiers.digits import Digits

Array = npt.NDArray[np.float64]
Evaluate = Callable[[Array], float]  # of a point of the unit cube (d,); larger is better, and 0 the best where that is known


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


def _shekel(x: Array) -> Any:
    centres = np.array([[4, 4, 4, 4], [1, 1, 1, 1], [8, 8, 8, 8], [6, 6, 6, 6], [3, 7, 3, 7], [2, 9, 2, 9], [5, 3, 5, 3]])
    centres = np.vstack([centres, [[8, 1, 8, 1], [6, 2, 6, 2], [7, 3.6, 7, 3.6]]])
    widths = np.array([1, 2, 2, 4, 4, 6, 3, 7, 5, 5]) / 10.0
    return 10.536443153483534 - (1.0 / (((x - centres) ** 2).sum(axis=1) + widths)).sum()


def _schwefel(x: Array) -> Any:
    return 418.9828872724338 * len(x) - (x * np.sin(np.sqrt(np.abs(x)))).sum()


def _rastrigin(x: Array) -> Any:
    return (x**2 - 10.0 * np.cos(2.0 * np.pi * x) + 10.0).sum()


def _dixon_price(x: Array) -> Any:
    return (x[0] - 1.0) ** 2 + (np.arange(2, len(x) + 1) * (2.0 * x[1:] ** 2 - x[:-1]) ** 2).sum()


def _powell(x: Array) -> Any:
    a, b, c, d = x.reshape(-1, 4).T
    return ((a + 10.0 * b) ** 2 + 5.0 * (c - d) ** 2 + (b - 2.0 * c) ** 4 + 10.0 * (a - d) ** 4).sum()


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
# Chosen by their names alone, when all defaults stood.
UNSEEN = {
    "shekel4": Task(4, _in(0.0, 10.0, _shekel)),
    "schwefel5": Task(5, _in(-500.0, 500.0, _schwefel)),
    "rastrigin6": Task(6, _in(-5.12, 5.12, _rastrigin)),
    "dixonprice7": Task(7, _in(-10.0, 10.0, _dixon_price)),
    "powell8": Task(8, _in(-4.0, 5.0, _powell)),
}
SETS = {"main": TASKS, "held-out": HELD_OUT, "unseen": UNSEEN}
