"""What snapshots cost a study of a thousand agents: engine time and bytes for each, as a share of the default interval.

FTS with 100 random features; after every iteration all agents send and receive. `--relay all` lets every agent hold the
messages of all others, the largest state that there is. The same run is made without and with snapshots, alternately.

    python benchmarks/snapshots.py [--agents 1000] [--iterations 6] [--snapshots 3] [--relay one] [--mode immediate]
                                   [--workers 0] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from fedbo.actors.storage.run_folder import RunFolder
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.execution.jobs import runs
from fedbo.study.study import load_study
from fedbo.study.tables import RecoveryTable


@dataclass
class Cost:
    """What one run cost: seconds in all, seconds in snapshots, their number, and the most bytes that lay on disk."""

    seconds: float
    kept: float
    snapshots: int
    bytes: int


def study(given: argparse.Namespace) -> dict[str, Any]:
    """Describe a study whose agents decide in a blink, so that nothing hides the cost of a snapshot."""
    algorithm = {"name": "fts", "every": 1, "relay": given.relay, "query": "draw", "kernel": "se", "features": 100}
    own = {"surrogate": "features", "features": 100, "length_scale": 0.2}
    hosting = {"kind": "packed", "workers": given.workers} if given.workers else {"kind": "inline"}
    return {
        "study": {"name": "snapshots", "seed": 1},
        "objective": {"name": "quadratic", "agents": given.agents},
        "budget": {"iterations": given.iterations},
        "algorithm": [{**algorithm, "own": own}],
        "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "constant", "mean": 0.1}},
        "exchange": {"mode": given.mode},
        "hosting": hosting,
    }


class Measured(Coordinator):
    """A coordinator that notes how many bytes the run's folder holds while it looks."""

    most = 0

    def _note_progress(self, run: Run, core: Any, hosts: Any) -> None:
        super()._note_progress(run, core, hosts)
        files = [path for path in RunFolder.of(run.folder, run.key).path.rglob("*") if path.suffix in (".core", ".agents")]
        self.most = max(self.most, sum(path.stat().st_size for path in files if path.exists()))


def measure(run: Run, every: int | None) -> Cost:
    """Carry the run out with a snapshot after `every` events, or none."""
    with tempfile.TemporaryDirectory() as folder:
        coordinator, begun = Measured(), time.monotonic()
        ended = coordinator.run(replace(run, folder=Path(folder), events=every, seconds=1e9))
        seconds = time.monotonic() - begun
        return Cost(seconds, ended.kept, ended.events // every if every else 0, coordinator.most)


def main() -> None:
    """Print cost and share."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--snapshots", type=int, default=3)
    parser.add_argument("--relay", choices=("one", "all"), default="one")
    parser.add_argument("--mode", choices=("barrier", "immediate"), default="immediate")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    (run,) = runs(load_study(study(given)), Path("."))
    if given.workers:
        import ray

        ray.init(num_cpus=given.workers, include_dashboard=False, log_to_driver=False)
    events = 3 * given.agents * given.iterations
    every = max(1, events // (given.snapshots + 1))
    without, with_ = [], []
    for _ in range(given.repeats):
        without.append(measure(run, None))
        with_.append(measure(run, every))
    count = median(cost.snapshots for cost in with_)
    each = median(cost.kept / cost.snapshots for cost in with_)
    extra = (median(cost.seconds for cost in with_) - median(cost.seconds for cost in without)) / count
    interval = RecoveryTable().seconds
    print(f"{given.agents} agents, relay {given.relay}, {given.mode}, {given.workers} workers, {given.repeats} pairs, medians")
    print(f"run without snapshots  {median(cost.seconds for cost in without):8.2f} s")
    print(f"run with {count:2g} of them    {median(cost.seconds for cost in with_):8.2f} s")
    print(f"engine, each           {each:8.2f} s   {100 * each / interval:.1f} % at one in {interval:g} s")
    print(f"run, each              {extra:8.2f} s   {100 * extra / interval:.1f} %")
    print(f"on disk                {max(cost.bytes for cost in with_) / 2**20:8.1f} MiB, the last two and the one being made")


if __name__ == "__main__":
    main()
