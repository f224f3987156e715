"""The search for worlds that break a claim: successive halving over replicates, then `gp_ei` within the best family.

What is found here is a winner by luck as well: only its later verdict, on other seeds, counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import algorithms
from fedbo.algorithms.streams import Streams
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.study.document import StudyError
from fedbo_hunt.trials import SEARCH, WorldTrials
from fedbo_hunt.worlds import World, Worlds

SEARCHES = ("guided", "random")
_BRACKET, _FIRST, _MOST = 16, 2, 8  # worlds of a bracket, and replicates of a world at first and at most
_GUIDED, _EACH = 12, 4  # worlds that gp_ei proposes after a bracket, and the replicates of each
_CLEAR = 3.0  # standard errors of a mean above 0 at which the search ends
_PRIOR = 2.0  # replicates that the pooled variance counts for


@dataclass(slots=True)
class TriedWorld:
    """A world with the excess of each replicate so far."""

    world: World
    excesses: list[float]
    low: float = -math.inf

    @property
    def mean(self) -> float:
        """Return the mean excess."""
        return float(np.mean(self.excesses))


@dataclass(slots=True)
class WorldSearch:
    """A search among the `worlds` of a study, of which it tries up to `budget`."""

    worlds: Worlds
    trials: WorldTrials
    budget: int
    seed: int
    tried: list[TriedWorld] = field(default_factory=list)
    left_out: int = 0

    @property
    def count(self) -> int:
        """Return how many worlds were tried."""
        return len(self.tried) + self.left_out

    def run(self, how: str) -> list[TriedWorld]:
        """Search, and return the worlds with a positive lower bound of the excess, highest first, one of each family."""
        search = self._guided if how == "guided" else self._random
        for _ in search():
            if self._clear or self.count >= self.budget:
                break
        best: dict[str, TriedWorld] = {}
        for one in sorted(self.tried, key=lambda one: -one.low):
            if one.low > 0 and len(one.excesses) >= _EACH:
                best.setdefault(one.world.family, one)
        return list(best.values())

    def limit(self, world: TriedWorld) -> float:
        """Return the bound of a verdict: that of the claim, or twice the largest excess in its favour in any trial so far."""
        if (known := self.trials.claim.bound) is not None:
            return known
        return safe_limit([value for one in self.tried for value in one.excesses], world.excesses)

    @property
    def _clear(self) -> bool:
        self._bound()
        return any(len(one.excesses) >= _MOST and one.mean > _CLEAR * (one.mean - one.low) for one in self.tried)

    def _random(self) -> Iterator[None]:
        """Try drawn worlds one after another, all replicates of each."""
        for number in range(self.budget):
            self._try(self.worlds.draw(number), _MOST)
            yield

    def _guided(self) -> Iterator[None]:
        """Try brackets of drawn worlds, each of which is followed by worlds of the best family."""
        number = 0
        while True:
            bracket = []
            for _ in range(min(_BRACKET, self.budget - self.count)):
                if one := self._try(self.worlds.draw(number), _FIRST):
                    bracket.append(one)
                number += 1
            self._halve(bracket)
            yield
            yield from self._guide()

    def _halve(self, bracket: list[TriedWorld]) -> None:
        """Give the better half, by the lower bound, twice as many replicates, until there are enough."""
        replicates = _FIRST
        while len(bracket) > 1 and replicates < _MOST:
            self._bound()
            replicates *= 2
            bracket = sorted(bracket, key=lambda one: -one.low)[: (len(bracket) + 1) // 2]
            bracket = [one for one in bracket if self._more(one, replicates)]

    def _guide(self) -> Iterator[None]:
        """Search the numbers of the family of the best world by `gp_ei` for a larger lower bound of the excess."""
        self._bound()
        best = max(self.tried, key=lambda one: one.low, default=None)
        if best is None or not (text := best.world.space()):
            return
        space = read_space(text)
        problem = Problem(len(space.parameters), 1, (0,), initial=1, iterations=_GUIDED, agent=0, rounds=False, lattice=space)
        algorithm, streams = algorithms()["gp_ei"].make(), Streams(self.seed).of(0)
        state = algorithm.agent_init(problem, streams.at(0))
        start = space.encode({str(k): v for k, v in enumerate(best.world.values)})
        state = algorithm.tell(state, start[None, :], np.array([best.low]))
        for step in range(1, _GUIDED + 1):
            decision, state = algorithm.ask(state, (), streams.at(len(self.tried) * _GUIDED + step))
            point = space.project(decision.x)
            one = self._try(best.world.at(space.decode(point[0])), _EACH)
            self._bound()
            if one is not None and one.low > best.low:
                self._more(one, _MOST)
            state = algorithm.tell(state, point, np.array([one.low if one else min(each.low for each in self.tried)]))
            yield

    def _try(self, world: World, replicates: int) -> TriedWorld | None:
        """Try a world; None if the study does not fit it, or one of its runs says nothing."""
        try:
            found = self.trials.excesses(world.document(self.worlds.study), SEARCH, replicates)
        except StudyError:
            found = None
        if found is None:
            self.left_out += 1
            return None
        self.tried.append(TriedWorld(world, found))
        return self.tried[-1]

    def _more(self, one: TriedWorld, replicates: int) -> bool:
        """Give a world more replicates; False if one of them says nothing, and the world no longer counts."""
        found = self.trials.excesses(one.world.document(self.worlds.study), SEARCH, replicates)
        if found is None:
            self.tried.remove(one)
            self.left_out += 1
            return False
        one.excesses = found
        return True

    def _bound(self) -> None:
        """Set the lower bounds: the mean less a standard error, whose variance shrinks to that of all worlds."""
        # The median variance within worlds, which a few of them with long tails do not move.
        pooled = float(np.median([np.var(one.excesses, ddof=1) for one in self.tried])) if self.tried else 0.0
        for one in self.tried:
            count, own = len(one.excesses), float(np.var(one.excesses))
            variance = (count * own + _PRIOR * pooled) / (count - 1 + _PRIOR)
            one.low = one.mean - math.sqrt(variance / count)


def safe_limit(favours: Sequence[float], excesses: Sequence[float]) -> float:
    """Return twice the largest excess in favour of a claim, or twice a typical one if that is larger."""
    return 2.0 * max(-min(favours), float(np.mean(np.abs(excesses))), 1e-12)
