"""When the faults of a plan strike, and how long each strike lasts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.environment.availability import Ascending
from fedbo.coordinator.environment.duration_blocks import Durations
from fedbo.coordinator.environment.faults import Crash, Preemption, ProcessFault, is_shared, set_times
from fedbo.coordinator.environment.timing import Timing
from fedbo.settings.durations import DurationLaw


class FaultTimes:
    """The times of faults and of the ends of their strikes: functions of fault, owner, and number of the strike.

    Owners are agents or workers; what strikes several of them together is of the coordinator. `strikes` returns the streams of
    an owner, `noun` is the word for its purposes. Of the times only the last one is cached.
    """

    def __init__(self, faults: Mapping[int, Any], noun: str, strikes: Callable[[int], Streams], streams: Streams) -> None:
        self._faults, self._noun, self._strikes = faults, noun, strikes
        self._held: dict[tuple[int, int], Ascending] = {}
        self.same = {place: same_for_all_strikes(fault) for place, fault in faults.items()}
        self._lengths = {
            place: Durations(partial(_made, lasts), f"{noun} {place} lasts", streams)
            for place, fault in faults.items()
            if isinstance(lasts := _lasts(fault), DurationLaw)
        }

    def at(self, place: int, owner: int, number: int) -> float:
        """Return when a fault strikes for this time; infinity if never."""
        return (self._held.get((place, owner)) or self.enter(place, owner)).at(number)

    def lasting(self, place: int, owner: int, number: int) -> float:
        """Return how long this strike lasts for its owner; infinity if for good."""
        same = self.same[place]
        if same is not None:
            return same
        return self._lengths[place].of(COORDINATOR if is_shared(self._faults[place]) else owner, number)

    def enter(self, place: int, owner: int, number: int = -1, time: float = 0.0) -> Ascending:
        """Hold the times of a fault, with one time and its number if that is known."""
        fault, streams, purpose = self._faults[place], self._strikes(owner), f"{self._noun} {place}"
        purpose += "" if isinstance(fault, Preemption) else " strikes"

        def draw(rng: np.random.Generator, past: Sequence[float] = (), moment: float = 0.0) -> Iterator[float]:
            notice = fault.notice if isinstance(fault, Preemption) else 0.0
            return fault_times(fault, rng, lambda strike: notice + self.lasting(place, owner, strike), past, moment)

        held = self._held[place, owner] = Ascending(lambda: streams.times(purpose, draw, goes_on=draw), number, time)
        return held


def fault_times(
    fault: ProcessFault | Preemption,
    rng: np.random.Generator,
    lasting: Callable[[int], float],
    past: Sequence[float] = (),
    moment: float = 0.0,
) -> Iterator[float]:
    """Yield the ascending times at which a fault strikes; none for a fault at an event number or at the rate 0.

    A rate strikes only what the fault has not struck already: the next strike comes an exponential time after the end of the
    one before, where strike `number` lasts for `lasting(number)`. The times go on from a `moment` where the `past` is known.
    """
    if fault.at is not None:
        yield from (time for time in set_times(fault) if time >= moment)
    elif fault.rate:
        time = max(moment, past[-1] + lasting(len(past) - 1)) if past else moment
        for number in count(len(past)):
            time += float(rng.exponential(1 / fault.rate))
            yield time
            time += lasting(number)


def same_for_all_strikes(fault: ProcessFault | Preemption) -> float | None:
    """Return how long all strikes of a fault last, infinity if for good; None where that is drawn."""
    lasts = _lasts(fault)
    return None if isinstance(lasts, DurationLaw) else lasts


def _lasts(fault: ProcessFault | Preemption) -> float | DurationLaw:
    lasts = fault.restart if isinstance(fault, Crash) else fault.duration
    return math.inf if lasts is None else lasts


def _made(law: DurationLaw, owner: int) -> Timing:
    return law.make()
