"""The objective of a site as its owner writes it; it needs no file but this one."""

from __future__ import annotations

import os
import time

import numpy as np


def bowl(x: np.ndarray, agent: int) -> float:
    """Return a bowl whose centre depends on the agent, after some milliseconds."""
    time.sleep(float(os.environ.get("FEDBO_TEST_SECONDS", "0.0")))
    return -float(((x - 0.2 - 0.1 * agent) ** 2).sum())
