"""Processor time of a row where a study is not plain, relative to plain rounds of as many agents in the same process.

All agents run FTS with nothing fitted on a free objective, with lognormal durations and one constant latency. The time of a row
of the observations has all that a run does: decisions, draws, messages, events, tables. Cases take turns; the best pass of each
counts, and of the ratios within a pass the median, since other load on the machine changes from pass to pass. The cases `idle`
have ten times as many agents, of which each round asks one in a hundred.

    python benchmarks/untidy.py [--agents 1000] [--iterations 3] [--passes 5] [--only buffered immediate] [--profile]

With `--profile` one pass of each case runs under the profiler instead.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import gc
import io
import pstats
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
from scale import published, study

import fedbo
from fedbo.commands.new import Kind, new
from fedbo.coordinator.runtime.actor import Coordinator
from fedbo.execution.jobs import runs

Document = dict[str, Any]
_FAULTS: list[Document] = [
    {"kind": "loss", "probability": 0.1},
    {"kind": "crash", "rate": 0.01, "restart": 1.0},
    {"kind": "hang", "rate": 0.01, "duration": 1.0},
    {"kind": "slow", "rate": 0.01, "duration": 1.0, "factor": 2.0},
]
_FUNCTION: Document = {"name": "python_function", "function": "untidy:peak", "low": [0.0, 0.0], "high": [1.0, 1.0]}
_OWN: Document = {"algorithm": [{"name": "untidy_own.py:UntidyOwn"}]}
_BUFFERED: Document = {"exchange": {"mode": "buffered"}}
_DEADLINE: Document = {"mode": "deadline", "length": 3.0, "selection": {"who": "fraction", "share": 0.01, "others": "idle"}}
_MARKOV: Document = {"model": "markov", "present": 10.0, "absent": 5.0}
# What differs from plain rounds, or from idle ones, and the largest ratio that is wanted.
CASES: dict[str, tuple[Document, float]] = {
    "barrier": ({}, 1.0),
    "python_function": ({"objective": _FUNCTION}, 1.3),
    "own": (_OWN, 1.5),
    "buffered": (_BUFFERED, 1.3),
    "immediate": ({"exchange": {"mode": "immediate"}}, 1.5),
    "buffered_faults": ({**_BUFFERED, "fault": _FAULTS}, 2.0),
    "own_buffered": ({**_OWN, **_BUFFERED}, 2.0),
    "parallel": ({"evaluation": {"parallel": 4}}, 2.5),
    "cluster": ({"cluster": {"workers": 5}}, 3.0),
    "idle": ({}, 1.0),
    "idle_faults": ({"fault": _FAULTS}, 2.0),
    "idle_deadline": ({"exchange": _DEADLINE, "fault": _FAULTS}, 2.5),
    "idle_markov": ({"availability": _MARKOV}, 2.0),
}
_SHARE, _MORE, _ROUNDS = 0.01, 10, 10  # of idle cases: agents that a round asks, times as many agents and rounds


def peak(x: Any) -> float:
    """Compute what a plain Python function of two numbers may be."""
    return float(-((x[0] - 0.3) ** 2) - (x[1] - 0.7) ** 2)


def document(name: str, agents: int, iterations: int) -> Document:
    """Describe the study of a case."""
    idle = name.startswith("idle")
    size = (_MORE * agents, _ROUNDS * iterations) if idle else (agents, iterations)
    share, algorithm = _SHARE if idle else 1.0, published(100, "barrier")
    plain = study(*size, algorithm, "barrier", {"kind": "inline"}, share) | {"agents": {"initial": 1}}
    found = plain | CASES[name][0]
    if "objective" in CASES[name][0]:
        found["objective"] = {**found["objective"], "agents": size[0]}
    return found


def carry_out(name: str, agents: int, iterations: int, profiler: cProfile.Profile | None = None) -> tuple[float, int]:
    """Run a case; give the seconds of processor time and the rows of the observations."""
    checked = fedbo.load_study(document(name, agents, iterations), trust=True)
    with tempfile.TemporaryDirectory() as folder:
        (run,) = runs(checked, Path(folder) / "run")
        gc.collect()
        with contextlib.nullcontext() if profiler is None else profiler:
            begun = time.process_time()
            Coordinator().run(run)
            seconds = time.process_time() - begun
        rows = sum(pq.read_metadata(path).num_rows for path in Path(folder).rglob("observations*.parquet"))
    return seconds, rows


def main() -> None:
    """Print microseconds a row of each case, their ratio to the plain case, and the largest ratio that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    plain = {"idle" if name.startswith("idle") else "barrier" for name in given.only}
    names = [name for name in CASES if name in {*given.only, *plain}]
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        sys.path += [str(Path(__file__).parent), folder]
        with contextlib.redirect_stdout(io.StringIO()):
            new(Kind.algorithm, "untidy_own", Path(folder))
        for name in names:
            carry_out(name, 10, 2)  # imports, compiled routines
        for name in names if given.profile else ():
            profiler = cProfile.Profile()
            seconds, rows = carry_out(name, given.agents, given.iterations, profiler)
            print(f"{name}: {rows} rows, {1e6 * seconds / rows:.0f} us each, profiled")
            pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
        for _ in range(0 if given.profile else given.passes):
            for name in names:
                seconds, rows = carry_out(name, given.agents, given.iterations)
                found[name].append(1e6 * seconds / rows)
    print(f"{given.agents} agents, {given.iterations} iterations, {given.passes} passes of processor time")
    for name in () if given.profile else names:
        others = found["idle" if name.startswith("idle") else "barrier"]
        ratio = median(one / other for one, other in zip(found[name], others, strict=True))
        print(f"{name:16s} {min(found[name]):6.0f} us a row, {ratio:5.2f} times, wanted {CASES[name][1]}", flush=True)


if __name__ == "__main__":
    main()
