"""Where is an agent's best point? Read it where it is said, or climb the function that messages describe."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbo.algorithms.base import Array
from fedbo_leak.attacks.base import Attack, Case, Outcome, Witness, distance, remembered, summit
from fedbo_leak.readings import Evidence

BEST = "best point"
OPTIMUM = "optimum"
Guess = Callable[[Evidence], Array | None]


def said(evidence: Evidence) -> Array | None:
    """Take the point with the largest value that was said, or without values the newest point."""
    found = [reading.said for reading in evidence.readings if reading.said is not None and len(reading.said.points)]
    if not found:
        return None
    points, values = np.concatenate([at.points for at in found]), np.concatenate([at.numbers for at in found])
    return np.asarray(points[int(np.nanargmax(values))] if np.isfinite(values).any() else found[-1].points[0])


def described(evidence: Evidence) -> Array | None:
    """Take the newest place that was said to be good."""
    found = [reading.place for reading in evidence.readings if reading.place is not None]
    return found[-1] if found else None


def middle(evidence: Evidence) -> Array | None:
    """Take the mean of all points that were said, which is best where few of them are the agent's own."""
    found = [reading.said.points for reading in evidence.readings if reading.said is not None and len(reading.said.points)]
    return np.concatenate(found).mean(axis=0) if found else None


@remembered
def of_all(evidence: Evidence) -> Array | None:
    """Climb the mean of the functions in the newer half of the messages."""
    return None if evidence.surface is None else summit(evidence.surface, evidence.run.problem.dim)


@remembered
def cautious(evidence: Evidence) -> Array | None:
    """Climb that mean less twice the scatter of the messages: these agree where the agent has looked."""
    return None if evidence.cautious is None else summit(evidence.cautious, evidence.run.problem.dim)


@remembered
def of_last(evidence: Evidence) -> Array | None:
    """Climb the function in the newest message."""
    surface = evidence.readings[-1].surface(evidence.rows)
    return None if surface is None else summit(surface, evidence.run.problem.dim)


GUESSES: dict[str, Guess] = {
    "said": said,
    "described": described,
    "mean of said": middle,
    "summit": of_all,
    "cautious summit": cautious,
    "newest summit": of_last,
}


def blind_points(witness: Witness, truths: dict[tuple[int, int], Array]) -> dict[int, Array]:
    """Return the guess without any message for each run: the mean over all other runs, or the centre where there are few."""
    runs = sorted({run for run, _ in truths})
    dim = witness.runs[0].problem.dim
    if len(runs) < 3:
        return dict.fromkeys(runs, np.full(dim, 0.5))
    return {run: np.mean([point for (own, _), point in truths.items() if own != run], axis=0) for run in runs}


def truths_of(witness: Witness, target: str) -> dict[tuple[int, int], Array]:
    """Return the point that is sought `(d,)`, by run and agent; agents whose optimum is not known are left out."""
    found = {}
    for number, run in enumerate(witness.runs):
        for agent, truth in run.agents.items():
            point = truth.best_point if target == BEST else run.optimum(agent)
            if point is not None:
                found[number, agent] = point
    return found


def _attack(target: str, guess: Guess) -> Callable[[Witness, str], list[Outcome]]:
    def carry_out(witness: Witness, view: str) -> list[Outcome]:
        truths = truths_of(witness, target)
        blind = blind_points(witness, truths)
        found = (_outcome(case, guess, truths.get((case.run, case.evidence.victim)), blind) for case in witness.cases(view))
        return [outcome for outcome in found if outcome is not None]

    return carry_out


def _outcome(case: Case, guess: Guess, truth: Array | None, blind: dict[int, Array]) -> Outcome | None:
    point = guess(case.evidence)
    if point is None or truth is None:
        return None
    other = guess(case.other) if case.other.readings else None
    swapped = np.nan if other is None else distance(other, truth)
    return Outcome(case.run, distance(point, truth), distance(blind[case.run], truth), swapped)


ATTACKS = [Attack(target, name, _attack(target, guess)) for target in (BEST, OPTIMUM) for name, guess in GUESSES.items()]
