"""Ctrl-C while an evaluation never ends: the first one is answered within a second, and the second one ends the run."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedbo.settings.interrupts import FIRST, SECOND

STUDY = """
[study]
name = "hangs"
[objective]
name = "python_function"
function = "hanging.py:{function}"
low = [0.0]
high = [1.0]
[budget]
iterations = 1
[[algorithm]]
name = "random"
"""
HANGING = """
import ctypes, sys, time

def begun():
    print("begun", file=sys.stderr, flush=True)

def sleeps(x):
    begun()
    time.sleep(1e6)

def turns(x):
    begun()
    while True:
        pass

def is_compiled(x):
    begun()
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    library.pthread_mutex_init(mutex, None)
    for _ in range(2):  # the second time waits for ever, and Python calls no handler meanwhile
        library.pthread_mutex_lock(mutex)
"""


def read_until(process: subprocess.Popen[bytes], word: str, seconds: float) -> str:
    """Read standard error until a word comes, or for some seconds."""
    assert process.stderr is not None
    found, until = b"", time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while word.encode() not in found and (left := until - time.monotonic()) > 0:
            if selector.select(left):
                found += os.read(process.stderr.fileno(), 65536)
    return found.decode()


@pytest.mark.long
@pytest.mark.parametrize(
    "function", [pytest.param("sleeps", marks=pytest.mark.long), pytest.param("turns", marks=pytest.mark.long), "is_compiled"]
)
def test_the_first_interrupt_is_answered_at_once_and_the_second_ends(function: str, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    (tmp_path / "s.toml").write_text(STUDY.format(function=function))
    command = [sys.executable, "-m", "fedbo", "run", "s.toml", "--quiet", "--out", "run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            assert "begun" in read_until(process, "begun", 60.0)
            process.send_signal(signal.SIGINT)
            assert FIRST in read_until(process, FIRST, 5.0)
            process.send_signal(signal.SIGINT)
            said = read_until(process, "resume", 5.0)
            assert process.wait(5.0) == 130
            assert (SECOND if function == "is_compiled" else "interrupted; partial results are in") in said
        finally:
            process.kill()
