"""What messages cost agents that share nothing, over 200 federations of unlike agents; prints Markdown.

    python benchmarks/unlike.py [--federations 200] [--decisions 20]

Every federation has 4 to 8 agents in 2 to 4 inputs whose functions are independent: bowls with centres anywhere, draws of
Gaussian processes, and Levy's function turned over at a random place in each input. Agents make three random evaluations and
decide in turn. Scores are in per cent of the range of an agent's function over 4,000 points. Each federation counts once; the
bound is the upper end of a one-sided 95 % interval of the mean loss, and the worst federation is named. The last rows are of
agents that are alike, where a method must gain: draws with the correlation 0.9, and Levy's function moved by up to 5 %.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
from scipy.stats import t as student  # noqa: E402

from fedbo.algorithms.base import Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.objectives.models.cosines import drawn_cosines  # noqa: E402
from fedbo.testing.lockstep import Lockstep, noisy  # noqa: E402

Array = npt.NDArray[np.float64]
Function = Callable[[Array], Array]
SEED, INITIAL = 4, 3
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "alone": ("trust_best_alone", {}),
    "careful": ("trust_best", {"turn": 1, "pay": 0.25}),
    "trust_best": ("trust_best", {}),
}
UNLIKE, ALIKE = ("bowls", "draws", "levy"), ("like draws", "moved levy")


def levy(x: Array) -> Array:
    """Compute minus Levy's function on [-10, 10]^d at points of the unit cube."""
    w = 1.0 + (20.0 * x - 11.0) / 4.0
    inner = ((w[:, :-1] - 1.0) ** 2 * (1.0 + 10.0 * np.sin(np.pi * w[:, :-1] + 1.0) ** 2)).sum(axis=1)
    last = (w[:, -1] - 1.0) ** 2 * (1.0 + np.sin(2.0 * np.pi * w[:, -1]) ** 2)
    return np.asarray(-(np.sin(np.pi * w[:, 0]) ** 2 + inner + last))


def function(kind: str, dim: int, common: int, rng: np.random.Generator) -> Function:
    """Draw the function of one agent."""
    move = rng.random(dim)
    if kind == "bowls":
        return lambda x: -((x - move) ** 2).sum(axis=1)
    if kind == "levy":
        return lambda x: levy(np.mod(x + move, 1.0))
    if kind == "moved levy":
        return lambda x: levy(x + 0.1 * (move - 0.5))
    shared = 0.9 if kind == "like draws" else 0.0
    parts = [drawn_cosines(np.random.default_rng([SEED, common]), dim, 0.3, shared), drawn_cosines(rng, dim, 0.3, 1.0 - shared)]
    frequencies, phases, amplitudes = (np.concatenate(held) for held in zip(*parts, strict=True))
    return lambda x: np.asarray(np.cos(x @ frequencies.T + phases) @ amplitudes)


def scores(kind: str, number: int, method: str, decisions: int) -> Array:
    """Return the mean best value over agents after each round `(1 + decisions,)`, in per cent of their ranges."""
    rng = np.random.default_rng([SEED, number])
    dim, agents = int(rng.integers(2, 5)), int(rng.integers(4, 9))
    held = [function(kind, dim, number, np.random.default_rng([SEED, number, 1 + agent])) for agent in range(agents)]
    name, settings = METHODS[method]
    problem = Problem(dim, agents, tuple(range(agents)), INITIAL, decisions, history=0)
    run = Lockstep(entry(name).make(**settings), problem, noisy(lambda x, agent: held[agent](x)), number)
    run.begin()
    run.exchange()
    run.run(decisions)
    points, found = rng.random((4000, dim)), []
    for one, observed in zip(held, run.observed, strict=True):
        span, low = np.ptp(one(points)), one(points).min()
        found.append(100.0 * (np.maximum.accumulate([float(y.max()) for _, y in observed]) - low) / span)
    return np.asarray(np.mean(found, axis=0))


def main() -> None:
    """Print the losses where agents are unlike, and the gains where they are alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--federations", type=int, default=200)
    parser.add_argument("--decisions", type=int, default=20)
    given = parser.parse_args()
    times = [t for t in (2, 5, 10, 20, 50) if t <= given.decisions]
    print(f"| minus itself alone, % of the range | {' | '.join(f't = {t}: mean | bound of the loss | worst' for t in times)} |")
    print("|---" * (1 + 3 * len(times)) + "|")
    for kinds, count in ((UNLIKE, given.federations), (ALIKE, given.federations // 4)):
        held = {
            method: np.array([scores(kinds[number % len(kinds)], number, method, given.decisions) for number in range(count)])
            for method in METHODS
        }
        for method in list(METHODS)[1:]:
            gaps = held[method] - held["alone"]
            half = student.ppf(0.95, count - 1) * gaps.std(axis=0, ddof=1) / np.sqrt(count)
            cells = [f"{gaps[:, t].mean():+.2f} | {half[t] - gaps[:, t].mean():.2f} | {gaps[:, t].min():+.1f}" for t in times]
            print(f"| `{method}`, {count} federations: {', '.join(kinds)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
