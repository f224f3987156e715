"""Twelve mixed problems that a rule makes, on which no sampler was run before they were written down.

    python benchmarks/mixed_problems.py
    python benchmarks/optuna_samplers.py --set new --trials 200 --seeds 10 --out new.jsonl

Eight are drawn with a fixed seed: 3 to 8 parameters, each a number, one in logarithms, one in steps, a whole number, one of
these in logarithms, or a category of 2 to 6 without order; a shape (a bowl, a cone, ripples, a turned and narrow bowl) around a
drawn optimum; noise in one of three, failures in half of the space in one of four, and in one of two a first category that
decides which of the others there are. `half` is made to fail, `conditions` to have such a category, and `noise` to have noise.
The other four are Branin's function with noise of standard deviation 10, Rastrigin's function of ten numbers around a drawn
optimum, and the tuning of a linear classifier and of a support vector regression on data that scikit-learn has.

Of a problem with noise the value without noise counts. An evaluation that fails raises `Failed`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from sklearn import datasets, linear_model, model_selection, pipeline, preprocessing, svm

SEED = 20261129
KINDS = ("number", "logarithm", "step", "whole", "whole logarithm", "category")
SHAPES = ("bowl", "cone", "ripples", "turned")


class Failed(ValueError):
    """An evaluation that has no value."""


def observed(t: Any, value: float, deviation: float) -> float:
    """Return a value with noise that is the same for the same trial and value; keep the one without."""
    t.set_user_attr("true", value)
    rng = np.random.default_rng([SEED, t.number, abs(hash(round(value, 9))) % 2**32])
    return value + deviation * float(rng.standard_normal())


class Drawn:
    """A problem that is drawn with the seed and a number."""

    def __init__(self, number: int, name: str, *, noise: bool = False, fails: bool = False, conditions: bool = False) -> None:
        rng = np.random.default_rng([SEED, number])
        count = int(rng.integers(3, 9))
        self.__name__ = name
        self.kinds = [str(kind) for kind in rng.choice(KINDS, count)]
        self.shape = str(rng.choice(SHAPES))
        self.noise = 0.05 if bool(rng.random() < 1 / 3) or noise else 0.0
        self.fails = bool(rng.random() < 1 / 4) or fails
        has_branches = bool(rng.random() < 1 / 2) or conditions
        self.branch = [int(one) for one in rng.integers(-1, 3, count)] if has_branches else [-1] * count  # -1: in all
        self.offsets = rng.random(3) if has_branches else np.zeros(1)
        self.options = [rng.permutation(np.linspace(0.0, 1.0, int(rng.integers(2, 7)))) for _ in range(count)]
        self.centre = rng.uniform(0.15, 0.85, count)
        for place, kind in enumerate(self.kinds):
            if kind == "category":
                self.centre[place] = rng.choice(self.options[place])
        self.weights = np.exp(0.7 * rng.standard_normal(count))
        self.turn = np.linalg.qr(rng.standard_normal((count, count)))[0] * 10.0 ** np.linspace(0.0, -1.0, count)
        toward = rng.standard_normal(count)
        self.toward = -toward if toward @ (self.centre - 0.5) > 0 else toward

    def coordinate(self, t: Any, place: int) -> float:
        """Let the trial suggest a parameter; return where it is from 0 to 1."""
        name, kind = f"p{place}", self.kinds[place]
        if kind == "number":
            return float(t.suggest_float(name, 0.0, 1.0))
        if kind == "logarithm":
            return (math.log10(t.suggest_float(name, 1e-5, 1.0, log=True)) + 5.0) / 5.0
        if kind == "step":
            return float(t.suggest_float(name, 0.0, 1.0, step=0.1))
        if kind == "whole":
            return float(t.suggest_int(name, 1, 30) - 1) / 29.0
        if kind == "whole logarithm":
            return math.log2(t.suggest_int(name, 4, 512, log=True) / 4) / 7.0
        options = self.options[place]
        return float(options["abcdef".index(t.suggest_categorical(name, list("abcdef")[: len(options)]))])

    def __call__(self, t: Any) -> float:
        kind = "abc".index(t.suggest_categorical("branch", list("abc"))) if len(self.offsets) > 1 else 0
        z, u = np.zeros(len(self.kinds)), np.full(len(self.kinds), 0.5)
        for place, branch in enumerate(self.branch):
            if branch in (-1, kind):
                u[place] = self.coordinate(t, place)
                z[place] = u[place] - self.centre[place]
        if self.fails and self.toward @ (u - 0.5) > 0:
            raise Failed("outside of the half in which there are values")
        squares = self.weights * z**2
        value = float(self.offsets[kind])
        if self.shape == "cone":
            value += float(np.sqrt(squares).sum())
        elif self.shape == "ripples":
            value += float(np.sum(squares + 0.05 * self.weights * (1.0 - np.cos(6.0 * math.pi * z))))
        else:
            turned = self.turn.T @ (np.sqrt(self.weights) * z) if self.shape == "turned" else np.sqrt(squares)
            value += float(turned @ turned)
        return observed(t, value, self.noise) if self.noise else value

    def __str__(self) -> str:
        branches = f"; branches {self.branch}" if len(self.offsets) > 1 else ""
        said = [f"noise of {self.noise}"] * (self.noise > 0) + ["half fails"] * self.fails
        return f"{self.__name__}: {self.shape}; {', '.join(self.kinds)}{branches}" + "".join(f"; {one}" for one in said)


def noise10(t: Any) -> float:
    """Branin's function, observed with noise of standard deviation 10."""
    x, y = t.suggest_float("x", -5.0, 10.0), t.suggest_float("y", 0.0, 15.0)
    a = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return observed(t, float(a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10), 10.0)


def rastrigin10(t: Any) -> float:
    """Rastrigin's function of ten numbers."""
    away = np.random.default_rng([SEED, 100]).uniform(-2.0, 2.0, 10)
    x = np.array([t.suggest_float(f"x{place}", -5.12, 5.12) for place in range(10)]) - away
    return float(np.sum(x**2 + 10.0 * (1.0 - np.cos(2.0 * math.pi * x))))


@cache
def rows(name: str) -> tuple[Any, Any]:
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return preprocessing.scale(x)[:300], y[:300]


def mean_score(model: Any, name: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(model_selection.cross_val_score(model, *rows(name), cv=3).mean())


def linear(t: Any) -> float:
    """The error of a linear classifier of tumours by stochastic descent."""
    schedule = t.suggest_categorical("schedule", ["constant", "optimal", "invscaling"])
    given = {"loss": t.suggest_categorical("loss", ["hinge", "log_loss", "modified_huber", "perceptron"])}
    given |= {"alpha": t.suggest_float("alpha", 1e-7, 1.0, log=True), "max_iter": t.suggest_int("epochs", 1, 30)}
    if schedule != "optimal":
        given["eta0"] = t.suggest_float("rate", 1e-5, 10.0, log=True)
    if schedule == "invscaling":
        given["power_t"] = t.suggest_float("power", 0.1, 0.9)
    model = linear_model.SGDClassifier(learning_rate=schedule, tol=None, random_state=0, **given)
    return 1.0 - mean_score(model, "breast_cancer")


def regression(t: Any) -> float:
    """What a support vector regression on polynomials leaves unexplained of diabetes."""
    kernel = t.suggest_categorical("kernel", ["rbf", "sigmoid", "linear"])
    given = {"C": t.suggest_float("C", 1e-1, 1e4, log=True), "epsilon": t.suggest_float("epsilon", 1e-1, 1e2, log=True)}
    if kernel != "linear":
        given["gamma"] = t.suggest_float("gamma", 1e-5, 1.0, log=True)
    made = svm.SVR(kernel=kernel, max_iter=2000, **given)
    if t.suggest_categorical("products", [False, True]):
        made = pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), made)
    return max(-1e3, 1.0 - mean_score(made, "diabetes"))


DRAWN = (
    *(Drawn(number, f"drawn{number}") for number in range(5)),
    Drawn(5, "half", fails=True),
    Drawn(6, "conditions", conditions=True),
    Drawn(7, "noise", noise=True),
)
PROBLEMS: dict[str, Callable[[Any], float]] = {one.__name__: one for one in (*DRAWN, noise10, rastrigin10, linear, regression)}

if __name__ == "__main__":
    print(*DRAWN, sep="\n")
