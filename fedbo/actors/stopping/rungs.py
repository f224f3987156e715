"""The rungs of one agent: what its evaluations came to at each of them, and which evaluations are paused there."""

from __future__ import annotations

from statistics import fmean, median
from typing import NamedTuple

from fedbo.actors.storage.evaluations import Query

Key = tuple[int, int]  # step and point of an evaluation
Place = tuple[int, int]  # a bracket and a fidelity


_FEWEST = 3  # values by which an agent knows its own scale


class Elsewhere(NamedTuple):
    """What other agents came to at a rung: how many values they have there, and their nine deciles, in units of each agent."""

    number: float
    deciles: tuple[float, ...]


class RungState(NamedTuple):
    """All that a stopper decides by, a function of the ends that an agent was told of, in their order.

    `values` has for each rung what evaluations came to there, in the order in which they reached it, and `paused` the
    evaluations that wait at a rung to go on. `others` is what other agents told of their rungs, where they do.
    """

    values: dict[Place, dict[Key, float]] = {}
    paused: dict[Key, Query] = {}
    others: dict[Place, Elsewhere] = {}

    def reached(self, place: Place, key: Key, value: float) -> RungState:
        """Note what an evaluation came to at a rung."""
        return self._replace(values={**self.values, place: {**self.values.get(place, {}), key: value}})

    def pausing(self, query: Query) -> RungState:
        """Let an evaluation wait at the rung that it has reached."""
        return self._replace(paused={**self.paused, (query.step, query.point): query})

    def going_on(self, key: Key) -> RungState:
        """Let an evaluation that is paused go on."""
        return self._replace(paused={one: query for one, query in self.paused.items() if one != key})

    def scale(self, bracket: int) -> tuple[float, float] | None:
        """Give an agent's units: the median of its values at the lowest rung of a bracket, and their mean deviation from it.

        None where these are fewer than three, or all the same.
        """
        lowest = min((place for place in self.values if place[0] == bracket), default=None)
        values = [] if lowest is None else list(self.values[lowest].values())
        if len(values) < _FEWEST:
            return None
        middle = median(values)
        spread = fmean(abs(value - middle) for value in values)
        return (middle, spread) if spread > 0 else None

    def elsewhere(self, place: Place, value: float) -> tuple[float, float]:
        """Count the values that others have at a rung, and how many of them are better than one here."""
        others, scale = self.others.get(place), self.scale(place[0]) if self.others else None
        if others is None or scale is None:
            return 0.0, 0.0
        better = sum(point > (value - scale[0]) / scale[1] for point in others.deciles)
        return others.number, others.number * better / len(others.deciles)


def best_of(values: dict[Key, float], count: int) -> list[Key]:
    """List the `count` evaluations with the largest values, of equals those that came first."""
    return sorted(values, key=lambda key: -values[key])[:count]
