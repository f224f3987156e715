"""The results of a fork: the run as it was, its branches, and their effects, paired by replicate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbo.actors.storage.sealed import unseal
from fedbo.results.grouping import by_cell_and_algorithm
from fedbo.results.manifest import FORK
from fedbo.results.result import Result, ResultError
from fedbo.results.summary import Difference, Estimate, difference, final_estimate
from fedbo.settings.shown import quoted

BEGUN, ORIGINAL, TRUNK, BRANCH = "begun.json", "original", "trunk", "branch"


@dataclass(frozen=True, slots=True)
class ForkEffect:
    """The effect of a change at one point on one algorithm in one cell: mean best native values over targets in the end.

    `difference` is that of the branch to the run as it was, with its 95 % interval over replicates; None with a single one.
    """

    cell: int
    algorithm: str
    at: str
    original: Estimate
    changed: Estimate
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork: its directory, the run as it was, and a branch for each of the points `at`; `changes` are dotted.key=value."""

    directory: Path
    original: Result
    branches: Sequence[Result]
    at: Sequence[str]
    changes: Sequence[str]

    @classmethod
    def open(cls, directory: str | Path, trust: bool = False) -> Fork:
        """Read a fork that has ended; ResultError when it has not."""
        folder = Path(directory)
        if has_begun(folder):
            raise ResultError(
                f"'{directory}': holds a fork that has not ended; go on with it: fedbo resume {quoted(directory)}"
            )
        if not is_fork(folder):
            raise ResultError(f"'{directory}': holds no fork that has ended; give the directory that fedbo fork printed")
        noted: Mapping[str, Any] = unseal(folder / FORK)
        places = [folder / f"{BRANCH}-{number:04d}" for number in range(1, 1 + len(noted["at"]))]
        branches = [Result.open(place, trust) for place in places]
        return cls(folder, Result.open(folder / ORIGINAL, trust), branches, noted["at"], noted["changes"])

    def effects(self) -> list[ForkEffect]:
        """Compare each branch with the run as it was, on the same replicates: one row for each algorithm in each cell."""
        found, before = list[ForkEffect](), by_cell_and_algorithm(self.original.traces)
        for at, branch in zip(self.at, self.branches, strict=True):
            for (cell, label), mine in by_cell_and_algorithm(branch.traces).items():
                metric, other = branch.metric(cell), before[cell, label]
                ends = final_estimate(other, metric), final_estimate(mine, metric)
                found.append(ForkEffect(cell, label, at, *ends, difference(mine, other, metric)))
        return found


def is_fork(directory: Path) -> bool:
    """Say whether a directory holds a fork that has ended."""
    return os.path.isfile(directory / FORK)  # False too where the name is too long for one


def has_begun(directory: Path) -> bool:
    """Say whether a directory holds a fork that has begun and not ended."""
    return os.path.isfile(directory / BEGUN) and not is_fork(directory)
