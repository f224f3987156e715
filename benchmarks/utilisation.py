"""Utilisation of workers by short evaluations: `fedbo.tune`, Ray Tune, and Optuna with Ray tasks, in one run.

200 evaluations sleep for 0.1 to 2 seconds (log-normal), with the same lengths in the same order for all, on 8 workers of a Ray
with 8 CPUs, whatever this machine has. Several agents share all workers. The objectives record when they began and how long
they slept:

- whole: busy worker-seconds over 8 times the time from the first start to the last end of the 200 evaluations that began first;
- steady: the same from the first time that all workers are busy to the last start of an evaluation;
- idle: idle worker-seconds per evaluation in the steady part.

With `prefetch`, agents decide on some points before a worker is free for them.

    python benchmarks/utilisation.py [--evaluations 200] [--length 0.2] [--only NAME;NAME]
    python benchmarks/utilisation.py --accept

With `--length` all evaluations take this time, in seconds. Optuna's threads (`n_jobs`, and joblib) need no Ray.

`--accept` measures one, two and eight agents with `prefetch` and Optuna in turn, three times. It tests whether, in the median,
workers are busy in at least 95 % of the steady part, and idle for at most twice as long as with Optuna. It takes five minutes.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"

import numpy as np
import optuna
import ray
from joblib import Parallel, delayed
from ray import tune
from ray.tune.search.optuna import OptunaSearch

import fedbo

WORKERS = 8
OPTUNA = "Optuna, Ray tasks"
ACCEPTED = [
    "fedbo, 8 agents, parallel 1, prefetch 2",
    "fedbo, 2 agents, parallel 4, prefetch 2",
    "fedbo, 1 agent, parallel 8, prefetch 4",
    OPTUNA,
]
ROUNDS, STEADY, IDLE = 3, 0.95, 2.0
SPACE: dict[str, Any] = {"x": (0.0, 1.0), "n": (1, 30), "kind": ["a", "b", "c"]}


def lengths(count: int) -> list[float]:
    """Draw how long the evaluations take, in seconds."""
    drawn = np.random.default_rng(7).lognormal(np.log(0.5), 0.8, size=50 * count)
    return [round(float(length), 4) for length in drawn[(drawn >= 0.1) & (drawn <= 2.0)][:count]]


def work(config: dict[str, Any], folder: str, times: list[float]) -> float:
    """Sleep as long as the next in line does, and note when that was, at once, for it may be given up in the end."""
    file = os.open(Path(folder) / "tickets", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    begun = time.time()
    os.write(file, b".")
    place = os.lseek(file, 0, os.SEEK_CUR) - 1
    os.close(file)
    length = times[place % len(times)]
    with (Path(folder) / "notes").open("a") as notes:
        notes.write(f"{begun} {begun + length}\n")
    time.sleep(length)
    return float(-((config["x"] - 0.3) ** 2) - 0.01 * (config["n"] - 10) ** 2)


def by_fedbo(folder: str, times: list[float], agents: int, parallel: int, prefetch: int = 0, algorithm: str = "fts") -> None:
    """Let these agents share the evaluations."""

    def objective(config: dict[str, Any]) -> float:
        return work(config, folder, times)

    fedbo.tune(
        objective, SPACE, agents, algorithm=algorithm, initial=max(3, parallel), iterations=len(times),
        evaluations=len(times), parallel=parallel, prefetch=prefetch, resources={"CPU": 1}, out=Path(folder) / "run",
    )  # fmt: skip


def by_ray_tune(folder: str, times: list[float]) -> None:
    """Let Ray Tune do it, with Optuna's search and with actors that are used again."""

    def trainable(config: dict[str, Any]) -> dict[str, float]:
        return {"value": work(config, folder, times)}

    space = {"x": tune.uniform(0.0, 1.0), "n": tune.randint(1, 31), "kind": tune.choice(["a", "b", "c"])}
    tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="value", mode="max", num_samples=len(times), search_alg=OptunaSearch(), reuse_actors=True,
            max_concurrent_trials=WORKERS,
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    ).fit()  # fmt: skip


def by_optuna(folder: str, times: list[float]) -> None:
    """Ask and tell an Optuna study, with Ray tasks for the evaluations."""
    study, remote = optuna.create_study(direction="maximize"), ray.remote(work)
    flying: dict[Any, Any] = {}
    left = len(times)
    while left or flying:
        while left and len(flying) < WORKERS:
            trial = study.ask()
            config = {"x": trial.suggest_float("x", 0.0, 1.0), "n": trial.suggest_int("n", 1, 30)}
            config["kind"] = trial.suggest_categorical("kind", ["a", "b", "c"])
            flying[remote.remote(config, folder, times)] = trial
            left -= 1
        (done,), _ = ray.wait(list(flying))
        study.tell(flying.pop(done), ray.get(done))


def by_threads(folder: str, times: list[float], joblib: bool = False) -> None:
    """Let Optuna optimise in threads of this process: its own `n_jobs`, or one call for each thread of joblib."""
    study = optuna.create_study(direction="maximize")

    def objective(trial: optuna.Trial) -> float:
        config = {"x": trial.suggest_float("x", 0.0, 1.0), "n": trial.suggest_int("n", 1, 30)}
        config["kind"] = trial.suggest_categorical("kind", ["a", "b", "c"])
        return work(config, folder, times)

    if joblib:
        each = delayed(study.optimize)
        Parallel(WORKERS, prefer="threads")(each(objective, n_trials=len(times) // WORKERS) for _ in range(WORKERS))
    else:
        study.optimize(objective, n_trials=len(times), n_jobs=WORKERS)


class Use(NamedTuple):
    """How workers were used: evaluations, span in seconds, shares, idle milliseconds for each evaluation, seconds it took."""

    evaluations: int
    span: float
    whole: float
    steady: float
    idle: float
    took: float

    def row(self, name: str) -> str:
        """Give a line of the table."""
        steady = f"{self.steady:7.1%} {self.idle:9.0f} ms"
        steady = f"{'-':>7} {'-':>12}" if math.isnan(self.steady) else steady
        more = "   never were all workers busy" if math.isnan(self.steady) else ""
        return f"{name:40} {self.evaluations:11d} {self.span:9.1f} {self.whole:7.1%} {steady} {self.took:9.1f}{more}"


def measured(way: Callable[[str, list[float]], None], times: list[float]) -> Use:
    """Let one way do the work, and give how workers were used."""
    ray.get([ray.remote(nap).remote() for _ in range(WORKERS)])  # whoever was before may have ended some workers
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        way(folder, times)
        took = time.time() - began
        notes = np.array([[float(each) for each in line.split()] for line in (Path(folder) / "notes").read_text().splitlines()])
    notes = notes[np.argsort(notes[:, 0])][: len(times)]
    starts, ends = notes[:, 0], notes[:, 1]
    whole = busy(notes, starts[0], ends.max())
    span, last = ends.max() - starts[0], starts[-1]
    first = next((start for start in starts if (ends[starts <= start] > start).sum() == WORKERS), last)
    if first == last:
        return Use(len(notes), span, whole, float("nan"), float("nan"), took)
    steady = busy(notes, first, last)
    idle = (1 - steady) * WORKERS * (last - first) / (starts > first).sum()
    return Use(len(notes), span, whole, steady, 1000 * idle, took)


def busy(notes: np.ndarray[Any, Any], since: float, until: float) -> float:
    """Give the share of the workers' time between two moments that went into evaluations."""
    overlap = np.minimum(notes[:, 1], until) - np.maximum(notes[:, 0], since)
    return float(np.clip(overlap, 0, None).sum() / (WORKERS * (until - since)))


def nap() -> None:
    """Keep a worker for two seconds."""
    time.sleep(2.0)


@contextmanager
def started() -> Iterator[None]:
    """Start a Ray with 8 CPUs, whatever this machine has."""
    ray.init("local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        yield
    finally:
        ray.shutdown()


def judge(found: dict[str, list[Use]]) -> None:
    """Print the medians of what was accepted against, and whether they are good enough."""
    idle = {name: median(use.idle for use in uses) for name, uses in found.items()}
    print(f"\n{f'medians of {ROUNDS}':40} {'steady':>7} {'idle each':>12} {'of Optuna':>10}")
    for name, uses in found.items():
        steady, ratio = median(use.steady for use in uses), idle[name] / idle[OPTUNA]
        verdict = "" if name == OPTUNA else "met" if steady >= STEADY and ratio <= IDLE else "not met"
        print(f"{name:40} {steady:7.1%} {idle[name]:9.0f} ms {ratio:10.2f} {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--length", type=float)
    parser.add_argument("--only", default="")
    parser.add_argument("--accept", action="store_true")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    times = lengths(options.evaluations) if options.length is None else [options.length] * options.evaluations
    ways: dict[str, Callable[[str, list[float]], None]] = {
        "fedbo, 8 agents, parallel 1": partial(by_fedbo, agents=8, parallel=1),
        "fedbo, 8 agents, parallel 1, prefetch 1": partial(by_fedbo, agents=8, parallel=1, prefetch=1),
        "fedbo, 8 agents, parallel 1, prefetch 2": partial(by_fedbo, agents=8, parallel=1, prefetch=2),
        "fedbo, 2 agents, parallel 4": partial(by_fedbo, agents=2, parallel=4),
        "fedbo, 2 agents, parallel 4, prefetch 2": partial(by_fedbo, agents=2, parallel=4, prefetch=2),
        "fedbo, 1 agent, parallel 8": partial(by_fedbo, agents=1, parallel=8, algorithm="ts"),
        "fedbo, 1 agent, parallel 8, prefetch 4": partial(by_fedbo, agents=1, parallel=8, prefetch=4, algorithm="ts"),
        "Ray Tune, reuse_actors": by_ray_tune,
        OPTUNA: by_optuna,
        "Optuna, n_jobs": by_threads,
        "Optuna, joblib threads": partial(by_threads, joblib=True),
    }
    only = ACCEPTED if options.accept else options.only.split(";") if options.only else list(ways)
    chosen = {name: way for name, way in ways.items() if name in only}
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {sum(times):.0f} s of sleep")
    print(f"{'':40} {'evaluations':>11} {'span [s]':>9} {'whole':>7} {'steady':>7} {'idle each':>12} {'took [s]':>9}")
    with started():
        found: dict[str, list[Use]] = {name: [] for name in chosen}
        for name, way in [*chosen.items()] * (ROUNDS if options.accept else 1):
            found[name].append(measured(way, times))
            print(found[name][-1].row(name), flush=True)
    if options.accept:
        judge(found)


if __name__ == "__main__":
    main()
