"""Is this observation one of the agent's? Statistics that are larger for members, judged by the area under their ROC curve.

Members are what the agent has observed by its newest message. The others are what the same agent has observed in the next
replicate, where its function is the same, or what the next agent has observed. `gaussian_power` is the most that any such test
can reach against a sum with Gaussian noise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from fedbo.algorithms.base import Array
from fedbo_leak.attacks.base import Attack, Case, Outcome, Witness
from fedbo_leak.attacks.observations import of_sums
from fedbo_leak.readings import Evidence, smooth
from fedbo_leak.watched import Truth

MEMBER = "membership"
Statistic = Callable[[Evidence, Array, Array], Array | None]


def of_said(evidence: Evidence, x: Array, y: Array) -> Array | None:
    """Return how near a point is to one that was said, or that follows from sums."""
    found = [reading.said.points for reading in evidence.readings if reading.said is not None and len(reading.said.points)]
    inverted = of_sums(evidence)
    if inverted is not None and len(inverted.points):
        found.append(inverted.points)
    if not found:
        return None
    points = np.concatenate(found)
    return np.asarray(-np.sqrt(((x[:, None] - points) ** 2).mean(axis=2)).min(axis=1))


def of_certainty(evidence: Evidence, x: Array, y: Array) -> Array | None:
    """Return how certain the agent is at a point."""
    known = evidence.readings[-1].certainty
    return None if known is None else smooth(known)(x)


def of_function(evidence: Evidence, x: Array, y: Array) -> Array | None:
    """Return how well a function explains a value: less the distance of both in standard units."""
    if evidence.surface is None:
        return None
    values = evidence.surface(x)
    return np.asarray(-np.abs(_standard(values) - _standard(y)))


def _standard(values: Array) -> Array:
    return np.asarray((values - values.mean()) / (np.std(values) or 1.0))


STATISTICS: dict[str, Statistic] = {"nearest said": of_said, "certainty": of_certainty, "fit of the function": of_function}


def area(members: Array, others: Array) -> float:
    """Return the area under the ROC curve: how often a member has the larger statistic, equal ones counting half."""
    ranks = stats.rankdata(np.concatenate([members, others]))
    count = len(members)
    return float((ranks[:count].sum() - count * (count + 1) / 2) / (count * len(others)))


def gaussian_power(false_alarms: Array | float, multiplier: float) -> Array:
    """Return the largest share of members that a test finds, at a share of false alarms, against noise of z times the norm.

    The likelihood ratio of N(1, z^2) against N(0, z^2) attains it (Dong, Roth, Su 2022, (6): Gaussian differential privacy).
    """
    return np.asarray(stats.norm.cdf(stats.norm.ppf(false_alarms) + 1.0 / multiplier))


def _strangers(witness: Witness, case: Case) -> Truth:
    """Return the observations that are not the agent's, as like to them as there are any."""
    runs = witness.runs
    if len(runs) > 1:
        return runs[(case.run + 1) % len(runs)].agents.get(case.evidence.victim, case.truth)
    agents = sorted(runs[case.run].agents)
    return runs[case.run].agents[agents[(agents.index(case.evidence.victim) + 1) % len(agents)]]


def _members(statistic: Statistic) -> Callable[[Witness, str], list[Outcome]]:
    def carry_out(witness: Witness, view: str) -> list[Outcome]:
        found = []
        for case in witness.cases(view):
            last = case.evidence.readings[-1].step
            own, strange = case.truth.until(last), _strangers(witness, case).until(last)
            both = np.concatenate([own.x, strange.x]), np.concatenate([own.y, strange.y])
            if not len(own.x) or not len(strange.x):
                continue
            values = statistic(case.evidence, *both)
            if values is None:
                continue
            other = statistic(case.other, *both) if case.other.readings else None
            count = len(own.x)
            swapped = np.nan if other is None else area(other[:count], other[count:])
            found.append(Outcome(case.run, area(values[:count], values[count:]), 0.5, swapped))
        return found

    return carry_out


ATTACKS = [Attack(MEMBER, name, _members(statistic)) for name, statistic in STATISTICS.items()]
