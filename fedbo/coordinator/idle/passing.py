"""The random times of many agents, followed as time passes: which was the last of each agent, and which is its next."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import Availability, Markov
from fedbo.coordinator.environment.fault_times import same_for_all_strikes
from fedbo.coordinator.environment.faults import ProcessFault

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
TimeOf = Callable[[int, int], float]


class Gaps(NamedTuple):
    """Exponential gaps of one purpose: the mean before times 0, 2, … and before 1, 3, …

    With `share` time 0 is 0 for agents that are away then, with the probability 1 - `even` / `share`. A gap begins when what
    began with the time before is over, after `lasting`.
    """

    purpose: str
    even: float
    odd: float
    share: float = 0.0
    lasting: float = 0.0


class Passing:
    """The times of one model for some `agents (k,)`, ascending, whose `last` and `next (k,)` are followed.

    - `number`: how many have passed. `last` is -infinity before the first one.
    - `ends`: when what began with the last one is over; -infinity before the first one.
    - `times`: the functions (agent, number) -> time and -> how long it lasts, which are asked where `gaps` are not known.
    """

    def __init__(self, agents: Ints, times: tuple[TimeOf, TimeOf], streams: Streams, gaps: Gaps | None) -> None:
        count = len(agents)
        self.agents, self._times = agents, times
        self.number, self.last, self.ends = np.full(count, -1), np.full(count, -np.inf), np.full(count, -np.inf)
        self.next = np.full(count, -np.inf)
        block = streams.each(agents, np.zeros(count, np.int64))
        self._key = None if gaps is None else block.key(gaps.purpose)
        self._gaps = (0.0, 0.0, 0.0, 0.0) if gaps is None else gaps[1:]
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

            state = self.number, self.last, self.ends, self.next, self._words, self._raw
            pass_times(self._key, self.agents, due, self._gaps, state, now)
            return
        time_of, lasting = self._times
        for place in due.tolist():
            agent, number, time = self.agents.item(place), self.number.item(place), self.next.item(place)
            last = self.last.item(place)
            while time <= now:
                last = time if number >= 0 else last
                number += 1
                time = time_of(agent, number)
            self.number[place], self.last[place], self.next[place] = number, last, time
            self.ends[place] = last if number < 1 else last + lasting(agent, number - 1)


def gaps_of_changes(model: Availability) -> Gaps | None:
    """Return the gaps between the changes of a model; None where they are not exponential."""
    if type(model) is not Markov:
        return None
    return Gaps("availability", model.present, model.absent, model.present + model.absent)


def gaps_of_strikes(place: int, fault: ProcessFault) -> Gaps | None:
    """Return the gaps between the times of the fault at a place of the plan; None where they are not exponential."""
    lasting = same_for_all_strikes(fault)
    if not fault.rate or lasting is None:
        return None
    return Gaps(f"fault {place} strikes", 1 / fault.rate, 1 / fault.rate, lasting=lasting)
