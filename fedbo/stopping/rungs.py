"""The rungs of one agent: the values of its evaluations at each of them, and the evaluations that are paused there."""

from __future__ import annotations

from typing import NamedTuple

from fedbo.actors.storage.evaluations import Query

Key = tuple[int, int]  # step and point of an evaluation
Place = tuple[int, int]  # a bracket and a fidelity


class RungState(NamedTuple):
    """The state that a stopper decides by. It is a function of the ends that an agent received, in their order.

    - `values`: for each rung, the values of evaluations there, in the order in which they reached it.
    - `paused`: evaluations that are paused at a rung.
    """

    values: dict[Place, dict[Key, float]] = {}
    paused: dict[Key, Query] = {}

    def reached(self, place: Place, key: Key, value: float) -> RungState:
        """Return the state after an evaluation reached a rung with a value."""
        return self._replace(values={**self.values, place: {**self.values.get(place, {}), key: value}})

    def pausing(self, query: Query) -> RungState:
        """Return the state with an evaluation paused at the rung that it has reached."""
        return self._replace(paused={**self.paused, (query.step, query.point): query})

    def going_on(self, key: Key) -> RungState:
        """Return the state after a paused evaluation resumed."""
        return self._replace(paused={one: query for one, query in self.paused.items() if one != key})


def best_of(values: dict[Key, float], count: int) -> list[Key]:
    """Return the `count` evaluations with the largest values; ties go to the earlier one."""
    return sorted(values, key=lambda key: -values[key])[:count]
