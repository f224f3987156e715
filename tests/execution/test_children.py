"""What outlives a run that is killed by SIGKILL: nothing that an evaluation forked, and nothing that keeps others out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from killing import environment, marked, write_study

from fedbo.study.paths import locked

STUDY: dict[str, Any] = {
    "study": {"name": "children", "seed": 1},
    "objective": {"name": "python_function", "function": "begetting:beget", "agents": 1, "low": [0.0], "high": [1.0]},
    "budget": {"iterations": 400},
    "algorithm": [{"name": "random"}],
}
REAL: dict[str, Any] = {**STUDY, "timing": {"clock": "wall"}, "hosting": {"kind": "dedicated"}}
HOSTINGS: dict[str, dict[str, Any]] = {
    "inline": STUDY,
    "inline with workers": {**STUDY, "hosting": {"kind": "inline", "workers": 1}},
    "packed": {**STUDY, "hosting": {"kind": "packed", "workers": 1}},
    "dedicated": {**STUDY, "hosting": {"kind": "dedicated"}},
    "real time": REAL,
    "time limit": {**REAL, "evaluation": {"time_limit": 20.0}},
}


def killed_with(kind: str, study: dict[str, Any], folder: Path) -> tuple[int, str]:
    """Kill a run as soon as its objective has a child; return the child's number and the mark in the run's environment."""
    (children := folder / "children").mkdir()
    mark = uuid.uuid4().hex
    words = ["run", str(write_study(study, folder / "study.toml")), "--out", str(folder / "run"), "--quiet"]
    told = environment(FEDBO_TEST_CHILD=f"{kind}:{children}", FEDBO_TEST_MARK=mark)
    run = subprocess.Popen([sys.executable, "-m", "fedbo.cli", *words], env=told, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 300
        while not (found := [*children.iterdir()]) and run.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert found and run.poll() is None
    finally:
        run.kill()
        run.wait()
    return int(found[0].name.partition("-")[2]), mark


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_agent_of_node(process: int) -> bool:
    """Check for the two processes in which Ray serves its dashboard and makes environments."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().startswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))
    except OSError:
        return False


def seconds_until(gone: Any, most: float = 50.0) -> float:
    """Wait until something is so, and return for how long it was not."""
    begun = time.monotonic()
    while not gone() and time.monotonic() - begun < most:
        time.sleep(0.05)
    return time.monotonic() - begun


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not end children with their parents")
def test_a_child_that_an_evaluation_forked_ends_with_a_killed_run_which_can_be_resumed_at_once(tmp_path: Path) -> None:
    child, _ = killed_with("forked", STUDY, tmp_path)
    with locked(tmp_path / "run"):
        pass
    assert seconds_until(lambda: not lives(child)) < 10.0


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["forked", "pool", "started"])
@pytest.mark.parametrize("hosting", HOSTINGS)
def test_what_outlives_a_killed_run_and_for_how_long(hosting: str, kind: str, tmp_path: Path) -> None:
    """A program that an objective starts lives on, where Ray does not end it; whatever else there was is soon gone.

    Ray's own agents of a node are left out: they look for its killed control service for a minute.
    """
    child, mark = killed_with(kind, HOSTINGS[hosting], tmp_path)
    with locked(tmp_path / "run"):
        pass
    spared = {child} if kind == "started" else set[int]()
    seconds = seconds_until(lambda: not {process for process in marked(mark) if not is_agent_of_node(process)} - spared)
    of_child = seconds_until(lambda: not lives(child), 0.5 if kind == "started" else 45.0)
    print(f"{hosting} | {kind} | {max(seconds, of_child):.1f} s | {'lives on' if lives(child) else 'gone'}")
    for process in marked(mark):
        os.kill(process, signal.SIGKILL)
    assert seconds < 45.0
    assert kind == "started" or of_child < 45.0
