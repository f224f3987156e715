"""The epsilon of several runs together, on the data of the same agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.coordinator.privacy.accounting import epsilon
from fedbo.coordinator.privacy.charge import PrivacyCharge
from fedbo.coordinator.privacy.gaussian import gaussian_epsilon
from fedbo.coordinator.privacy.ledger import inverse


def epsilon_together(rows: Iterable[Mapping[str, Any]], deltas: Sequence[float], n_agents: int) -> Array:
    """Compute the epsilon `(agents, deltas)` of all releases in rows of a ledger, of any number of runs.

    Runs draw independent noise and coins, so their releases compose like those of one run.
    """
    sampled: list[Counter[PrivacyCharge]] = [Counter() for _ in range(n_agents)]
    squares = np.zeros(n_agents)  # of the norms without a gain from sampling: together they are one Gaussian mechanism
    for row in rows:
        for agent, norm in zip(row["charged"], row["norms"], strict=True):
            if row["share"] == 1.0:
                squares[agent] += norm * norm
            else:
                sampled[agent][PrivacyCharge(row["share"], inverse(norm), row["sampling"], row["population"])] += 1
    mu = np.sqrt(squares)
    if not any(sampled):
        return np.stack([gaussian_epsilon(mu, delta) for delta in deltas], axis=1)
    agents = [
        charges + Counter({PrivacyCharge(1.0, inverse(part)): 1}) for charges, part in zip(sampled, mu.tolist(), strict=True)
    ]
    # Most agents are charged alike, and to compose takes long.
    known = {charges: [epsilon_of(dict(charges), delta) for delta in deltas] for charges in set(map(_ordered, agents))}
    return np.array([known[_ordered(charges)] for charges in agents])


def epsilon_of(charges: Mapping[PrivacyCharge, int], delta: float) -> float:
    """Compute epsilon by the tightest accountant that supports all of these charges."""
    return epsilon(charges, delta, "rdp" if any(charge.sampling == "fixed" for charge in charges) else "pld")


def _ordered(charges: Mapping[PrivacyCharge, int]) -> tuple[tuple[PrivacyCharge, int], ...]:
    """Return charges in a deterministic order, since rounding depends on it."""
    return tuple(sorted(charges.items(), key=lambda item: (item[0].share, item[0].multiplier, item[0].population)))
