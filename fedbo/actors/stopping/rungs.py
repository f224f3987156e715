"""The rungs of one agent: what its evaluations came to at each of them, and which evaluations are paused there."""

from __future__ import annotations

from typing import NamedTuple

from fedbo.actors.storage.evaluations import Query

Key = tuple[int, int]  # step and point of an evaluation
Place = tuple[int, int]  # a bracket and a fidelity


class RungState(NamedTuple):
    """All that a stopper decides by, a function of the ends that an agent was told of, in their order.

    `values` has for each rung what evaluations came to there, in the order in which they reached it, and `paused` the
    evaluations that wait at a rung to go on.
    """

    values: dict[Place, dict[Key, float]] = {}
    paused: dict[Key, Query] = {}

    def reached(self, place: Place, key: Key, value: float) -> RungState:
        """Note what an evaluation came to at a rung."""
        return self._replace(values={**self.values, place: {**self.values.get(place, {}), key: value}})

    def pausing(self, query: Query) -> RungState:
        """Let an evaluation wait at the rung that it has reached."""
        return self._replace(paused={**self.paused, (query.step, query.point): query})

    def going_on(self, key: Key) -> RungState:
        """Let an evaluation that is paused go on."""
        return self._replace(paused={one: query for one, query in self.paused.items() if one != key})


def best_of(values: dict[Key, float], count: int) -> list[Key]:
    """List the `count` evaluations with the largest values, of equals those that came first."""
    return sorted(values, key=lambda key: -values[key])[:count]
