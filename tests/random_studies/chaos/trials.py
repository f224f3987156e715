"""Series of studies under Ray's own chaos: processes that try them are started, watched, and started again.

A process that Ray ends in the middle of a study is followed by one that resumes the study; one that says nothing for too long
is a hang.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.random_studies.chaos.ray_failures import ChaosResult, chaotic_environment

BATCH = 20  # studies on one Ray
STARTS = 4  # of processes that Ray ends, one after the other, before any of them ends a study
STARTING = 300.0  # seconds that Ray may take to start while its calls fail


def chaos_trials(first: int, studies: int, seconds: float, room: Path) -> Iterator[ChaosResult]:
    """Yield what became of each study; one that takes longer than these seconds is broken."""
    seed, ended = first, 0
    while seed < first + studies:
        before = seed
        for line in _lines(seed, min(BATCH, first + studies - seed), seconds, room):
            yield line
            seed, ended = line.seed + 1, 0
        ended = 0 if seed > before else ended + 1
        if ended == STARTS:
            yield ChaosResult(seed, "", [f"Ray ended {STARTS} processes one after the other"], 0, 0.0)
            seed, ended = seed + 1, 0


def _lines(first: int, count: int, seconds: float, room: Path) -> Iterator[ChaosResult]:
    """Yield the results of one process, until it has ended or is killed since it hangs."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "tests.random_studies.chaos.ray_failures",
        str(first),
        str(count),
        str(room),
    ]
    with (room / "said.txt").open("a") as said:
        process = subprocess.Popen(
            command, env=chaotic_environment(), stdout=subprocess.PIPE, stderr=said, start_new_session=True, bufsize=0
        )
        assert process.stdout is not None
        seed, limit = first, STARTING
        try:
            while select.select([process.stdout], [], [], limit)[0]:
                line = process.stdout.readline()
                if not line:
                    return
                if line.startswith(b"["):
                    yield ChaosResult(*json.loads(line))
                    seed += 1
                limit = seconds
            if limit == seconds:  # else Ray did not start, which is no study's fault
                yield ChaosResult(seed, "", [f"it took longer than {seconds:g} s: {_stacks(process, said.name)}"], 0, seconds)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _stacks(process: subprocess.Popen[bytes], said: str) -> str:
    """Return where the threads of a process are."""
    os.kill(process.pid, signal.SIGABRT)
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        return "no stack"
    lines = Path(said).read_text(errors="replace").splitlines()
    return " | ".join(line.strip() for line in lines if line.startswith('  File "'))[-1500:]
