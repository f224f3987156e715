"""Durations of agents by their number, drawn in blocks."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.measured import Empirical
from fedbo.coordinator.environment.timing import Constant, Timing

_BLOCK = 64
_HELD = 100_000  # agents whose blocks are held at a time: 60 MB, and a draw again costs microseconds


class Durations:
    """The durations of one purpose in blocks of 64, which are functions of agent and number alone.

    `timing_of` returns an agent's model and is called once for each agent. Only an agent's last used block is kept.
    """

    def __init__(self, timing_of: Callable[[int], Timing], purpose: str, streams: Streams) -> None:
        self._timing_of, self._purpose, self._streams = timing_of, purpose, streams
        self._models: dict[int, tuple[Timing, float]] = {}
        self._held: dict[int, tuple[int, Sequence[float]]] = {}

    def of(self, agent: int, number: int) -> float:
        """Return duration `number` of an agent, independent of earlier calls."""
        last = self._held.get(agent)
        if last is None or last[0] != number // _BLOCK:
            if len(self._held) >= _HELD:
                self._held.clear()
            last = self._held[agent] = number // _BLOCK, self._drawn(agent, number // _BLOCK)
        return last[1][number % _BLOCK]

    def block(self, agent: int, number: int) -> Sequence[float]:
        """Return an agent's block `number` of durations, which begins at duration 64 * `number`."""
        last = self._held.get(agent)
        return last[1] if last is not None and last[0] == number else self._drawn(agent, number)

    def _drawn(self, agent: int, number: int) -> Sequence[float]:
        model, speed = self._models.get(agent) or self._enter(agent)
        if isinstance(model, Constant):
            return _same(model.mean)
        first = number * _BLOCK

        def draw(rng: np.random.Generator) -> npt.NDArray[np.float64]:
            if isinstance(model, Empirical):
                return model.of(agent)(rng, first, _BLOCK)
            return model.draw(rng, _BLOCK) * speed

        drawn = self._streams.of(agent).at(number).block(self._purpose, first, draw)
        return array("d", drawn.tobytes())  # a quarter of the memory of a list

    def _enter(self, agent: int) -> tuple[Timing, float]:
        model = self._timing_of(agent)
        constant = isinstance(model, Constant | Empirical)  # it needs no stream, and streams are most of the work
        speed = 1.0 if constant else model.speed(self._streams.of(agent).at(0).rng(self._purpose + " speed"))
        self._models[agent] = model, speed
        return model, speed


@lru_cache(maxsize=256)
def _same(value: float) -> list[float]:
    """Return a block of equal durations, one list shared by all agents."""
    return [float(value)] * _BLOCK


def durations(timing_of: Callable[[int], Timing], purpose: str, streams: Streams) -> Callable[[int, int], float]:
    """Return the function (agent, number) -> duration of one purpose; `timing_of` returns an agent's model."""
    return Durations(timing_of, purpose, streams).of
