"""What the tests of kills share: a study with every trouble, a process that forks runs, and what a run leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOM = Path(__file__).parent
TABLES = ("observations.parquet", "events.parquet", "histories.parquet")

TROUBLED: dict[str, Any] = {
    "study": {"name": "kills", "seed": 5, "replicates": 2},
    "objective": {
        "name": "python_function",
        "function": "frail:frail",
        "agents": 5,
        "low": [0.0, 0.0],
        "high": [1.0, 1.0],
    },
    "agents": {
        "initial": 2,
        "checkpoint": 3,
        "targets": [0, 1, 2, 3],
        "history": {"algorithm": "random", "observations": 5},
    },
    "budget": {"iterations": 10},
    "algorithm": [
        {"name": "ts", "refit": 1000, "features": 30},
        {"name": "fts", "every": 1, "p": 0.5, "length_scale": 0.2, "noise": 0.01, "features": 30},
    ],
    "timing": {
        "evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.5},
        "latency": {"model": "exponential", "mean": 0.1},
    },
    "availability": {"model": "markov", "present": 6.0, "absent": 1.0, "leaving": "lost"},
    "exchange": {"mode": "deadline", "length": 2.0, "late": "carry"},
    "evaluation": {"retries": 2, "time_limit": 6.0},
    "fault": [
        {"kind": "crash", "rate": 0.05, "state": "lost", "restart": 1.0},
        {"kind": "loss"},
        {"kind": "duplication"},
    ],
    "recovery": {"events": 100},
}

# Takes a quarter as long; for what does not need a signal to come in time.
SHORT: dict[str, Any] = {
    **TROUBLED,
    "study": {"name": "short", "seed": 2},
    "objective": {**TROUBLED["objective"], "agents": 3},
    "agents": {**TROUBLED["agents"], "targets": [0, 1]},
    "budget": {"iterations": 6},
    "algorithm": [{"name": "random"}, *TROUBLED["algorithm"][1:]],
    "recovery": {"events": 16},
}


def tables(directory: Path) -> dict[str, bytes]:
    """Give the tables of a run as bytes."""
    return {name: (directory / name).read_bytes() for name in TABLES if (directory / name).exists()}


def write_study(study: dict[str, Any], path: Path) -> Path:
    """Write a study as a file."""
    import fedbo

    path.write_text(fedbo.load_study(study, trust=True).to_toml(), encoding="utf-8")
    return path


def environment(**more: str) -> dict[str, str]:
    """Give the environment of a process that is to find our objectives."""
    paths = os.pathsep.join([str(ROOM), *(path for path in sys.path if path)])
    return {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", **more}


@dataclass(frozen=True)
class End:
    """How a process ended: its exit code, or minus the signal that killed it; and what it said."""

    code: int
    said: str

    @property
    def killed(self) -> bool:
        return self.code == -9


class Forks:
    """A process that has imported everything, and forks one that runs a study whenever it is told to.

    A forked process is a real one, and is really killed; only the second that imports take is saved.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ROOM / "forking.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def __call__(self, what: str, *arguments: Any, **limits: Any) -> End:
        """Run, resume, replay or try promises in a fork, or "import" modules for all of them.

        `after` has the seconds after which a fork is killed, `before` the file operation, `room` the bytes.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, [str(each) for each in arguments], limits]) + "\n")
        self._process.stdin.flush()
        return End(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()


def begin_or_go_on(forks: Forks, study: Path, directory: Path, **limits: Any) -> End:
    """Do what a person would do who finds this directory."""
    if (directory / "manifest.json").exists():
        return forks("resume", directory, **limits)
    return forks("run", study, directory, **limits)


def marked(mark: str) -> list[int]:
    """List the processes whose environment has this in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes() and (path / "stat").read_text().split()[2] != "Z":
                found.append(int(path.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


def gone(mark: str, seconds: float = 120.0) -> bool:
    """Wait until no process is left that has this in its environment."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not marked(mark):
            return True
        time.sleep(0.05)
    return False
