"""Whether the best point by a model is better than that of the largest value, on Branin with noise, paired over seeds.

An agent of `gp_ei` alone makes the evaluations, with normal noise of standard deviation `--noise`. The regrets of the two
recommendations, without noise, are compared seed by seed: how often each is better, and Wilcoxon's signed rank test.

    python benchmarks/noisy_best.py [--seeds 60] [--first 1000] [--evaluations 40] [--noise 10]
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

import fedbo

SPACE = {"x": (-5.0, 10.0), "y": (0.0, 15.0)}
BEST = 0.39788735772973816


def branin(config: dict[str, Any]) -> float:
    """Return the value of Branin's function."""
    x, y = config["x"], config["y"]
    inner = y - 5.1 * x**2 / (4 * math.pi**2) + 5 * x / math.pi - 6
    return inner**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def regrets(seed: int, evaluations: int, noise: float) -> list[float]:
    """Return the regrets of the best points by value and by model."""
    rng = np.random.default_rng(seed)
    agent = fedbo.Agent(None, SPACE, fedbo.Terms("gp_ei", mode="min", seed=seed))
    for _ in range(evaluations):
        ((token, config),) = agent.ask()
        agent.tell(token, branin(config) + noise * rng.standard_normal())
    found = (agent.best(by=by) for by in ("value", "model"))  # type: ignore[arg-type]
    return [branin(best[0]) - BEST for best in found if best is not None]


def main() -> None:
    """Print one line for each noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("seeds", 60), ("first", 1000), ("evaluations", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--noise", type=float, nargs="+", default=[10.0])
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    for noise in options.noise:
        value, model = np.array([regrets(seed, options.evaluations, noise) for seed in seeds]).T
        better, worse = int((model < value).sum()), int((model > value).sum())
        p = 1.0 if not (better or worse) else wilcoxon(model, value).pvalue
        print(
            f"noise {noise:g}, seeds {seeds[0]} to {seeds[-1]}, {options.evaluations} evaluations: by model better {better}, "
            f"worse {worse}; regret {value.mean():.3f} by value, {model.mean():.3f} by model; Wilcoxon p = {p:.4f}"
        )


if __name__ == "__main__":
    main()
