"""Forecasts of a study's duration: virtual time by a dry run of its events, real time by the beginning of each of its runs."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from fedbo.coordinator.runtime.actor import Coordinator, Run, RunSummary
from fedbo.execution.jobs import runs
from fedbo.lab.twins.stand_ins import can_be_stood_in_for, stood_in
from fedbo.objectives.base import reports_costs
from fedbo.objectives.functions import Quadratic
from fedbo.study.study import Study

SECONDS = 30.0  # of computing for all beginnings together, and at least `LEAST` for each
LEAST = 4.0
_POLL = 0.1
_SHARES = (1e-3, 1.0)
_SEEN = 4  # moments that are needed for more than a proportion
_ENDS = 2.2  # a process starts, and draws its figure and its page in the end, in so many times what the start takes
_DEGREE = 3  # of how the computing grows with a run's length


@dataclass(frozen=True, slots=True)
class RunForecast:
    """The forecast of one run of an algorithm in a cell: virtual time, and seconds of computing; `share` of it was carried out.

    The first run of a process takes `once` more, for its imports.
    """

    cell: int
    algorithm: str
    virtual: float | None
    seconds: float
    share: float
    once: float = 0.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a study: its runs, and the real seconds of all of them on its workers."""

    runs: tuple[RunForecast, ...]
    seconds: float

    @property
    def virtual(self) -> float | None:
        """Return the virtual time of the longest run; None if that of any run is unknown."""
        known = [run.virtual for run in self.runs]
        return None if None in known else max(one for one in known if one is not None)


def forecast(study: Study, start: float = 0.0) -> Forecast | None:
    """Forecast a study in virtual time; None in real time, where the durations of evaluations are unknown.

    `start` is the computing of a process before its runs begin, in seconds, for imports and checks.

    The first replicate of each run begins with the real algorithm and objective, for some seconds of computing; earlier tasks
    of agents are left out. The rest is extrapolated.
    """
    if study.timing.clock == "wall":
        return None
    bare = _without_histories(study)
    with tempfile.TemporaryDirectory(prefix="fedbo-forecast-") as folder:
        work = [run for run in runs(bare, Path(folder)) if run.key.replicate == 0]
        allowed = max(LEAST, SECONDS / len(work))
        again = study.study.replicates > 1
        found = tuple(_forecast(replace(run, hosts=0), allowed, Path(folder), again) for run in work)
    at_once = max(1, min(study.hosting.workers or 1, os.cpu_count() or 1, len(work) * study.study.replicates))
    begun = _ENDS * start + sum(run.once for run in found)
    return Forecast(found, begun + study.study.replicates * sum(run.seconds for run in found) / at_once)


def forecast_line(found: Forecast | None) -> str:
    """Format the forecast of a study."""
    if found is None:
        return "time: unknown, because the study runs in real time"
    virtual = "unknown" if found.virtual is None else f"{found.virtual:.4g}"
    carried = min(run.share for run in found.runs)
    rest = "" if carried == 1.0 else f"; extrapolated from {carried:.0%} of a run"
    return f"time: virtual {virtual} (the longest run), real about {_amount(found.seconds)} of computing{rest}"


def _amount(seconds: float) -> str:
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{seconds:.2g} seconds"


def _without_histories(study: Study) -> Study:
    groups = tuple(table.model_copy(update={"history": None}) for table in study.group)
    return study.model_copy(update={"agents": study.agents.model_copy(update={"history": None}), "group": groups})


def _forecast(run: Run, allowed: float, folder: Path, again: bool) -> RunForecast:
    """Begin a run, and repeat a short one `again`, to exclude the imports of the first."""
    begun, summary, seen = time.process_time(), None, list[tuple[float, float]]()
    coordinator = Coordinator()
    with _watched(coordinator, begun + allowed, seen):
        summary = coordinator.run(run)
    spent = time.process_time() - begun
    assert summary is not None, "nobody else carries it out"
    if not summary.stopped:
        seconds = spent
        if again and spent < allowed / 2:
            begun = time.process_time()
            Coordinator().run(replace(run, folder=folder / "again"))
            seconds = min(spent, time.process_time() - begun)
        return RunForecast(run.key.cell, run.key.algorithm, summary.time, seconds=seconds, share=1.0, once=spent - seconds)
    share = min(max(coordinator.progress().share, _SHARES[0]), _SHARES[1])
    seconds = _extrapolated(seen, spent, share)
    return RunForecast(run.key.cell, run.key.algorithm, _virtual(run, summary, share, folder), seconds, share)


@contextmanager
def _watched(coordinator: Coordinator, until: float, seen: list[tuple[float, float]]) -> Iterator[None]:
    """Stop a coordinator once this process's CPU time reaches `until`, and record its progress over time."""
    begun, over = time.process_time(), threading.Event()

    def watch() -> None:
        while not over.wait(_POLL):
            seen.append((time.process_time() - begun, coordinator.progress().share))
            if time.process_time() > until:
                coordinator.stop()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _extrapolated(seen: list[tuple[float, float]], spent: float, share: float) -> float:
    """Return the computing of a whole run: a polynomial of its length with no negative coefficient through the measurements.

    The constant is the start, with its imports. With too few measurements, computing grows in proportion.
    """
    came = {part: took for took, part in reversed(seen) if part > 0} | {share: spent}  # the first moment of each part
    parts, took = np.array(sorted(came)), np.array([came[part] for part in sorted(came)])
    if len(parts) < _SEEN:
        return spent / share
    basis = np.stack([(parts / share) ** power for power in range(_DEGREE + 1)], axis=1)
    factors, _ = nnls(basis, took)
    whole = float(factors @ (1.0 / share) ** np.arange(_DEGREE + 1))
    return max(spent, whole + spent - float(factors.sum()))


def _virtual(run: Run, summary: RunSummary, share: float, folder: Path) -> float | None:
    """Return the final virtual time of a stopped run: by a dry run if possible, otherwise in proportion."""
    if not can_be_stood_in_for(run.task.algorithm):
        return summary.time / share
    task = run.task
    if not reports_costs(task.federation):
        bowl = Quadratic(agents=task.federation.n_agents, dimensions=task.problem.dim)
        task = replace(task, federation=bowl, noise=0.0)
    dry = stood_in(replace(run, task=task, folder=folder / "dry"), np.empty((0, task.problem.dim)))
    ended = Coordinator().run(dry)
    return None if ended is None else ended.time
