"""Agent-iterations per second of a large study: all agents optimise at once and exchange a message after every iteration.

Decisions, draws, messages, evaluations of a free objective and the writing of all tables are included; the start of Ray is
not. `--profile` runs inline under the profiler instead and says where the time goes.

    python benchmarks/scale.py [--agents 1000] [--iterations 50] [--features 100] [--workers 2] [--mode barrier] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ray

from fedbo.coordinator.actor import Coordinator
from fedbo.jobs import runs
from fedbo.study import load_study


def study(agents: int, iterations: int, features: int, mode: str, hosting: dict[str, Any]) -> dict[str, Any]:
    """Describe FTS in its most general setting: everybody sends and receives, t_n grows, no fits of hyperparameters."""
    algorithm = {"name": "fts", "every": 1, "relay": "one", "query": "draw", "kernel": "se", "features": features}
    own = {"surrogate": "features", "features": features, "length_scale": 0.2}
    return {
        "study": {"name": "scale", "seed": 1},
        "objective": {"name": "quadratic", "agents": agents},
        "budget": {"iterations": iterations},
        "algorithm": [{**algorithm, "own": own}],
        "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "constant", "mean": 0.1}},
        "exchange": {"mode": mode},
        "hosting": hosting,
    }


def main() -> None:
    """Run the study packed on Ray, or inline under the profiler."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", default="barrier", choices=("barrier", "immediate"))
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    hosting = {"kind": "inline"} if given.profile or not given.workers else {"kind": "packed", "workers": given.workers}
    checked = load_study(study(given.agents, given.iterations, given.features, given.mode, hosting))
    with tempfile.TemporaryDirectory() as folder:
        (run,) = runs(checked, Path(folder))
        profiler = cProfile.Profile()
        if hosting["kind"] == "packed":
            ray.init(num_cpus=given.workers, include_dashboard=False, log_to_driver=False)
        begun, before = time.perf_counter(), time.process_time()
        if given.profile:
            profiler.enable()
        ended = Coordinator().run(run)
        profiler.disable()
        seconds, here = time.perf_counter() - begun, time.process_time() - before
    done = given.agents * given.iterations
    print(f"{given.agents} agents, {given.iterations} iterations, M = {given.features}, {given.mode}, {hosting}")
    print(f"{done / seconds:,.0f} agent-iterations per second, {seconds:.1f} s ({here:.1f} s of it in the engine's process)")
    print(f"{ended.outcome.events:,} events")
    if given.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    if hosting["kind"] == "packed":
        ray.shutdown()


if __name__ == "__main__":
    main()
