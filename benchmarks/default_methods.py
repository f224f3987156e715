"""Processor time of methods with their default settings: of a row of a population's run, and of one agent's suggestion.

The first table has microseconds of a row of the observations, decisions, fits, draws, messages and tables included, on a free
objective, and the ratio to the setting in which `scale.py` measures `fts`: nothing fitted. Cases take turns; the best pass of
each counts, and the median of the ratios within a pass. The second table has milliseconds of a suggestion of an agent alone
that has so many observations: the first one, with the fit from nothing, and the mean of those after it. Half of the
observations are uniform, half gather about the optimum. Both measure one process, BLAS at one thread.

    python benchmarks/default_methods.py [--agents 200] [--iterations 15] [--passes 3] [--mode barrier]
    python benchmarks/default_methods.py --observations 50 200 400 1000 3000 [--inputs 3] [--suggestions 20]
    python benchmarks/default_methods.py --shares

With `--shares` a signal every half millisecond of processor time finds what a row is at: compiled routines of fits, or Python
that prepares them, of which fits of many agents in one call could save a part.
"""

from __future__ import annotations

import argparse
import linecache
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import mean, median
from types import FrameType
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
from scale import published, study  # noqa: E402

from fedbo.algorithms.base import Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.algorithms.streams import Streams  # noqa: E402
from fedbo.coordinator.runtime.actor import Coordinator  # noqa: E402
from fedbo.execution.jobs import runs  # noqa: E402
from fedbo.study.study import load_study  # noqa: E402

Array = npt.NDArray[np.float64]
PUBLISHED = "fts, nothing fitted"
METHODS: dict[str, dict[str, Any]] = {
    "fts": {"name": "fts"},
    "fts, every = 1": {"name": "fts", "every": 1},
    "ts": {"name": "ts"},
    "share_best": {"name": "share_best"},
    "trust_best": {"name": "trust_best"},
    "gp_ei": {"name": "gp_ei"},
    "fed_prior": {"name": "fed_prior"},
}
ALONE = ("gp_ei", "ts")
FITS = ("_warped", "_warped_along", "fit_gp", "_fitted", "belief_of")  # functions that fit a process to an agent's observations
COMPILED_FITS = ("fit(number, ", "choose(number, ", "climb(*evidence(")  # and their calls of compiled routines


def row(name: str, given: argparse.Namespace, iterations: int) -> float:
    """Give the microseconds of a row of a run, from the states of agents to the tables."""
    algorithm = published(100, given.mode) if name == PUBLISHED else METHODS[name]
    document = study(given.agents, iterations, algorithm, given.mode, {"kind": "inline"})
    with tempfile.TemporaryDirectory() as folder:
        (run,) = runs(load_study(document), Path(folder))
        begun = time.process_time()
        Coordinator().run(run)
        return 1e6 * (time.process_time() - begun) / (given.agents * iterations)


def population(given: argparse.Namespace) -> None:
    """Print a line for each method."""
    names = [PUBLISHED, *METHODS]
    for name in names:
        row(name, given, 1)  # imports, and what is compiled or computed once
    passes = [{name: row(name, given, given.iterations) for name in names} for _ in range(given.passes)]
    print(f"{given.mode}, {given.agents} agents, {given.iterations} iterations")
    for name in names:
        ratio = median(one[name] / one[PUBLISHED] for one in passes)
        print(f"{name:24}{min(one[name] for one in passes):9,.0f} us a row{ratio:8.1f}", flush=True)


def shares(given: argparse.Namespace) -> None:
    """Print the shares of a row for each method."""
    for name, settings in METHODS.items():
        row(name, given, given.iterations)  # compiles
        document, counts = study(given.agents, given.iterations, settings, given.mode, {"kind": "inline"}), Counter[str]()
        with tempfile.TemporaryDirectory() as folder:
            (run,) = runs(load_study(document), Path(folder))
            signal.signal(signal.SIGPROF, lambda _, frame, counts=counts: counts.update([part_of(frame)]))
            signal.setitimer(signal.ITIMER_PROF, 0.0005, 0.0005)
            Coordinator().run(run)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        fits, preparing = (100 * counts[part] / counts.total() for part in ("fits", "preparing"))
        print(f"{name:24}{fits:8.1f} % fits{preparing:8.1f} % preparing fits{counts.total():8,} signals", flush=True)


def part_of(frame: FrameType | None) -> str:
    """Return in which part of a row a signal came; a compiled routine is in the line that calls it."""
    assert frame is not None
    if any(call in linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0) for call in COMPILED_FITS):
        return "fits"
    at: FrameType | None = frame
    while at is not None:
        if at.f_code.co_name in FITS:
            return "preparing"
        at = at.f_back
    return "other"


def values(x: Array) -> Array:
    """Compute a bowl with ripples (Levy's idea), largest at 0.35 in each input."""
    z = 4.0 * (x - 0.35)
    return np.asarray(-(z**2).sum(axis=1) - 0.5 * (1.0 - np.cos(2.0 * np.pi * z)).sum(axis=1))


def suggestions(name: str, count: int, given: argparse.Namespace) -> list[float]:
    """Give the milliseconds of suggestions of an agent that begins with so many observations."""
    algorithm, streams, rng = entry(name).make(), Streams(count).of(0), np.random.default_rng(count)
    problem = Problem(given.inputs, 1, (0,), count, given.suggestions, agent=0)
    x = rng.random((count, given.inputs))
    x[::2] = np.clip(0.35 + 0.1 * rng.random((len(x[::2]), 1)) ** 2 * rng.standard_normal(x[::2].shape), 0.0, 1.0)
    state, spent = algorithm.tell(algorithm.agent_init(problem, streams), x, values(x)), []
    for step in range(1, given.suggestions + 1):
        begun = time.process_time()
        decision, state = algorithm.ask(state, (), streams.at(step))
        spent.append(1e3 * (time.process_time() - begun))
        state = algorithm.tell(state, decision.x, values(decision.x))
    return spent


def histories(given: argparse.Namespace) -> None:
    """Print a line for each method and number of observations."""
    print(f"{given.inputs} inputs, {given.suggestions} suggestions; milliseconds: first, mean of the others, longest of them")
    for name in ALONE:
        suggestions(name, 10, given)
        for count in given.observations:
            spent = suggestions(name, count, given)
            print(f"{name:8}{count:8,}{spent[0]:10.1f}{mean(spent[1:]):10.1f}{max(spent[1:]):10.1f}", flush=True)


def main() -> None:
    """Print one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--mode", default="barrier")
    parser.add_argument("--observations", type=int, nargs="+", default=[])
    parser.add_argument("--inputs", type=int, default=3)
    parser.add_argument("--suggestions", type=int, default=20)
    parser.add_argument("--shares", action="store_true")
    given = parser.parse_args()
    if given.observations:
        histories(given)
    elif given.shares:
        shares(given)
    else:
        population(given)


if __name__ == "__main__":
    main()
