"""Claims that real runs break in a known part of the world alone, and the check that nothing of a found world can go."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo.study.document import StudyError
from fedbo.study.study import load_study
from fedbo_hunt.claims import parse_claim
from fedbo_hunt.result import Hunt
from fedbo_hunt.trials import WorldTrials

Document = dict[str, Any]
WORLD = frozenset(("timing", "availability", "fault", "exchange", "group"))  # the tables that make up a world


class RealClaim(NamedTuple):
    """A claim that fails in worlds with the tables `guilty`, while the table `innocent` alone leaves it true."""

    name: str
    claim: str
    method: Document
    guilty: tuple[str, ...]
    innocent: str
    worlds: int
    exchange: str = ""

    @property
    def study(self) -> Document:
        """Return a study of three agents whose seven evaluations take one unit of time each, without any disruption."""
        tables = {"objective": {"name": "quadratic", "agents": 3}, "budget": {"iterations": 4}, "algorithm": [self.method]}
        return {"study": {"name": "real"}, **tables, **({"exchange": {"mode": self.exchange}} if self.exchange else {})}


RANDOM = {"name": "random"}
FTS = {"name": "fts", "every": 1, "features": 12, "own": {"refit": 1000, "features": 12}}
REAL = (
    RealClaim("stragglers", "end of random is at most 20", RANDOM, ("timing",), "fault", 8),
    RealClaim("absences", "end of random is at most 18", RANDOM, ("availability",), "fault", 16),
    # With immediate answers nobody waits, whatever evaluations and messages take; in rounds all wait for the slowest.
    RealClaim("rounds", "waiting of fts is at most 8", FTS, ("exchange", "timing"), "timing", 8, "immediate"),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def without(document: Document, path: tuple[Any, ...]) -> Document:
    """Return a study without what is at a place, so that its default holds."""
    changed = copy.deepcopy(document)
    parent: Any = changed
    for step in path[:-1]:
        parent = parent[step]
    del parent[path[-1]]
    return changed


def needless(hunt: Hunt, folder: Path, replicates: int) -> list[tuple[tuple[Any, ...], float]]:
    """List what the reported world does not need, with the mean excess on other seeds without it.

    Without it the claim still fails, and fails because of the world: it holds in the study alone.
    """
    document, trials = tomllib.loads(hunt.world), WorldTrials(folder, parse_claim(hunt.claim), 0)
    found = []
    for path in _places(document):
        if path[0] in ("study", "algorithm"):
            continue
        try:
            load_study(without(document, path))
        except StudyError:
            continue
        smaller = without(document, path)
        alone = {name: table for name, table in smaller.items() if name not in WORLD}
        means = [mean_excess(trials, one, replicates) for one in (smaller, alone)]
        if means[0] > 0 >= means[1]:
            found.append((path, means[0]))
    return found


def mean_excess(trials: WorldTrials, document: Document, replicates: int) -> float:
    """Return the mean excess on seeds that no hunt uses."""
    return float(np.mean(trials.excesses(document, "a look", replicates) or -np.inf))
