"""The exchange modes by name, and the one whose rounds are as long as the messages say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from fedbo.coordinator.kernel.exchange import LATE, Barrier, Buffered, Deadline, FirstK, Immediate, InRounds, Rounds
from fedbo.coordinator.selection import Selection
from fedbo.coordinator.staleness import Staleness
from fedbo.settings.ranges import Marked, OneOf


@dataclass(frozen=True, slots=True)
class Adaptive(Marked, InRounds):
    """Rounds whose length follows from the messages: it is set once a `quorum` of the agents that it waits for has been heard.

    The round then closes `factor` times their median absolute deviation after the median of their times, or at once if that is
    past; with fewer messages after `length`, if there is one. Late messages are dropped or carried, as under a deadline.
    """

    mode: ClassVar[str] = "adaptive"
    adapts: ClassVar[bool] = True
    quorum: Annotated[float, Gt(0), Le(1)] = 0.5
    """Share of the awaited agents whose messages set the length."""
    factor: Annotated[float, Ge(0)] = 3.0
    """Deviations after the median at which a round closes."""
    length: Annotated[float, Gt(0)] | None = None
    late: Annotated[str, OneOf(LATE)] = "drop"
    staleness: Staleness = Staleness()
    """Weight of late messages."""
    selection: Selection = Selection()
    """Which agents are asked to send."""

    def deadline_of(self, rounds: Rounds) -> float | None:
        """Return the length by the first messages, once they are a quorum."""
        count = math.ceil(self.quorum * rounds.expected)
        if not count or len(rounds.arrivals) < count:
            return self.length
        first = rounds.arrivals[:count]
        middle = median(first)
        return middle + self.factor * median(abs(one - middle) for one in first)

    def reveals(self, sampling: str) -> str:
        """Return what reveals the sampled agents: how long a round lasts."""
        return "the length of a round follows from the messages of those who were sampled"


Mode = Barrier | Deadline | Adaptive | FirstK | Buffered | Immediate
MODES: dict[str, type[Mode]] = {one.mode: one for one in (Barrier, Deadline, Adaptive, FirstK, Buffered, Immediate)}
