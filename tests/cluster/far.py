"""Objectives for hosts that are far apart, importable on all of them; one sees to it that fedbo came as a wheel."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import fedbo


def bowl(x: Any, agent: int) -> float:
    """Take no time."""
    if os.environ.get("FAR_AWAY") and "py_modules_files" not in str(fedbo.__file__):
        raise RuntimeError(f"fedbo is {fedbo.__file__}, and not the wheel that was brought along")
    return float(-((x[0] - 0.1 * agent) ** 2) - (x[1] - 0.5) ** 2)


def doze(x: Any, agent: int) -> float:
    """Take a tenth of a second, and note down on which host, if told where."""
    if notes := os.environ.get("FAR_NOTES"):
        with Path(notes, str(agent)).open("a") as file:
            file.write(f"{socket.gethostname()}\n")
    time.sleep(0.1)
    return float(-((x[0] - 0.3) ** 2) - 0.1 * agent)
