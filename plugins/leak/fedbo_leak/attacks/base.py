"""What attacks have in common: witnesses of runs, outcomes, and where a function of the cube is largest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from fedbo.algorithms.base import Array
from fedbo_leak.readings import Evidence, evidence_of, points_of_cube
from fedbo_leak.watched import Truth, WatchedRun

CANDIDATES = 1024  # points of the cube among which a largest one is sought first
Guess = TypeVar("Guess")
SHRINKING = (0.05, 0.02, 0.008, 0.003)  # widths of the search around it


def remembered(guess: Callable[[Evidence], Guess]) -> Callable[[Evidence], Guess]:
    """Make each guess once, though it also serves as the control of another agent."""
    return lru_cache(maxsize=1024)(guess)


class Outcome(NamedTuple):
    """The outcome of one attack on one agent of one run, a guess `blind` to all messages, and one from an `other` agent's."""

    run: int
    value: float
    blind: float
    other: float = np.nan


class Case(NamedTuple):
    """One agent under attack, in run number `run`: the evidence of it and of another agent, and the truth."""

    run: int
    evidence: Evidence
    other: Evidence
    truth: Truth


class Witness:
    """All runs of a method, and what an adversary with one of the views has of each agent; only targets are attacked."""

    def __init__(self, runs: Sequence[WatchedRun]) -> None:
        self.runs = runs
        self._known: dict[tuple[int, str, int], Evidence] = {}

    def evidence(self, run: int, view: str, victim: int) -> Evidence:
        """Return what is known of an agent, which is read once."""
        key = (run, view, victim)
        if key not in self._known:
            self._known[key] = evidence_of(self.runs[run], view, victim)
        return self._known[key]

    def cases(self, view: str) -> Iterator[Case]:
        """Yield each agent of each run about which something was heard."""
        for number, run in enumerate(self.runs):
            agents = sorted(run.agents)
            for place, victim in enumerate(agents):
                found = self.evidence(number, view, victim)
                if found.readings:
                    other = self.evidence(number, view, agents[(place + 1) % len(agents)])
                    yield Case(number, found, other, run.agents[victim])


class Attack(NamedTuple):
    """An attack: what it looks for, its name, and how it is carried out with a view."""

    target: str
    name: str
    carry_out: Callable[[Witness, str], list[Outcome]]


def distance(guess: Array, truth: Array) -> float:
    """Return the distance of two points `(d,)` as a share of the box: the root of the mean square over inputs."""
    return float(np.sqrt(np.mean((guess - truth) ** 2)))


def summit(values: Callable[[Array], Array], dim: int) -> Array:
    """Return the point `(d,)` of the cube where a function is largest, nearly."""
    points, rng = points_of_cube(CANDIDATES, dim), np.random.default_rng(0)
    best = points[int(np.argmax(values(points)))]
    for width in SHRINKING:
        near = np.clip(best + width * rng.standard_normal((64, dim)), 0.0, 1.0)
        near[0] = best
        best = near[int(np.argmax(values(near)))]
    return np.asarray(best)
