"""Processor time of one evaluation of each tuning task, of this working tree and of an earlier revision in turn.

    python benchmarks/evaluation_time.py [REVISION] [--repeats 5] [--points 10000]

An evaluation is a call of `evaluate`, from a configuration to its value. Each repetition is a separate process, which times
1,000 evaluations at random configurations in pieces of 20. Printed are the fastest piece and the median of the repetitions'
medians, in microseconds. Values at `--points` random configurations are compared: the number that differ, and the largest
relative difference. Without a revision only this working tree is timed. Tasks that one of the two lacks, or whose data are
missing, are left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from against import in_process, installed

Measured = dict[str, list[float]]
PIECES, PIECE = 50, 20


def measure(points: int, values: str) -> Measured:
    """Time each task in this process; its values at random configurations go to a file."""
    from fedbo.objectives.base import LibraryMissingError
    from fedbo.objectives.datasets.data import DataMissingError
    from fedbo.objectives.tasks.tuning_tasks import FEDERATIONS

    times, found = Measured(), dict[str, np.ndarray]()
    for name, federation in FEDERATIONS.items():
        try:
            found[name], times[name] = measured(federation(agents=1), max(points, PIECES * PIECE))
        except (DataMissingError, LibraryMissingError):
            continue
    np.savez(values, **found)
    return times


def measured(federation: Any, points: int) -> tuple[np.ndarray, list[float]]:
    """Give the values of the first agent's objective at random configurations, and the times of pieces, in microseconds."""
    from fedbo.objectives.space import from_unit

    rng, times = np.random.default_rng(0), list[float]()
    objective = federation.objective(0, rng, rng)
    x = from_unit(federation.parameters, rng.random((points, len(federation.parameters))))
    values = np.array([objective.evaluate(one, rng) for one in x])
    for piece in range(PIECES):
        begun = time.process_time_ns()
        for one in x[piece * PIECE : (piece + 1) * PIECE]:
            objective.evaluate(one, rng)
        times.append((time.process_time_ns() - begun) / PIECE / 1e3)
    return values, times


def compared(old: Path, new: Path, name: str) -> str:
    """Say how many values of a task differ, and by how much."""
    before, after = (np.load(path)[name] for path in (old, new))
    gap = np.abs(after - before) / np.maximum(np.abs(before), np.finfo(float).tiny)
    return f"{int((gap > 0).sum()):,} of {len(gap):,} values differ, by at most {gap.max():.1e}"


def main() -> None:
    """Measure in turn, and print a line for each task and revision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--points", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        targets = {"the working tree": installed(None, Path(folder) / "new")}
        if given.revision:
            targets[given.revision] = installed(given.revision, Path(folder) / "old")
        files = {label: Path(folder) / f"{place}.npz" for place, label in enumerate(targets)}
        found: dict[str, list[Measured]] = {label: [] for label in targets}
        for number in range(given.repeats):
            for label in targets if number % 2 else reversed(targets):
                found[label].append(
                    in_process(targets[label], "evaluation_time", 0 if number else given.points, str(files[label]))
                )
            if number == 0:
                both = [name for name in found[label][0] if all(name in runs[0] for runs in found.values())]
                words = {name: compared(*reversed(files.values()), name) if given.revision else "" for name in both}
        for name in words:
            for label, runs in found.items():
                typical = median(median(run[name]) for run in runs)
                least = min(min(run[name]) for run in runs)
                print(f"{name:<14} {label:<18} least {least:6.1f} us, median {typical:6.1f} us")
            if given.revision:
                print(f"{name:<14} {words[name]}")


if __name__ == "__main__":
    main()
