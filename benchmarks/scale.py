"""Agent-iterations per second of a large study: all agents optimise at once and exchange a message after every iteration.

Decisions, draws, messages, evaluations of a free objective and the writing of all tables are included. The start of Ray and
its actors is not, since a small study runs before. `--profile` runs in one process under the profiler instead. Methods have
their defaults, one after the other; `--published` is FTS in the setting of published comparisons, with nothing fitted.

    python benchmarks/scale.py [--methods fts trust_best gp_ei] [--agents 1000] [--iterations 50] [--workers 2] [--mode barrier]
    python benchmarks/scale.py --published --agents 100000 --iterations 20 [--features 100] [--profile]
    python benchmarks/scale.py --private --agents 10000 --iterations 60
    python benchmarks/scale.py --published --agents 1000000 --iterations 99 --share 0.01

With `--share` each round asks that share of the agents, and the others are idle. An iteration is then a round, with one more
in all, and the steps of the asked agents count.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ray

from fedbo.coordinator.runtime.actor import Coordinator
from fedbo.execution.jobs import runs
from fedbo.study.study import load_study

SELECTION = {"who": "fraction", "others": "idle"}


def published(features: int, mode: str, private: bool = False) -> dict[str, Any]:
    """Describe FTS in its most general setting, or DP-FTS-DE: t_n grows, and nothing is fitted."""
    algorithm = {"name": "fts", "every": 1, "relay": "one", "query": "draw", "kernel": "se", "features": features}
    if private:
        algorithm = {"name": "dp_fts_de", "regions": 4, "share": 0.25 if mode == "barrier" else 1.0, "features": features}
    return {**algorithm, "own": {"surrogate": "features", "features": features, "length_scale": 0.2}}


def study(
    agents: int, iterations: int, algorithm: dict[str, Any], mode: str, hosting: dict[str, Any], share: float = 1.0
) -> dict[str, Any]:
    """Describe a study in which all agents take part, or a share in each round."""
    return {
        "study": {"name": "scale", "seed": 1},
        "objective": {"name": "quadratic", "agents": agents},
        "budget": {"iterations": iterations},
        "algorithm": [algorithm],
        "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "constant", "mean": 0.1}},
        "exchange": {"mode": mode} | ({"selection": SELECTION | {"share": share}} if share < 1 else {}),
        "hosting": hosting,
    } | ({"agents": {"initial": 1}} if share < 1 else {})


def _memory() -> int:
    """Give the most memory that this process and those that it has waited for have used, in MiB."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) // 1024


class _Used(threading.Thread):
    """The most memory that this process and the hosts of agents used at a time, in MiB, looked at twice a second.

    What processes share is divided among them.
    """

    def __init__(self, hosts: int) -> None:
        super().__init__(daemon=True)
        self.most, self._hosts, self._over = 0, hosts, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.5):
            self.most = max(self.most, sum(map(_proportional, [os.getpid(), *self._processes()])))

    def _processes(self) -> list[int]:
        names = {int(path.parent.name): path for path in Path("/proc").glob("[0-9]*/cmdline")} if self._hosts else {}
        return [number for number, path in names.items() if _read(path).startswith("ray::Host")]

    def end(self) -> int:
        """Stop looking."""
        self._over.set()
        self.join()
        return self.most


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""


def _proportional(process: int) -> int:
    found = _read(Path(f"/proc/{process}/smaps_rollup")).partition("\nPss:")[2].split()
    return int(found[0]) // 1024 if found else 0


def _processor_time(hosts: list[Any]) -> float:
    """Add up the seconds of processor time that host actors have used."""
    if not hosts:
        return 0.0
    return float(sum(ray.get([host.__ray_call__.remote(lambda _: time.process_time()) for host in hosts])))


def main() -> None:
    """Run the studies packed on Ray, or inline under the profiler."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="+", default=["fts", "trust_best", "gp_ei"], help="methods, with their defaults")
    parser.add_argument("--published", action="store_true", help="run FTS as published comparisons do, with nothing fitted")
    parser.add_argument("--private", action="store_true", help="run DP-FTS-DE with its ledger, with nothing fitted")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--features", type=int, default=100, help="features of --published and --private")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", default="barrier", choices=("barrier", "immediate"))
    parser.add_argument("--share", type=float, default=1.0, help="share of the agents that a round asks; the others are idle")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    hosting = {"kind": "inline"} if given.profile or not given.workers else {"kind": "packed", "workers": given.workers}
    if hosting["kind"] == "packed":
        ray.init("local", num_cpus=given.workers, include_dashboard=False, log_to_driver=False)
    fixed = published(given.features, given.mode, given.private) if given.published or given.private else None
    for algorithm in [{"name": name} for name in given.methods] if fixed is None else [fixed]:
        measure(given, algorithm, hosting)
    if hosting["kind"] == "packed":
        ray.shutdown()


def measure(given: argparse.Namespace, algorithm: dict[str, Any], hosting: dict[str, Any]) -> None:
    """Run one study and print what it took."""
    first = load_study(study(10, 2, algorithm, given.mode, hosting))
    checked = load_study(study(given.agents, given.iterations, algorithm, given.mode, hosting, given.share))
    coordinator, used = Coordinator(), _Used(given.workers)
    used.start()
    with tempfile.TemporaryDirectory() as folder:
        (small,), (run,) = runs(first, Path(folder) / "first"), runs(checked, Path(folder) / "run")
        profiler = cProfile.Profile()
        coordinator.run(small)
        begun, before, others = time.perf_counter(), time.process_time(), _processor_time(coordinator.hosts)
        if given.profile:
            profiler.enable()
        ended = coordinator.run(run)
        profiler.disable()
        seconds, here = time.perf_counter() - begun, time.process_time() - before
        there = _processor_time(coordinator.hosts) - others
    done = given.agents * given.iterations
    if given.share < 1:
        done = round(given.share * given.agents) * (given.iterations + 1)
    how = "with its defaults" if len(algorithm) == 1 else f"with M = {given.features} and nothing fitted"
    print(f"{algorithm['name']} {how}, {given.agents} agents, {given.iterations} iterations, {given.mode}, {hosting}")
    print(f"{done / seconds:,.0f} agent-iterations per second, {seconds:.1f} s")
    each = [1e6 * spent / done for spent in (here, there)]
    print(f"processor time of each: {each[0]:.0f} us in the engine's process, {each[1]:.0f} us in those of hosts")
    print(f"{ended.events:,} events, {_memory()} MiB here, {used.end()} MiB with all hosts, snapshots {ended.kept:.1f} s")
    if given.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
