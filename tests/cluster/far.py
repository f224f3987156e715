"""Objectives for hosts that are far apart, importable on all of them; one sees to it that fedbo came as a wheel."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import fedbo


def bowl(x: Any, agent: int) -> float:
    """Take a tenth of a second, far away."""
    if os.environ.get("FAR_AWAY") and "py_modules_files" not in str(fedbo.__file__):
        raise RuntimeError(f"fedbo is {fedbo.__file__}, and not the wheel that was brought along")
    _sleep(agent)
    return float(-((x[0] - 0.1 * agent) ** 2) - (x[1] - 0.5) ** 2)


def doze(x: Any, agent: int) -> float:
    """Take a tenth of a second, far away."""
    _sleep(agent)
    return float(-((x[0] - 0.3) ** 2) - 0.1 * agent)


def _sleep(agent: int) -> None:
    """Note down on which host this is, and sleep there."""
    if notes := os.environ.get("FAR_NOTES"):
        with Path(notes, str(agent)).open("a") as file:
            file.write(f"{socket.gethostname()}\n")
        time.sleep(0.1)
