"""An objective for hosts that are far apart: it takes a moment, and is importable on all of them."""

from __future__ import annotations

import time
from typing import Any


def doze(x: Any, agent: int) -> float:
    """Take a fifth of a second."""
    time.sleep(0.2)
    return float(-((x[0] - 0.3) ** 2) - 0.1 * agent)


def bowl(x: Any, agent: int) -> float:
    """Take no time."""
    return float(-((x[0] - 0.1 * agent) ** 2) - (x[1] - 0.5) ** 2)
