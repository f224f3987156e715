"""An objective that takes a few milliseconds and fails now and then, by where it is asked."""

from __future__ import annotations

import time
from typing import Any


def frail(x: Any, agent: int) -> float:
    """Look for the agent's own peak."""
    time.sleep(0.003)
    if int(x[0] * 1e6) % 5 == 4:
        raise RuntimeError("a bad moment")
    return float(-((x[0] - 0.3) ** 2) - (x[1] - 0.1 * agent) ** 2)
