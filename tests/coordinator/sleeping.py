"""Objectives that misbehave, for tests of hosting; importable in every process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def meet(x: Any) -> float:
    """Give a value once four evaluations have begun; fail where they do not overlap."""
    folder, until = Path(os.environ["FEDBO_TEST_MEETING"]), time.monotonic() + 120
    (folder / f"meet-{x[0]!r}").touch()
    while len([*folder.glob("meet-*")]) < 4:
        if time.monotonic() > until:
            raise TimeoutError("the others have not begun")
        time.sleep(0.01)
    return float(x[0])


def moody(x: Any, agent: int) -> float:
    """Fail for agent 1, once it has seen enough, and when a run that was begun with this one is under way, too."""
    if agent == 1 and x[0] > 0.5:
        time.sleep(3.0)
        raise RuntimeError("not today")
    return float(x[0])


def nowhere(x: Any) -> float:
    """Give no number."""
    return float("nan")


def doze(x: Any, agent: int) -> float:
    """Take a tenth of a second."""
    time.sleep(0.1)
    return float(-((x[0] - 0.3) ** 2) - 0.1 * agent)


def sulky(x: Any) -> float:
    """Fail for two points of five."""
    if int(x[0] * 1e6) % 5 < 2:
        raise RuntimeError("not here")
    return float(x[0])
