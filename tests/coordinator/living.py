"""What the tests of real time share: a study that takes a few seconds, the processes it lives in, and what must hold."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fedbo
from fedbo.execution.replay import Replay, replay

AGENTS, ITERATIONS = 3, 10

STUDY: dict[str, Any] = {
    "study": {"name": "live", "seed": 4},
    "objective": {
        "name": "python_function",
        "function": "sleeping:doze",
        "agents": AGENTS,
        "low": [0.0],
        "high": [1.0],
    },
    "agents": {"initial": 2},
    "budget": {"iterations": ITERATIONS},
    "algorithm": [{"name": "fts", "every": 1, "p": 0.5, "length_scale": 0.2, "noise": 0.01, "features": 20}],
    "timing": {"clock": "wall", "latency": {"model": "constant", "mean": 0.02}},
    "network": {"retry": 0.2},
    "hosting": {"kind": "dedicated"},
    "recovery": {"events": 30},
}


def whole(directory: Path, verify: bool = True, iterations: int = ITERATIONS) -> fedbo.Result:
    """Check that no reported observation was lost or doubled, and that a replay gives the same; give the results."""
    result = fedbo.Result.open(directory)
    rows = result.observations.to_pylist()
    keys = [(row["agent"], row["step"], row["query"]) for row in rows]
    expected = [(a, s, q) for a in range(AGENTS) for s in range(iterations + 1) for q in range(2 if s == 0 else 1)]
    assert keys == expected, "an observation was lost or doubled"
    for agent in range(AGENTS):
        forgotten = any("forgotten" in (row["error"] or "") for row in rows if row["agent"] == agent)
        counts = [row["t_n"] for row in rows if row["agent"] == agent]
        assert forgotten or counts == list(range(1, iterations + 3))
        begun = [row["started"] for row in rows if row["agent"] == agent]
        assert begun == sorted(begun)
    told = [(row["agent"], row["step"]) for row in result.events.to_pylist() if row["kind"] == "finished"]
    assert sorted(told) == [(a, s) for a in range(AGENTS) for s in range(iterations + 1)]
    assert result.events["sequence"].to_pylist() == list(range(len(result.events)))
    if verify:
        found: Replay = replay(directory, verify=True, trust=True)
        assert found.same, found.difference
    return result


def kinds(result: fedbo.Result) -> list[str]:
    """List what happened, in order."""
    return [str(kind) for kind in result.events["kind"].to_pylist()]


def hosts(directory: Path) -> list[int]:
    """List the living processes of agents that have evaluated something in this run."""
    logs = {int(path.name.split("-")[2]) for path in directory.glob("parts/*/log-*.jsonl")}
    return [pid for pid in sorted(logs) if "ray::Host" in title(pid)]


def descendants(of: int, word: str) -> list[int]:
    """List the processes below this one that have a word in their titles."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile

    def below(pid: int) -> bool:
        while pid in parents and pid != of:
            pid = parents[pid]
        return pid == of

    return [pid for pid in parents if pid != of and below(pid) and word in title(pid)]


def title(pid: int) -> str:
    """Give the command line of a process, if it lives."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def observed(directory: Path) -> int:
    """Count the evaluations that agents have noted down so far."""
    return sum(path.read_text().count("\n") for path in directory.glob("parts/*/log-*.jsonl"))


def once(directory: Path, count: int, act: Callable[[], None]) -> threading.Thread:
    """Do something as soon as so many evaluations have been made in a run."""

    def wait() -> None:
        until = time.monotonic() + 240
        while observed(directory) < count and time.monotonic() < until:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@contextmanager
def watching(find: Callable[[], Iterable[int]]) -> Iterator[set[int]]:
    """Collect all the processes that are found while something else goes on."""
    seen, over = set[int](), threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            seen.update(find())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def run_killing(directory: Path, which: Callable[[], list[int]], count: int = 12, **changes: Any) -> list[int]:
    """Run the study, and kill one of these processes when so many evaluations have been made; give those it was one of."""
    found: list[int] = []

    def kill() -> None:
        found.extend(which())
        if found:
            os.kill(found[0], 9)

    thread = once(directory, count, kill)
    fedbo.run({**STUDY, **changes}, out=directory)
    thread.join()
    assert found, "there was nothing to kill"
    return found
