"""Objectives that misbehave, for tests of hosting; importable in every process."""

from __future__ import annotations

import time
from typing import Any


def nap(x: Any) -> float:
    """Take half a second."""
    time.sleep(0.5)
    return float(x[0])


def moody(x: Any, agent: int) -> float:
    """Fail for agent 1, once it has seen enough."""
    if agent == 1 and x[0] > 0.5:
        raise RuntimeError("not today")
    return float(x[0])


def nowhere(x: Any) -> float:
    """Give no number."""
    return float("nan")


def brief(x: Any, agent: int) -> float:
    """Take a few milliseconds, and fail now and then."""
    time.sleep(0.003)
    if int(x[0] * 1e6) % 17 == 0:
        raise RuntimeError("a bad moment")
    return float(-((x[0] - 0.3) ** 2) - (x[1] - 0.1 * agent) ** 2)
