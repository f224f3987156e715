"""Claims whose excess in a world is a known function of its tables, with noise: five that fail in one family, ten that hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo_hunt.claims import parse_claim
from fedbo_hunt.hunting import Hunting, HuntQuestion
from fedbo_hunt.result import Hunt
from fedbo_hunt.search import WorldSearch
from fedbo_hunt.trials import SEARCH, WorldTrials
from fedbo_hunt.worlds import Worlds

Document = dict[str, Any]
STUDY: Document = {
    "study": {"name": "planted"},
    "objective": {"name": "quadratic", "agents": 3},
    "budget": {"iterations": 3},
    "algorithm": [{"name": "fts"}, {"name": "ts"}],
}
CLAIM = "fts is not worse than ts"
NOISE = 0.15  # standard deviation of the excess over replicates


class PlantedClaim(NamedTuple):
    """A claim that fails only in one family of worlds: the mean excess is the `severity` of a world less 0.4."""

    name: str
    vary: tuple[str, ...]
    severity: Callable[[Document], float]

    def excess(self, world: Document) -> float:
        """Return the mean excess in a world."""
        return self.severity(world) - 0.4


def _stragglers(world: Document) -> float:
    """Heavy tails under a barrier: the claim fails from alpha = 2 down."""
    model = world.get("timing", {}).get("evaluation", {})
    there = model.get("model") == "pareto" and world.get("exchange", {}).get("mode", "barrier") == "barrier"
    return max(0.0, 0.4 * (3.0 - model.get("alpha", 3.0))) if there else 0.0


def _fault(world: Document, kind: str, key: str) -> float:
    return max((fault.get(key, 0.0) for fault in world.get("fault", ()) if fault["kind"] == kind), default=0.0)


def _absences(world: Document) -> float:
    """Long absences and short presences: it fails where an agent is away for two thirds of the time."""
    model = world.get("availability", {})
    if model.get("model") != "markov" or "absent" not in model:
        return 0.0
    return 0.6 * float(model["absent"] / (model.get("present", 1.0) + model["absent"]))


def _deadline(world: Document) -> float:
    """Short rounds: it fails from a length of 1.25 down."""
    exchange = world.get("exchange", {})
    return 0.5 / exchange.get("length", 1.0) if exchange.get("mode") == "deadline" else 0.0


PLANTED = (
    PlantedClaim("stragglers under a barrier", ("timing", "exchange"), _stragglers),
    PlantedClaim("liars", ("fault",), lambda world: 0.8 * _fault(world, "lie", "probability")),
    PlantedClaim("crashes", ("fault",), lambda world: 5.0 * _fault(world, "crash", "rate")),
    PlantedClaim("long absences", ("availability", "timing"), _absences),
    PlantedClaim("short rounds", ("exchange", "timing"), _deadline),
)

Law = Callable[[np.random.Generator, Document], float]
# Laws of an excess whose mean is 0 in every world, the hardest true claim, or below.
TRUE: dict[str, Law] = {
    "normal": lambda rng, world: rng.normal(),
    "normal below": lambda rng, world: rng.normal(-0.3),
    "skewed up": lambda rng, world: rng.exponential() - 1.0,
    "skewed down": lambda rng, world: 1.0 - rng.exponential(),
    "coin": lambda rng, world: float(rng.choice((-0.5, 0.5))),
    "rare loss": lambda rng, world: 1.0 - 10.0 * float(rng.random() < 0.1),
    "rare gain": lambda rng, world: 10.0 * float(rng.random() < 0.1) - 1.0,
    "long tails": lambda rng, world: float(rng.standard_t(3)),
    "mostly none": lambda rng, world: float(rng.random() < 0.2) * rng.normal(),
    "spread by world": lambda rng, world: rng.normal() * (1.0 + len(world.get("fault", ()))),
}


class KnownTrials(WorldTrials):
    """Trials whose excess is drawn by a law, in place of runs."""

    law: Law

    def _work(self, document: Document, purpose: str, count: int) -> Any:
        self.study(document, purpose, count)
        return document, self.seed(purpose)

    def _excess(self, work: Any, replicate: int) -> float:
        document, seed = work
        return float(self.law(np.random.default_rng([seed, replicate]), document))


def noisy(planted: PlantedClaim) -> Law:
    """Return the law of a planted claim: the same noise in every world, as common random numbers give."""
    return lambda rng, world: planted.excess(world) + NOISE * rng.normal()


def known_trials(law: Law) -> type[KnownTrials]:
    """Return trials with a law."""
    return type("Known", (KnownTrials,), {"law": staticmethod(law)})


def trials_to_find(planted: PlantedClaim, folder: Path, seed: int, how: str, worlds: int = 400) -> int | None:
    """Return how many trials a search takes until a world that truly breaks the claim is clear; None if it finds none."""
    folder.mkdir()
    trials = known_trials(noisy(planted))(folder, parse_claim(CLAIM), seed)
    search = WorldSearch(Worlds(STUDY, planted.vary, seed), trials, worlds, seed)
    found = search.run(how)
    return trials.count(SEARCH) if found and planted.excess(found[0].world.document(STUDY)) > 0 else None


def hunt_known(law: Law, folder: Path, seed: int, vary: tuple[str, ...], worlds: int) -> Hunt:
    """Return the result of a whole hunt whose excess has a law."""
    question = HuntQuestion(STUDY, CLAIM, vary, worlds, seed, "guided")
    folder.mkdir()
    hunting = Hunting(folder, question)
    hunting._trials = known_trials(law)(folder, parse_claim(CLAIM), seed)
    return hunting.run()
