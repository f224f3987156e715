"""The strength of attacks on the runs of one method: one number with an interval for each, and the leakage that it shows.

The *leakage* is how much of the way from a guess to the truth an attack has gone: 0 where messages say nothing, 1 where the
truth is found. The guess is the better of two: one without any message, and the same attack on the messages of another agent,
since what holds for all agents betrays none. What counts is the largest over attacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedbo.algorithms.base import Array
from fedbo_leak.attacks import best_point, counts, identity, learned, membership, observations
from fedbo_leak.attacks.base import Attack, Outcome, Witness
from fedbo_leak.readings import VIEWS
from fedbo_leak.watched import WatchedRun

ATTACKS = [
    *best_point.ATTACKS,
    *observations.ATTACKS,
    *identity.ATTACKS,
    *counts.ATTACKS,
    *membership.ATTACKS,
    *learned.ATTACKS,
]
CHEAP = [*best_point.ATTACKS, *observations.ATTACKS, *membership.ATTACKS]
CONFIDENCE = 0.95
_FEWEST = 5  # runs from which an interval is over runs; of fewer it is over agents, which are not independent


class Target(NamedTuple):
    """What attacks look for: the value of a perfect one, and a clause that says what a value means."""

    perfect: float
    clause: str


TARGETS = {
    best_point.BEST: Target(0.0, "finds the best point of an agent to within {:.2g} of the box"),
    best_point.OPTIMUM: Target(0.0, "finds the optimum of an agent's function to within {:.2g} of the box"),
    observations.POINTS: Target(1.0, "finds {:.0%} of an agent's evaluated points to within .02 of the box"),
    observations.OBSERVED: Target(1.0, "finds {:.0%} of an agent's observations, points with their values"),
    observations.VALUES: Target(1.0, "explains {:.0%} of the variance of an agent's values"),
    identity.SENDER: Target(1.0, "tells the sender of {:.0%} of the messages"),
    identity.LINKED: Target(1.0, "finds {:.0%} of the agents again in the next study"),
    counts.NUMBER: Target(0.0, "tells the number of observations behind a message up to {:.2g}"),
    membership.MEMBER: Target(1.0, "tells an observation of an agent from another one with an AUC of {:.2g}"),
}


@dataclass(frozen=True, slots=True)
class LeakRow:
    """The strength of one attack on one method by one view.

    - `value`: that of the target, as its clause says, with `low` and `high`, its interval (95 %, for all attacks together).
    - `guess`: the value of the best guess without messages; `others`: that of the attack on the messages of another agent.
    - `leakage`: the share of the way from the guess to the truth, with its interval; 0 where the attack is no better.
    - `strongest`: whether no other attack on this target has more; `messages`: how many there were of an agent, on average.
    """

    algorithm: str
    view: str
    target: str
    attack: str
    value: float
    low: float
    high: float
    guess: float
    others: float
    leakage: float
    leakage_low: float
    leakage_high: float
    runs: int
    agents: int
    messages: float
    strongest: bool = False

    @property
    def sentence(self) -> str:
        """Return what the number means."""
        clause = TARGETS[self.target].clause
        number = clause[clause.index("{") : clause.index("}") + 1]
        after = f"after {self.messages:.0f} messages" if self.messages >= 1.5 else "after one message"
        return f"{VIEWS[self.view]} {clause.format(round(self.value, 4))} {after} (guess: {number.format(self.guess)})"


def measure(
    label: str, runs: Sequence[WatchedRun], views: Sequence[str] = (*VIEWS,), attacks: Sequence[Attack] = ATTACKS
) -> list[LeakRow]:
    """Carry out attacks on the runs of a method, by the views of adversaries."""
    witness, rows = Witness(runs), list[LeakRow]()
    for view in views:
        for target in TARGETS:
            known = [attack for attack in attacks if attack.target == target]
            found = {attack.name: attack.carry_out(witness, view) for attack in known}
            found = {name: outcomes for name, outcomes in found.items() if outcomes}
            rows += _rows((label, view, target), found, witness)
    return rows


def _rows(named: tuple[str, str, str], found: dict[str, list[Outcome]], witness: Witness) -> list[LeakRow]:
    label, view, target = named
    rows = []
    messages = [len(case.evidence.readings) for case in witness.cases(view)]
    for name, outcomes in found.items():
        values, blind, others = (np.array(column, dtype=np.float64) for column in list(zip(*outcomes, strict=True))[1:])
        owners = np.array([outcome.run for outcome in outcomes])
        middle, half = interval(values, owners, len(found))
        seen, perfect = np.isfinite(others), TARGETS[target].perfect
        controls = [float(blind.mean()), *([float(others[seen].mean())] if seen.any() else [])]
        share, margin = interval(_shares(values, controls, perfect), owners, len(found))
        rows.append(
            LeakRow(
                algorithm=label,
                view=view,
                target=target,
                attack=name,
                value=middle,
                low=max(0.0, middle - half),
                high=min(perfect or np.inf, middle + half),
                guess=controls[0],
                others=controls[-1] if seen.any() else float("nan"),
                leakage=min(1.0, max(0.0, share)),
                leakage_low=min(1.0, max(0.0, share - margin)),
                leakage_high=min(1.0, max(0.0, share + margin)),
                runs=len(np.unique(owners)),
                agents=len(outcomes),
                messages=float(np.mean(messages)) if messages else 0.0,
            )
        )
    return _with_strongest(rows)


def _shares(values: Array, controls: Sequence[float], perfect: float) -> Array:
    """Return the shares of the way to the truth of single outcomes, so that their mean is that of the means."""
    control = min(controls, key=lambda one: abs(one - perfect))
    way = control - perfect
    return np.asarray((control - values) / way if way else np.zeros(len(values)))


def interval(values: Array, owners: Array, attacks: int = 1) -> tuple[float, float]:
    """Return the mean and half of its interval by Student's t, over runs or where these are few over agents.

    With several attacks, of which the largest counts, each interval is wider (Bonferroni).
    """
    runs = np.unique(owners)
    means = np.array([values[owners == run].mean() for run in runs]) if len(runs) >= _FEWEST else values
    if len(means) < 2:
        return float(means.mean()), float("inf")
    level = 1 - (1 - CONFIDENCE) / attacks / 2
    half = stats.t.ppf(level, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
    return float(means.mean()), float(half)


def _with_strongest(rows: list[LeakRow]) -> list[LeakRow]:
    if not rows:
        return rows
    best = max(rows, key=lambda row: (row.leakage, row.leakage_low))
    return [replace(row, strongest=row is best) for row in rows]
