"""Time of one decision and quality of its maximum, against DIRECT with 20,000 evaluations.

Run `python benchmarks/decisions.py --problems 200`. A decision is what FTS does in one iteration once its
hyperparameters are known: make a draw and maximise it, or maximise a received message. Our time is the median of
three repetitions with one thread of BLAS; DIRECT is timed in the same run on the same function, evaluated point by
point as the authors did.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from math import sqrt
from time import perf_counter
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
from scipy.optimize import Bounds, direct  # noqa: E402

from fedbo.surrogates.draws import Draw, message_function, pathwise_draw, value, weight_space_draw  # noqa: E402
from fedbo.surrogates.features import Features, draw_features, phi  # noqa: E402
from fedbo.surrogates.gp import Hyperparameters, condition  # noqa: E402
from fedbo.surrogates.linear import draw_weights  # noqa: E402
from fedbo.surrogates.maximise import maximise  # noqa: E402

Array = npt.NDArray[np.float64]
DIM = 2
BUDGET = 20_000
SLACK = 1e-3
SHARED = {scale: draw_features(np.random.default_rng(0), DIM, 100, scale) for scale in (0.01, 0.1, 0.3)}
KINDS = (
    ("faithful message, l = 0.01", 0.01, "message"),
    ("message, l = 0.1", 0.1, "message"),
    ("message, l = 0.3", 0.3, "message"),
    ("own draw, l = 0.05", 0.05, "own"),
    ("own draw, l = 0.1", 0.1, "own"),
    ("own draw, l = 0.3", 0.3, "own"),
    ("own draw, l = 1", 1.0, "own"),
    ("pathwise draw, l = 0.1", 0.1, "pathwise"),
)


class Outcome(NamedTuple):
    """One problem: our seconds and maximum, DIRECT's seconds and maximum."""

    seconds: float
    maximum: float
    direct_seconds: float
    direct_maximum: float


def history(scale: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Between 5 and 50 points and noisy values of a random function with this length scale."""
    x = rng.random((int(rng.integers(5, 51)), DIM))
    truth = draw_features(rng, DIM, 400, max(scale, 0.2))
    y = phi(truth, x) @ rng.standard_normal(400)
    return x, 0.75 + 0.1 * y + 0.01 * rng.standard_normal(len(x))


def decision(scale: float, kind: str, seed: int) -> Callable[[], tuple[Draw, float]]:
    """One decision, ready to be timed; every call makes the same draw and maximises it."""
    x, y = history(scale, np.random.default_rng((seed, 1)))
    if kind == "message":
        features = SHARED[scale]
        noise = 1e-6 if scale == 0.01 else 1e-2
        omega = draw_weights(phi(features, x), y, noise, np.random.default_rng((seed, 2)))
        make: Callable[[np.random.Generator], Draw] = lambda rng: message_function(features, omega)  # noqa: E731
    elif kind == "own":
        hyper = Hyperparameters(scale, 0.1, 1e-4)
        make = lambda rng: weight_space_draw(hyper, x, y, rng)  # noqa: E731
    else:
        posterior = condition(Hyperparameters(scale, 0.1, 1e-4), x, y)
        make = lambda rng: pathwise_draw(posterior, rng)  # noqa: E731

    def decide() -> tuple[Draw, float]:
        rng = np.random.default_rng((seed, 3))
        draw = make(rng)
        return draw, maximise(draw, rng, DIM, extra=x)[1]

    return decide


def at_point(draw: Draw) -> Callable[[Array], float]:
    """Minus the draw at one point `(d,)`, as lean as numpy allows, so that DIRECT is not charged for our types."""
    if draw.kernel_part is not None or not isinstance(draw.features, Features) or draw.weights is None:
        return lambda point: -float(value(draw, point[None])[0])
    s, b, weights, root = draw.features.frequencies, draw.features.phases, draw.weights, sqrt(draw.features.variance)

    def negative(point: Array) -> float:
        c = np.cos(s @ point + b)
        return -root * float(weights @ c) / sqrt(float(c @ c))

    return negative


def compare(scale: float, kind: str, seed: int) -> Outcome:
    """Time both maximisers on one problem."""
    decide = decision(scale, kind, seed)
    seconds = []
    for _ in range(3):
        begin = perf_counter()
        draw, maximum = decide()
        seconds.append(perf_counter() - begin)
    begin = perf_counter()
    found = direct(
        at_point(draw),
        Bounds([0.0] * DIM, [1.0] * DIM),
        eps=1e-4,
        maxfun=BUDGET,
        maxiter=BUDGET,
        locally_biased=False,
        vol_tol=0.0,
        len_tol=0.0,
    )
    return Outcome(float(np.median(seconds)), maximum, perf_counter() - begin, -float(found.fun))


def report(kind: str, outcomes: list[Outcome]) -> str:
    """One row of the table."""
    ours = np.median([o.seconds for o in outcomes])
    theirs = np.median([o.direct_seconds for o in outcomes])
    reached = np.mean([o.maximum >= o.direct_maximum - SLACK for o in outcomes])
    better = np.mean([o.maximum > o.direct_maximum + SLACK for o in outcomes])
    return (
        f"{kind:<28} {len(outcomes):>4} {1e3 * ours:>9.2f} {1e3 * theirs:>10.1f} {theirs / ours:>7.0f} "
        f"{reached:>8.1%} {better:>8.1%}"
    )


def main() -> None:
    """Print one row per kind of problem, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200, help="total number of problems, the same for each kind")
    problems = parser.parse_args().problems
    print(f"{'problem':<28} {'n':>4} {'ours, ms':>9} {'DIRECT, ms':>10} {'ratio':>7} {'reached':>8} {'better':>8}")
    everything: list[Outcome] = []
    for row, (name, scale, kind) in enumerate(KINDS):
        share = range(row, problems, len(KINDS))
        outcomes = [compare(scale, kind, seed) for seed in share]
        if outcomes:
            everything += outcomes
            print(report(name, outcomes), flush=True)
    print(report("all", everything))


if __name__ == "__main__":
    main()
