"""The cost of one release for one agent: the charge that accountants add up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Protocol, Self

from annotated_types import Ge, Gt, Le

from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check


@dataclass(frozen=True, slots=True)
class PrivacyCharge:
    """The cost of one release for one agent.

    The agent was in it with probability `share` q. The noise is `multiplier` times the norm of the agent's largest possible
    contribution; an infinite multiplier costs nothing, and 0 is no noise. `sampling` is "poisson", independent coins, or
    "fixed": max(1, round(q `population`)) of the `population` of eligible agents, without replacement.
    """

    share: Annotated[float, Gt(0), Le(1), "remove releases that cannot include an agent"]
    multiplier: Annotated[float, Ge(0), "0 means no noise, inf means a free release"]
    sampling: Annotated[str, OneOf(("poisson", "fixed"))] = "poisson"
    population: int = 0

    def __post_init__(self) -> None:
        check(self)
        if self.sampling == "fixed" and self.population < 1:
            raise SettingError(
                "population", "must be at least 1", self.population, "set the number of agents that can be sampled"
            )

    @property
    def sampled(self) -> int:
        """Return the number of sampled agents, where it is fixed."""
        return max(1, round(self.share * self.population))

    @property
    def certain(self) -> bool:
        """Check whether the agent is certainly in the release, so that sampling does not reduce the cost."""
        return self.share == 1 if self.sampling == "poisson" else self.sampled == self.population

    @property
    def weight(self) -> float:
        """Return 1 / multiplier^2, which adds up over releases without sampling."""
        return math.inf if self.multiplier == 0 else (1 / self.multiplier) * (1 / self.multiplier)


class ChargeSum(Protocol):
    """A sum of charges, in the form of one accountant."""

    def plus(self, charge: PrivacyCharge, times: int) -> Self:
        """Return the sum with one more charge, `times` times."""

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the sum."""


def refuse_fixed(charge: PrivacyCharge, by: str) -> None:
    if charge.sampling == "fixed" and not charge.certain:
        raise ValueError(f"'{by}' cannot account for sampling = 'fixed'; use the accountant 'rdp', or sampling = 'poisson'")


def is_unamplified(charge: PrivacyCharge) -> bool:
    """Check whether the bound without sampling applies: all agents are in, or the noise is too little or too much to matter."""
    return charge.certain or not 1e-30 < charge.weight < 1e300
