"""The random times of many agents, followed as time passes: which was the last of each agent, and which is its next."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import Availability, Markov
from fedbo.coordinator.environment.faults import ProcessFault

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Gaps(NamedTuple):
    """Exponential gaps of one purpose: the mean before times 0, 2, … and before 1, 3, …

    With `share` time 0 is 0 for agents that are away then, with the probability 1 - `even` / `share`.
    """

    purpose: str
    even: float
    odd: float
    share: float = 0.0


class Passing:
    """The times of one model for some `agents (k,)`, ascending, whose `last` and `next (k,)` are followed.

    - `number`: how many have passed. `last` is -infinity before the first one.
    - `since`: the beginning of the last chain of times of which each follows within `lasting` of the one before.
    - `time_of`: the function (agent, number) -> time, which is asked where `gaps` are not known.
    """

    def __init__(
        self, agents: Ints, time_of: Callable[[int, int], float], streams: Streams, gaps: Gaps | None, lasting: float = 0.0
    ) -> None:
        count = len(agents)
        self.agents, self._time_of, self.lasting = agents, time_of, lasting
        self.number, self.last, self.since = np.full(count, -1), np.full(count, -np.inf), np.full(count, -np.inf)
        self.next = np.full(count, -np.inf)
        block = streams.each(agents, np.zeros(count, np.int64))
        self._key = None if gaps is None else block.key(gaps.purpose)
        self._gaps = (0.0, 0.0, 0.0) if gaps is None else gaps[1:]
        self._words, self._raw = (np.zeros(count if self._key else 0, kind) for kind in (np.int64, np.float64))
        self.places = np.full(int(agents.max(initial=-1)) + 1, -1)
        self.places[agents] = np.arange(count)

    def has(self, agent: int) -> bool:
        """Check whether an agent is among these."""
        return agent < len(self.places) and self.places.item(agent) >= 0

    def go_on(self, now: float) -> None:
        """Let the time pass: all that happens until then, and at it, has happened."""
        due = np.flatnonzero(self.next <= now)
        if self._key is not None:
            from fedbo.surrogates.compiled.philox import pass_times

            state = self.number, self.last, self.since, self.next, self._words, self._raw
            pass_times(self._key, self.agents, due, self._gaps, state, self.lasting, now)
            return
        for place in due.tolist():
            agent, number, time = self.agents.item(place), self.number.item(place), self.next.item(place)
            last, since = self.last.item(place), self.since.item(place)
            while time <= now:
                if number >= 0:
                    since, last = since if time < last + self.lasting else time, time
                number += 1
                time = self._time_of(agent, number)
            self.number[place], self.last[place], self.since[place], self.next[place] = number, last, since, time


def gaps_of_changes(model: Availability) -> Gaps | None:
    """Return the gaps between the changes of a model; None where they are not exponential."""
    if type(model) is not Markov:
        return None
    return Gaps("availability", model.present, model.absent, model.present + model.absent)


def gaps_of_strikes(place: int, fault: ProcessFault) -> Gaps | None:
    """Return the gaps between the times of the fault at a place of the plan; None where they are not exponential."""
    return Gaps(f"fault {place} strikes", 1 / fault.rate, 1 / fault.rate) if fault.rate else None
