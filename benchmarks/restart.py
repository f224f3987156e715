"""How long an agent whose process was killed takes to its first useful work, beside a bare Ray actor, in one run.

A study in real time crashes one agent again and again, with a restart that follows at once. Measured is the time from the
crash's end (`restarted` in the log) to the start of the evaluation that follows. A spare process stands by in a run; crashes
that follow each other faster than one starts (`--pause 2`) show what happens without it.

    python benchmarks/restart.py [--crashes 10] [--pause 4.0]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ray

import fedbo

EVALUATION = 0.1  # seconds


class Bare:
    """An actor that can do nothing."""

    def ping(self) -> int:
        return 1


def bare(count: int) -> list[float]:
    """Start bare actors, one after the other, and give the seconds to the answer of each."""
    found = []
    for _ in range(count):
        begun = time.monotonic()
        actor: Any = ray.remote(Bare).options(num_cpus=0).remote()
        ray.get(actor.ping.remote())
        found.append(time.monotonic() - begun)
        ray.kill(actor)
    return found


def agents(folder: Path, crashes: int, pause: float) -> list[float]:
    """Run a study in real time with these crashes of agent 0; give the seconds from each restart to the next evaluation."""
    (folder / "dozing.py").write_text(f"import time\n\ndef doze(x):\n    time.sleep({EVALUATION})\n    return -float(x[0])\n")
    sys.path.insert(0, str(folder))
    last = pause * (crashes + 1)
    study = {
        "study": {"name": "restart", "seed": 1},
        "objective": {"name": "python_function", "function": "dozing:doze", "agents": 2, "low": [0.0], "high": [1.0]},
        "budget": {"iterations": 100_000, "time": last},
        "algorithm": [{"name": "ts", "refit": 1000}],
        "timing": {"clock": "wall"},
        "hosting": {"kind": "dedicated"},
        "fault": [{"kind": "crash", "agents": [0], "at": pause * (number + 1), "restart": 0.001} for number in range(crashes)],
    }
    result = fedbo.run(study, out=folder / "run")
    back = [row["time"] for row in result.events.to_pylist() if row["kind"] == "restarted" and row["agent"] == 0]
    begun = sorted(row["started"] for row in result.observations.to_pylist() if row["agent"] == 0)
    return [min(time for time in begun if time > moment) - moment for moment in back if begun[-1] > moment]


def main() -> None:
    """Print both medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--crashes", type=int, default=10)
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between two crashes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([folder, *sys.path])}}
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
        try:
            plain = bare(given.crashes)
            ours = agents(Path(folder), given.crashes, given.pause)
        finally:
            ray.shutdown()
    for name, found in (("a bare actor", plain), ("an agent", ours)):
        print(f"{name:14} {median(found):6.2f} s   ({min(found):.2f} to {max(found):.2f}, {len(found)} times)")


if __name__ == "__main__":
    main()
