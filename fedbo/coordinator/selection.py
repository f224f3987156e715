"""Client selection: which agents are asked for a message."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check

SHARES = ("fraction", "speed")  # they ask a number of agents, and not each by a coin of its own


@dataclass(frozen=True, slots=True)
class Selection:
    """Which agents are asked to send in a round.

    The `others` "work": they continue locally and send nothing; or they are "idle" until they are asked (`idles`).

    `who` is "all"; "fraction": a `share` of the agents that begin the round, uniformly drawn; "poisson": each with probability
    `share`, independently; or "speed": a `share` of them, an `explore` part of it drawn uniformly and the rest with
    probability proportional to min(1, T / t)^`penalty`, where t is an agent's last duration and T the median of these
    durations (after Oort, Lai et al. 2021, section 4.2, its statistical utility taken as equal).
    """

    who: Annotated[str, OneOf(("all", "fraction", "poisson", "speed"))] = "all"
    """All, a random share, independent coins, or preferably fast agents."""
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of the agents that is asked."""
    explore: Annotated[float, Ge(0), Le(1)] = 0.1
    """With speed: part of the share that is drawn uniformly."""
    penalty: Annotated[float, Ge(0)] = 2.0
    """With speed: exponent of the preference for fast agents."""
    others: Annotated[str, OneOf(("work", "idle"))] = "work"
    """Whether agents that are not asked work or idle."""

    def __post_init__(self) -> None:
        check(self)
        if self.others == "idle" and self.who not in SHARES:
            remedy = f"set who = {' or '.join(SHARES)} for idle agents"
            raise SettingError("others", 'must be "work" for this selection', self.others, remedy)

    @property
    def idles(self) -> bool:
        """Check whether only the selected agents work in a round."""
        return self.others == "idle"

    def of_round(self, agents: Sequence[int] | npt.NDArray[np.int64], pace: Mapping[int, float], streams: Streams) -> set[int]:
        """Select among the `agents` that begin a round; `pace` has the last duration of each agent that has reported before."""
        if self.who == "all" or not len(agents):
            return {int(agent) for agent in agents}
        if self.who == "poisson":
            return {int(agent) for agent in agents if self.of_step(streams.of(agent))}
        rng = streams.rng("selection")
        count = max(1, round(self.share * len(agents)))
        if self.who == "fraction":
            return {int(agent) for agent in rng.choice(agents, count, replace=False)}
        return _fast([int(agent) for agent in agents], pace, count, self, rng)

    def of_step(self, streams: Streams) -> bool:
        """Check whether one agent is asked at one step, where there are no rounds."""
        return self.who == "all" or (streams.uniform("selection") < self.share)


def _fast(
    agents: Sequence[int], pace: Mapping[int, float], count: int, selection: Selection, rng: np.random.Generator
) -> set[int]:
    """Draw without replacement by exponential races: the key of each agent is Exp(1) over its weight."""
    known = [pace[agent] for agent in agents if agent in pace]
    typical = median(known) if known else 1.0
    race = rng.standard_exponential(len(agents))
    weights = [min(1.0, typical / max(pace.get(agent, typical), 1e-300)) ** selection.penalty for agent in agents]
    ranked = sorted(zip([r / max(w, 1e-300) for r, w in zip(race, weights, strict=True)], agents, strict=True))
    exploit = count - math.floor(selection.explore * count)
    chosen = {agent for _, agent in ranked[:exploit]}
    rest = [agent for agent in agents if agent not in chosen]
    chosen |= {int(agent) for agent in rng.choice(rest, count - exploit, replace=False)} if count > exploit else set()
    return chosen
