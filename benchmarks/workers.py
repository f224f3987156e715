"""A cluster of many workers: time and memory of one study with queued evaluations, and the queue's share.

python benchmarks/workers.py [--workers 10000] [--agents 1000] [--places 12] [--iterations 100]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

import fedbo


def main() -> None:
    """Run the study, and print what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--places", type=int, default=12, help="simultaneous evaluations of one agent")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--rule", default="first_come")
    given = parser.parse_args()
    study = {
        "study": {"name": "workers", "seed": 1},
        "objective": {"name": "quadratic", "agents": given.agents},
        "budget": {"iterations": given.iterations},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 1.0}},
        "evaluation": {"parallel": given.places},
        "cluster": {"workers": given.workers, "rule": given.rule},
    }
    with tempfile.TemporaryDirectory() as folder:
        begun, used = time.monotonic(), time.process_time()
        fedbo.run(fedbo.load_study(study), out=Path(folder) / "run")
        took, cpu = time.monotonic() - begun, time.process_time() - used
        events = pq.read_table(Path(folder) / "run" / "events.parquet", columns=["kind", "time", "queued_at"]).to_pydict()
    placed = [
        (at, since) for kind, at, since in zip(*map(events.get, ("kind", "time", "queued_at")), strict=True) if kind == "placed"
    ]
    waited = sum(at > since for at, since in placed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{given.workers} workers, {len(placed)} evaluations, {waited} waited, {given.rule}: ", end="")
    print(f"{took:.1f} s, {cpu:.1f} s of CPU, {1e6 * cpu / len(placed):.0f} us each, {peak:.0f} MiB at most")


if __name__ == "__main__":
    main()
