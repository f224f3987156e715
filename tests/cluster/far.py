"""An objective for hosts that are far apart: it is importable on all of them, and sees to it that fedbo came as a wheel."""

from __future__ import annotations

import os
from typing import Any

import fedbo


def bowl(x: Any, agent: int) -> float:
    """Take no time."""
    if os.environ.get("FAR_AWAY") and "py_modules_files" not in str(fedbo.__file__):
        raise RuntimeError(f"fedbo is {fedbo.__file__}, and not the wheel that was brought along")
    return float(-((x[0] - 0.1 * agent) ** 2) - (x[1] - 0.5) ** 2)
