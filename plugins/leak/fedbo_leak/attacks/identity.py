"""Whose message is it? The nearest of the earlier messages, or of the messages of another study, has the same sender."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbo.algorithms.base import Array
from fedbo_leak.attacks.base import Attack, Outcome, Witness
from fedbo_leak.readings import COORDINATOR, Evidence, Reading, points_of_cube

SENDER, LINKED = "sender", "sender in another study"
_GRID = 128


def by_numbers(evidence: Evidence, reading: Reading) -> Array | None:
    """Describe a message by its numbers."""
    return reading.numbers


def by_function(evidence: Evidence, reading: Reading) -> Array | None:
    """Describe a message by its function on a grid, or by the point that it says."""
    surface = reading.surface(evidence.rows)
    if surface is not None:
        values = surface(points_of_cube(_GRID, evidence.run.problem.dim))
        return np.asarray((values - values.mean()) / (np.std(values) or 1.0))
    if reading.said is not None and len(reading.said.points):
        return np.asarray(reading.said.points[0])
    return reading.place


WAYS = {"nearest numbers": by_numbers, "nearest function": by_function}


def named(known: Sequence[tuple[int, Array]], unknown: Array) -> int | None:
    """Return the sender of the nearest description, of those with equal length."""
    alike = [(agent, one) for agent, one in known if len(one) == len(unknown)]
    if not alike:
        return None
    gaps = [float(np.linalg.norm(one - unknown)) for _, one in alike]
    return alike[int(np.argmin(gaps))][0]


def _senders(witness: Witness, way: str) -> list[Outcome]:
    """Name the sender of every message but each agent's first, by the messages that are older."""
    found = []
    for number, run in enumerate(witness.runs):
        seen = []
        for agent in sorted(run.agents):
            evidence = witness.evidence(number, COORDINATOR, agent)
            described = [(reading.step, agent, WAYS[way](evidence, reading)) for reading in evidence.readings]
            seen += [(step, own, one) for step, own, one in described if one is not None]
        agents = sorted({agent for _, agent, _ in seen})
        if len(agents) < 2:
            continue
        newest = {agent: [one for step, own, one in seen if own == agent] for agent in agents}
        steps = {agent: [step for step, own, _ in seen if own == agent] for agent in agents}
        for agent in agents:
            for step, unknown in zip(steps[agent][1:], newest[agent][1:], strict=True):
                known = [(other, newest[other][last]) for other in agents if (last := _before(steps[other], step)) is not None]
                if len(known) > 1 and (guess := named(known, unknown)) is not None:
                    found.append(Outcome(number, float(guess == agent), 1.0 / len(known)))
    return found


def _before(steps: Sequence[int], step: int) -> int | None:
    """Return the place of the newest message before a step."""
    older = [place for place, own in enumerate(steps) if own < step]
    return older[-1] if older else None


def _linked(witness: Witness, way: str) -> list[Outcome]:
    """Name the agents of each run by those of the run before, where functions of an agent are alike in both."""
    found = []
    for number in range(1, len(witness.runs)):
        before, after = (_portraits(witness, run, way) for run in (number - 1, number))
        if len(before) > 1:
            for agent, portrait in after.items():
                guess = named([*before.items()], portrait)
                if guess is not None:
                    found.append(Outcome(number, float(guess == agent), 1.0 / len(before)))
    return found


def _portraits(witness: Witness, run: int, way: str) -> dict[int, Array]:
    """Return the mean description of each agent's messages."""
    found = {}
    for agent in sorted(witness.runs[run].agents):
        evidence = witness.evidence(run, COORDINATOR, agent)
        each = [one for reading in evidence.readings if (one := WAYS[way](evidence, reading)) is not None]
        if each and len({len(one) for one in each}) == 1:
            found[agent] = np.mean(each, axis=0)
    return found


def _attack(target: str, way: str) -> Attack:
    def carry_out(witness: Witness, view: str) -> list[Outcome]:
        if view != COORDINATOR:
            return []
        return _senders(witness, way) if target == SENDER else _linked(witness, way)

    return Attack(target, way, carry_out)


ATTACKS = [*(_attack(SENDER, way) for way in WAYS), _attack(LINKED, "nearest function")]
