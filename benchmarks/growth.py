"""The cost of an agent's step as curves, against agents, observations, features, dimensions and rounds.

It measures processor time, which a busy machine changes little, of runs in one process. The first two panels have whole runs
(decisions, evaluations of a free objective, messages, tables), divided by the number of agent-iterations, each in a separate
process. The others have single steps of one agent (decide, evaluate, learn, write the message): the median of several seeds.

    python benchmarks/growth.py [--figure docs/images/growth.png] [--quick]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from fedbo.actors.agent import HostedAgent
from fedbo.actors.task import StepRequest
from fedbo.coordinator.runtime.actor import Coordinator
from fedbo.execution.jobs import runs
from fedbo.figures.style import COLOURS, STYLE
from fedbo.study.study import load_study

Curve = list[tuple[int, float]]
Cost = TypeVar("Cost", float, tuple[float, float])
GENERAL = "fts, nothing fitted"  # in its most general setting, as in `scale.py`
METHODS: dict[str, dict[str, Any]] = {
    "random": {"name": "random"},
    GENERAL: {"name": "fts", "every": 1, "relay": "one", "query": "draw", "kernel": "se"},
    "ts": {"name": "ts"},
    "fts": {"name": "fts", "every": 1},
    "gp_ei": {"name": "gp_ei"},
}
AHEAD = 3  # steps that are timed at each number of observations


def study(method: str, agents: int, iterations: int, **given: int) -> dict[str, Any]:
    """Describe a study of one method: `features` M, `dimensions` d, `initial` points and `seed` may be given."""
    algorithm = dict(METHODS[method])
    if method == GENERAL:
        features = given.get("features", 100)
        algorithm |= {"features": features, "own": {"surrogate": "features", "features": features, "length_scale": 0.2}}
    elif method == "fts" and "features" in given:
        algorithm["features"] = given["features"]
    return {
        "study": {"name": "growth", "seed": given.get("seed", 1)},
        "objective": {"name": "quadratic", "agents": agents, "dimensions": given.get("dimensions", 2)},
        "agents": {"initial": given.get("initial", 3)},
        "budget": {"iterations": iterations},
        "algorithm": [algorithm],
        "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "constant", "mean": 0.1}},
        "exchange": {"mode": "barrier"},
    }


def whole(method: str, agents: int, iterations: int) -> tuple[float, float]:
    """Give milliseconds for each agent-iteration of a run, and the most memory in MiB."""
    carry_out(study(method, 2, 1))  # imports, and what is compiled or computed once
    seconds = carry_out(study(method, agents, iterations))
    return 1000 * seconds / (agents * iterations), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def carry_out(document: dict[str, Any]) -> float:
    """Carry a study's only run out, and give its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        (run,) = runs(load_study(document), Path(folder))
        begun = time.process_time()
        Coordinator().run(run)
        return time.process_time() - begun


def fresh(method: str, agents: int, iterations: int) -> tuple[float, float]:
    """Measure a run in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(whole, method, agents, iterations).result()


def steps(method: str, observations: int, seeds: int, **given: int) -> float:
    """Give the milliseconds of one step of an agent that has so many observations."""
    found = []
    for seed in range(seeds):
        document = study(method, 2, AHEAD + 1, initial=observations, seed=seed, **given)
        (run,) = runs(load_study(document), Path())
        agent = HostedAgent(run.task, 0)
        for step in range(AHEAD + 2):
            begun = time.process_time()
            agent.work(StepRequest(0, step))
            took = time.process_time() - begun
            if step > 1:  # step 0 is the initial points, and the first decision after them computes what is kept
                found.append(1000 * took)
    return median(found)


def told(cost: Cost, method: str, value: int) -> Cost:
    """Print a cost when it is measured, since all of them take half an hour, and return it."""
    print(f"{method}, {value}: {cost}", flush=True)
    return cost


def curves(quick: bool) -> Iterator[tuple[str, str, dict[str, Curve]]]:
    """Measure panel by panel: the label of its horizontal axis, that of the other one, and the curves."""
    seeds, longest = (2, 2) if quick else (5, 6)
    every = tuple(METHODS)

    def of(methods: Sequence[str], values: Sequence[int], cost: Callable[[str, int], float]) -> dict[str, Curve]:
        return {method: [(value, told(cost(method, value), method, value)) for value in values[:longest]] for method in methods}

    sizes = (10, 100, 1000, 3000)[:longest]
    methods = ("random", GENERAL, "fts")
    found = {method: [told(fresh(method, agents, 20), method, agents) for agents in sizes] for method in methods}
    for label, place in (("ms for each agent-iteration", 0), ("MiB, whole process", 1)):
        each = {
            method: [(agents, pair[place]) for agents, pair in zip(sizes, pairs, strict=True)]
            for method, pairs in found.items()
        }
        yield "agents N, 20 rounds", label, each
    lasts = lambda method, rounds: fresh(method, 20, rounds)[0]  # noqa: E731
    yield "rounds T, 20 agents", "ms for each agent-iteration", of(("random", GENERAL, "fts"), (10, 30, 100, 200), lasts)
    label = "ms for one step"
    yield "observations n", label, of(every, (5, 10, 20, 50, 100, 200), partial(steps, seeds=seeds))
    features = lambda method, count: steps(method, 20, seeds, features=count)  # noqa: E731
    yield "features M, n = 20", label, of((GENERAL, "fts"), (50, 100, 200, 400, 800), features)
    dimensions = lambda method, count: steps(method, 20, seeds, dimensions=count)  # noqa: E731
    yield "inputs d, n = 20", label, of(every, (1, 2, 5, 10, 20), dimensions)


def drawn(panels: Sequence[tuple[str, str, dict[str, Curve]]], path: str) -> None:
    """Draw all panels with logarithmic axes."""
    with rc_context(STYLE):
        figure = Figure(figsize=(9.5, 5.6), layout="constrained")
        axes = figure.subplots(2, 3).flat
        for panel, (across, up, found) in zip(axes, panels, strict=True):
            for method, curve in found.items():
                colour = COLOURS[tuple(METHODS).index(method)]
                panel.loglog(*zip(*curve, strict=True), marker="o", markersize=3.5, color=colour, label=method)
            panel.set(xlabel=across, ylabel=up)
            panel.minorticks_off()
            ticks = [value for value, _ in next(iter(found.values()))]
            panel.set_xticks(ticks, [str(tick) for tick in ticks])
            panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        handles, labels = figure.axes[3].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        figure.savefig(path, dpi=90)


def main() -> None:
    """Print each panel as a table, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--figure", help="write a figure to this file")
    parser.add_argument("--quick", action="store_true", help="use few values and seeds")
    given = parser.parse_args()
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    print(f"commit {revision.stdout.strip()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, processor time")
    panels = []
    for across, up, found in curves(given.quick):
        panels.append((across, up, found))
        print(f"\n{up}, by {across}")
        print(f"{'':22}" + "".join(f"{value:>9}" for value, _ in next(iter(found.values()))))
        for method, curve in found.items():
            print(f"{method:22}" + "".join(f"{cost:>9.3g}" for _, cost in curve), flush=True)
    if given.figure:
        drawn(panels, given.figure)


if __name__ == "__main__":
    main()
