"""What the tests on several hosts share: studies, how the head starts them, and how long it took to notice and recover."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from laboratory import PATIENCE, Laboratory, abort

import fedbo

sys.path.insert(0, str(Path(__file__).parents[1] / "coordinator"))

import living  # noqa: E402

HERE = Path(__file__).parent
TABLES = ("observations.parquet", "events.parquet")
SHARED = {"PYTHONPATH": f"{HERE}:{HERE.parent / 'coordinator'}", "FAR_AWAY": "yes"}

VIRTUAL: dict[str, Any] = {
    "study": {"name": "far", "seed": 3},
    "objective": {"name": "python_function", "function": "far:bowl", "agents": 5, "low": [0.0, 0.0], "high": [1.0, 1.0]},
    "agents": {"initial": 2},
    "budget": {"iterations": 16},
    "algorithm": [{"name": "fts", "every": 1, "p": 0.5, "length_scale": 0.2, "noise": 0.01, "features": 20}],
    "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "exponential", "mean": 0.1}},
    "evaluation": {"failure": "stop"},
    "recovery": {"events": 20},
    "hosting": {"kind": "packed", "workers": 3},
}
ON_DATA: dict[str, Any] = {
    "study": {"name": "data", "seed": 5},
    "objective": {"name": "landmine"},
    "agents": {"targets": [0, 1, 2], "initial": 2},
    "budget": {"iterations": 3},
    "algorithm": [{"name": "random"}],
    "hosting": {"kind": "packed", "workers": 2},
}


def wall(iterations: int) -> dict[str, Any]:
    """Give a study in real time with so many evaluations of a tenth of a second."""
    objective = {**living.STUDY["objective"], "function": "far:doze"}
    return {**living.STUDY, "objective": objective, "budget": {"iterations": iterations}}


def tables(directory: Path) -> dict[str, bytes]:
    """Give the tables of a run as bytes."""
    return {name: (directory / name).read_bytes() for name in TABLES}


def start(lab: Laboratory, study: dict[str, Any], directory: Path, *more: str, **around: str) -> subprocess.Popen[str]:
    """Run a study from the head of a cluster, or go on with it, by the command line."""
    for note in lab.notes.iterdir():
        note.unlink()
    begun = (directory / "manifest.json").exists()
    file = directory.parent / f"{directory.name}.toml"
    file.write_text(fedbo.load_study(study, trust=True).to_toml(), encoding="utf-8")
    words = ["resume", str(directory)] if begun else ["run", str(file), "--out", str(directory)]
    return lab.run(0, sys.executable, "-m", "fedbo.cli", *words, "--quiet", "--address", lab.address, *more, **around)


def evaluated(lab: Laboratory) -> int:
    """Count the evaluations that have begun since the last study was started, those that are repeated too."""
    return sum(path.read_text().count("\n") for path in lab.notes.iterdir())


def wait_for(lab: Laboratory, count: int, driver: subprocess.Popen[str], seconds: float = PATIENCE) -> None:
    """Wait until so many evaluations of a study have begun."""
    until = time.monotonic() + seconds
    while evaluated(lab) < count:
        if driver.poll() is not None or time.monotonic() > until:
            raise AssertionError(f"the run does not go on: {driver.communicate(timeout=5)[0]}")
        time.sleep(0.01)


def lodged(lab: Laboratory) -> dict[int, list[int]]:
    """Give the worker hosts that have agents, by their numbers, those without the coordinator first, each with its agents."""
    found: dict[int, list[int]] = {}
    for path in sorted(lab.notes.iterdir()):
        *_, last = ["host0", *path.read_text().split()]
        if last != "host0":
            found.setdefault(int(last.removeprefix("host")), []).append(int(path.name))
    return dict(sorted(found.items(), key=lambda each: len(lab.processes(each[0], "ray::Coordinator"))))


class UnderWay(NamedTuple):
    """A study that goes on: its directory, its driver, and a worker host with the agents that it has."""

    directory: Path
    driver: subprocess.Popen[str]
    host: int
    agents: list[int]


def under_way(lab: Laboratory, folder: Path, study: dict[str, Any], most: int) -> UnderWay:
    """Start a study on three hosts, until some evaluations have been made, `most` at most, with agents on a worker.

    Ray draws a host for each of the three processes with agents, so that it may take some runs until one of them is on a
    worker: four are too few about once in 10^5 times.
    """
    for number in range(4):
        directory = folder / f"run-{number}"
        driver = start(lab, study, directory)
        wait_for(lab, 15, driver)
        for host, agents in lodged(lab).items() if evaluated(lab) < most else ():
            return UnderWay(directory, driver, host, agents)
        abort(driver)
    raise AssertionError("no worker host has had an agent, or the studies have ended too soon")


class Story(NamedTuple):
    """What happened after a moment: seconds until agents were found to be gone, and until all of them had evaluated again.

    None where none was gone.
    """

    noticed: float | None
    recovered: float | None
    gone: list[int]

    @classmethod
    def of(cls, directory: Path, epoch: float, moment: float) -> Story:
        """Read it from the tables of a run whose clock began at `epoch`."""
        result = fedbo.Result.open(directory)
        crashed = [row for row in result.events.to_pylist() if row["kind"] == "crashed" and row["time"] + epoch > moment]
        if not crashed:
            return cls(None, None, [])
        gone = {row["agent"]: row["time"] for row in crashed}
        back = [
            min(row["finished"] for row in result.observations.to_pylist() if row["agent"] == agent and row["started"] > time)
            for agent, time in gone.items()
        ]
        return cls(min(gone.values()) + epoch - moment, max(back) + epoch - moment, sorted(gone))

    def __str__(self) -> str:
        if self.noticed is None:
            return "no agent was lost"
        return f"agents {self.gone}: noticed after {self.noticed:.1f} s, all evaluating again after {self.recovered:.1f} s"


def epoch_of(directory: Path) -> float:
    """Find out when the clock of a run in real time began: an evaluation is written down the moment it has ended."""
    found = []
    for path in directory.glob("parts/*/log-*.jsonl"):
        lines = path.read_text().splitlines()
        if lines:
            found.append(path.stat().st_mtime - json.loads(lines[-1].partition("\t")[0])[6])
    return min(found)
