"""When a bad end was decided: its probability given the history until each of several moments, and where it jumps.

The probability is a martingale of the redraws: without news it stays where it is, so a jump is where to look.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedbo.settings.arguments import wrong

MOMENTS = 8  # to begin with
_BATCH = 4  # draws at a moment that is added
_MOST = 16  # draws of a moment between whose neighbours nothing happens
_FLAT = 0.15  # a difference of neighbours below which no further draws are spent
CLEAR = 0.25  # the least difference that counts as a jump
_Z = 1.959963984540054  # the 97.5 % point of the normal distribution


def wilson(bad: int, draws: int) -> tuple[float, float]:
    """Return the 95 % interval of a probability after `bad` of `draws` (Wilson 1927); (0, 1) without draws."""
    if not draws:
        return 0.0, 1.0
    share, z2 = bad / draws, _Z * _Z
    middle = (share + z2 / (2 * draws)) / (1 + z2 / draws)
    half = _Z / (1 + z2 / draws) * math.sqrt(share * (1 - share) / draws + z2 / (4 * draws * draws))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(slots=True)
class CurvePoint:
    """A moment: `bad` of `draws` branches that redraw everything after it ended badly."""

    time: float
    bad: int = 0
    draws: int = 0

    @property
    def mean(self) -> float:
        """Return the posterior mean of the probability of a bad end under Jeffreys' prior."""
        return (self.bad + 0.5) / (self.draws + 1)

    @property
    def interval(self) -> tuple[float, float]:
        """Return its 95 % interval."""
        return wilson(self.bad, self.draws)


@dataclass(frozen=True, slots=True)
class Jump:
    """A window in which the probability of a bad end changed from `before` to `after`.

    It reaches from the moment `start`, whose events it includes, to the moment `stop`, whose events it does not include.
    `sure` says whether the intervals of both moments have nothing in common.
    """

    start: float
    stop: float
    before: float
    after: float
    sure: bool


@dataclass(slots=True)
class DecisionCurve:
    """The probability of a bad end over the time of a run that ended at `stop`, badly or not.

    `ask(time, number)` returns whether draw `number` of the branch at `time` ends badly; `times` are those of the events.
    """

    ask: Callable[[float, int], bool]
    times: Sequence[float]
    stop: float
    is_bad: bool
    points: list[CurvePoint] = field(default_factory=list)

    def start(self, draws: int, moments: int = MOMENTS) -> None:
        """Draw at the start and at moments with equally many times of events between them."""
        count = min(moments, len(self.times) + 1)
        if count < 1 or draws < 1:
            raise wrong("draws", draws, "must be at least 1")
        for place in range(count):
            time = 0.0 if not place else self.times[place * len(self.times) // count]
            self._add(time, draws)

    def refine(self, budget: int) -> int:
        """Spend up to `budget` further branches where neighbours differ most; return how many were spent."""
        spent = 0
        while spent < budget:
            used = self._refine_once(budget - spent)
            if not used:
                break
            spent += used
        return spent

    def _refine_once(self, left: int) -> int:
        for place in sorted(range(len(self.points)), key=self._difference, reverse=True):
            if abs(self._difference(place)) < _FLAT:
                return 0
            one, stop = self.points[place], self._after(place)[0]
            inner = self.times[bisect.bisect_right(self.times, one.time) : bisect.bisect_left(self.times, stop)]
            if inner:
                used = min(_BATCH, left)
                self._add(inner[len(inner) // 2], used)
                return used
            pair = [each for each in self.points[place : place + 2] if each.draws < _MOST]
            if pair:
                least = min(pair, key=lambda each: each.draws)
                used = min(_BATCH, left, _MOST - least.draws)
                self._draw(least, used)
                return used
        return 0

    def _after(self, place: int) -> tuple[float, float]:
        """Return the time and the probability of the next moment, which after the last one is the end of the run."""
        if place + 1 < len(self.points):
            return self.points[place + 1].time, self.points[place + 1].mean
        return math.inf, float(self.is_bad)

    def _difference(self, place: int) -> float:
        return abs(self._after(place)[1] - self.points[place].mean)

    def _add(self, time: float, draws: int) -> None:
        point = CurvePoint(time)
        self.points.insert(bisect.bisect([each.time for each in self.points], time), point)
        self._draw(point, draws)

    def _draw(self, point: CurvePoint, draws: int) -> None:
        for _ in range(draws):
            point.bad += self.ask(point.time, point.draws)
            point.draws += 1

    def jumps(self, most: int = 3) -> list[Jump]:
        """Return the largest jumps, largest first: differences of at least 0.25 between neighbours."""
        found = list[Jump]()
        for place, one in enumerate(self.points):
            stop, after = self._after(place)
            if abs(after - one.mean) < CLEAR:
                continue
            end = self.points[place + 1].interval if place + 1 < len(self.points) else (after, after)
            sure = one.interval[1] < end[0] or end[1] < one.interval[0]
            found.append(Jump(one.time, min(stop, self.stop), one.mean, after, sure))
        return sorted(found, key=lambda jump: -abs(jump.after - jump.before))[:most]
