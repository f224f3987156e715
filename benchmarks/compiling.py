"""The cost of compiled arithmetic: size of the installed libraries, seconds to the first decision, lines of code.

The first decision is that of Thompson sampling after three observations, in a new process with an empty cache of compiled code
(cold) and with a full one (warm), from the start of the process. `random`, which needs no compilation, is the comparison.

    python benchmarks/compiling.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
DECIDED = """
from pathlib import Path
from fedbo.actors.agent import HostedAgent
from fedbo.actors.task import StepRequest
from fedbo.execution.jobs import runs
from fedbo.study.study import load_study
(run,) = runs(load_study({
    "study": {"name": "first", "seed": 1}, "objective": {"name": "branin", "agents": 1}, "agents": {"initial": 3},
    "budget": {"iterations": 1}, "algorithm": [{"name": "%s"}],
}), Path())
agent = HostedAgent(run.task, 0)
agent.work(StepRequest(0, 0))
agent.decide(StepRequest(0, 1))
"""


def first_decision(method: str, cache: str) -> tuple[float, float]:
    """Give the seconds from the start of a process to its first decision, by the clock and of processor time."""
    surroundings = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_CACHE_DIR": cache}
    begun, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", DECIDED % method], check=True, env=surroundings, stderr=subprocess.DEVNULL)
    took, after = time.perf_counter() - begun, os.times()
    return took, after.children_user + after.children_system - before.children_user - before.children_system


def told(name: str, found: list[tuple[float, float]]) -> str:
    """Write a line of medians."""
    took, worked = (median(each) for each in zip(*found, strict=True))
    return f"{name:34} {took:6.1f} s, {worked:.1f} s of processor time"


def installed(name: str) -> float:
    """Give the size of an installed distribution in MiB."""
    files = distribution(name).files or []
    return sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).exists()) / 2**20


def lines(places: Iterator[Path]) -> int:
    """Count the lines that are neither empty nor comments."""
    texts = (path.read_text(encoding="utf-8").splitlines() for path in places)
    return sum(bool(line.strip()) and not line.strip().startswith("#") for text in texts for line in text)


def main() -> None:
    """Print the three costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, medians of {repeats}")
    sizes = {name: installed(name) for name in ("numba", "llvmlite")}
    print("installed: " + ", ".join(f"{name} {size:.0f} MiB" for name, size in sizes.items()))
    cold = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(first_decision("ts", cache))
            size = sum(path.stat().st_size for path in Path(cache).rglob("*") if path.is_file()) / 2**20
    print(told("first decision, ts, cold cache", cold))
    with tempfile.TemporaryDirectory() as cache:
        first_decision("ts", cache)
        print(told("first decision, ts, warm cache", [first_decision("ts", cache) for _ in range(repeats)]))
        print(told("first decision, random", [first_decision("random", cache) for _ in range(repeats)]))
    print(f"the cache: {size:.1f} MiB")
    compiled, all_of_it = (
        ROOT / "fedbo" / "surrogates" / "compiled",
        ["fedbo"],
    )
    whole = lines(path for folder in all_of_it for path in (ROOT / folder).rglob("*.py"))
    print(f"lines of code: {lines(compiled.glob('*.py')):,} compiled, of {whole:,} in the package")


if __name__ == "__main__":
    main()
