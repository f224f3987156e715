"""Objectives for random studies: some fail, report costs, or have typed parameters; all are cheap to call."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedbo.settings.trust import admit


def failing(x: Sequence[float], agent: int) -> float:
    """Return a smooth function of the unit square; in parts of it an evaluation raises or returns no finite number."""
    bump = math.sin(7.0 * x[0] + agent) * math.cos(5.0 * x[-1])
    if bump > 0.8:
        raise ArithmeticError(f"no solution at {x[0]:.6f}")
    if bump < -0.8:
        return math.nan if agent % 2 else math.inf
    return bump - (x[0] - 0.3) ** 2


def always_failing(x: Sequence[float], agent: int) -> float:
    """Raise for agent 0; return a smooth function for the others."""
    if agent == 0:
        raise ArithmeticError("this agent cannot evaluate")
    return -((x[0] - 0.5) ** 2)


def noisy(x: Sequence[float], agent: int, rng: np.random.Generator) -> float:
    """Return a smooth function of the unit box with noise of its own."""
    return math.cos(3.0 * sum(x) + 0.1 * agent) + 0.1 * float(rng.standard_normal())


def flat(x: Sequence[float], agent: int) -> float:
    """Return the same value everywhere, which no surrogate can scale."""
    return 1.5


def huge(x: Sequence[float], agent: int) -> float:
    """Return values of 1e12 to 1e13 with large differences."""
    return 1e12 * (1.0 + 9.0 * x[0] * x[-1])


def slow(x: Sequence[float], agent: int) -> float:
    """Return a smooth function of the unit box after up to 50 ms, and raise in a part of it."""
    time.sleep(0.01 + 0.04 * x[0] * x[0])
    if x[0] > 0.9:
        raise ArithmeticError(f"no solution at {x[0]:.6f}")
    return -((x[0] - 0.2 - 0.1 * agent) ** 2)


def step(x: Sequence[float], agent: int) -> float:
    """Return a step function: most values are the same, to the bit."""
    return float(x[0] > 0.4) + float(x[-1] > 0.7)


def cost(x: Sequence[float], agent: int) -> float:
    """Return the cost of an evaluation, which is the same in a part of the space."""
    return max(0.01, 2.0 * x[0] - 0.2)


def typed(config: Mapping[str, Any], agent: int) -> float:
    """Return a function of a typed configuration: a rate on a logarithmic scale, a depth, a kind, and a flag."""
    score = -abs(math.log10(config["rate"]) + 2.0) - 0.1 * abs(config["depth"] - 3 - agent % 2)
    return float(score + {"a": 0.0, "b": 0.3, "c": -0.2}[config["kind"]] + 0.05 * bool(config.get("flag", False)))


FUNCTIONS = ("failing", "always_failing", "noisy", "flat", "huge", "step")

# Every process that draws studies trusts them. Those that run hosts, or read a run, get this with their task or their study.
admit(f"{__name__}:{name}" for name in (*FUNCTIONS, "slow", "cost", "typed"))
