"""Objectives and a callback that end, or try to end, the process in which they are called."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any


def exit_zero(x: Any) -> float:
    sys.exit(0)


def exit_three(x: Any) -> float:
    sys.exit(3)


def exit_words(x: Any) -> float:
    sys.exit("the data is missing")


def generator_exit(x: Any) -> float:
    raise GeneratorExit


def cancelled(x: Any) -> float:
    raise asyncio.CancelledError


def half_a_surrogate(x: Any) -> float:
    raise ValueError("bad \udc80 text")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def mute(x: Any) -> float:
    raise Mute


def chain(x: Any) -> float:
    try:
        exit_three(x)
    except SystemExit as cause:
        raise ValueError("second") from cause
    return 0.0


def group(x: Any) -> float:
    raise BaseExceptionGroup("both", [ValueError("one"), SystemExit(2)])


def text(x: Any) -> Any:
    return "1.5"


def immense(x: Any) -> float:
    return 1e308 if x[0] < 0.5 else -1e308


def interrupted(x: Any) -> float:
    raise KeyboardInterrupt


def terminated(x: Any) -> float:
    """End as Ray's workers and many programs do at SIGTERM."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    signal.raise_signal(signal.SIGTERM)
    return 0.0


FAILING = (exit_zero, exit_three, exit_words, generator_exit, cancelled, half_a_surrogate, mute, chain, group, text, immense)


class Quitter:
    """A callback that calls sys.exit."""

    def on_evaluation(self, evaluation: Any) -> None:
        sys.exit(0)


def slow(x: Any) -> float:
    time.sleep(0.06)
    return -1.0


def prints(x: Any, agent: int) -> float:
    """Print, leave the working directory, and fail at small values."""
    print(f"agent {agent} tries {x[0]:.3f}")
    os.chdir("/")
    os.system("echo a program of it")
    if x[0] < 0.205:
        raise ValueError("too small")
    return float(x[0])


def warns(x: Any) -> float:
    """Print to both standard streams, and from a program that is not kept."""
    print("to output")
    print("to error", file=sys.stderr)
    os.system("echo a program of it")
    return float(x[0])


def dies(x: Any) -> float:
    print("begun", end="")
    os._exit(7)


class Talking:
    """A callback that prints."""

    def on_evaluation(self, evaluation: Any) -> None:
        print("a callback prints")


def dies_at_small_values(x: Any) -> float:
    if x[0] < 0.205:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(x[0])


def hangs_at_small_values(x: Any) -> float:
    while x[0] < 0.205:
        time.sleep(1)
    return float(x[0])


def silent(x: Any) -> float:
    return float(x[0])
