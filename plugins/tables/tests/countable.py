"""An objective that keeps count of its evaluations in a file, and fails, stops or is interrupted as another file says."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

COUNT, ORDER = "FEDBO_TEST_COUNT", "FEDBO_TEST_ORDER"


def hill(x: Any, agent: int, rng: np.random.Generator) -> float:
    """Give a hill with some noise; at the evaluation with the ordered number, do what is ordered."""
    count = Path(os.environ[COUNT])
    with count.open("a", encoding="utf-8") as file:
        file.write(".")
    what, _, number = os.environ.get(ORDER, "").partition(" ")
    if what and count.stat().st_size == int(number):
        if what == "die":
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)  # the second one is not waited for
        os.kill(os.getpid(), getattr(signal, what))
    return float(-((x[0] - 0.3) ** 2) - (x[1] - 0.1 * agent) ** 2 + 0.01 * rng.standard_normal())


def holed(x: Any) -> float:
    """Fail in one quarter of the square, and give infinity in another."""
    if x[0] < 0.5 and x[1] < 0.5:
        raise RuntimeError("a hole")
    return float("inf") if x[0] < 0.5 else float(x[0] * x[1])
