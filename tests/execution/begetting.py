"""An objective that starts processes which would outlive it, and notes who they are."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 60.0  # for which a child would live
_begun = set[str]()


def beget(x: Any, agent: int) -> float:
    """Start a child of the kind that the environment names, once in a process, and go on without it."""
    kind, place = os.environ["FEDBO_TEST_CHILD"].split(":", 1)
    if kind not in _begun:
        _begun.add(kind)
        number = _start(kind)
        (Path(place) / f"{kind}-{number}").touch()
    time.sleep(0.05)
    return float(-x[0])


def _start(kind: str) -> int:
    if kind == "forked":
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(SECONDS,))
        child.start()
        return child.pid or 0
    if kind == "pool":
        pool = multiprocessing.get_context("fork").Pool(1)
        return int(pool.apply(os.getpid))
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({SECONDS})"]).pid
