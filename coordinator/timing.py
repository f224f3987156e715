"""How long things take: models of evaluation time and of message latency, in the study's unit of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.streams import Streams

Array = npt.NDArray[np.float64]


class Timing(Protocol):
    """A model of durations. `draw` gives `size` independent ones for one agent; `speed` is drawn once for each agent."""

    def speed(self, rng: np.random.Generator) -> float:
        """Give one agent's own lasting factor on its durations."""

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Give `size` durations, before the agent's factor."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Every duration is `mean`."""

    model: ClassVar[str] = "constant"
    mean: float = 1.0

    def __post_init__(self) -> None:
        _require(self.mean >= 0, f"mean must be at least 0, not {self.mean}")

    def speed(self, rng: np.random.Generator) -> float:
        """Give 1: all agents are alike."""
        return 1.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Give `size` times the mean."""
        return np.full(size, self.mean)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Log-normal durations with expectation `mean`: heavy enough a tail that stragglers appear.

    `sigma` is the standard deviation of the logarithm from one evaluation to the next; `between` that of the logarithm
    of an agent's lasting factor, so that some agents are always slow.
    """

    model: ClassVar[str] = "lognormal"
    mean: float = 1.0
    sigma: float = 1.0
    between: float = 0.0

    def __post_init__(self) -> None:
        _require(self.mean > 0, f"mean must be above 0, not {self.mean}")
        _require(self.sigma >= 0, f"sigma must be at least 0, not {self.sigma}")
        _require(self.between >= 0, f"between must be at least 0, not {self.between}")

    def speed(self, rng: np.random.Generator) -> float:
        """Draw one agent's lasting factor, with expectation 1."""
        return float(np.exp(self.between * rng.standard_normal() - 0.5 * self.between**2))

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Draw `size` durations."""
        return np.asarray(self.mean * np.exp(self.sigma * rng.standard_normal(size) - 0.5 * self.sigma**2))


TIMINGS: dict[str, type[Constant] | type[Lognormal]] = {m.model: m for m in (Constant, Lognormal)}

_BLOCK = 64


class Durations:
    """The durations of one purpose, one sequence for each agent, made in blocks so that a draw costs two look-ups.

    Duration number `step` of an agent is always the same one, whatever was asked before it.
    """

    def __init__(self, timing: Timing, purpose: str, streams: Streams) -> None:
        self._timing, self._purpose, self._streams = timing, purpose, streams
        self._speeds: dict[int, float] = {}
        self._blocks: dict[int, tuple[int, list[float]]] = {}

    def __call__(self, agent: int, step: int) -> float:
        """Give an agent's duration number `step`."""
        held = self._blocks.get(agent)
        if held is None or held[0] != step // _BLOCK:
            held = self._blocks[agent] = step // _BLOCK, self._draw(agent, step // _BLOCK)
        return held[1][step % _BLOCK]

    def _draw(self, agent: int, number: int) -> list[float]:
        own = self._streams.of(agent)
        if agent not in self._speeds:
            self._speeds[agent] = self._timing.speed(own.at(0).rng(self._purpose + " speed"))
        block = self._timing.draw(own.at(number).rng(self._purpose), _BLOCK) * self._speeds[agent]
        return [float(value) for value in block]


def durations(timing: Timing, purpose: str, streams: Streams) -> Callable[[int, int], float]:
    """Give the function (agent, step) -> duration of one purpose."""
    if isinstance(timing, Constant):
        return lambda agent, step: timing.mean
    return Durations(timing, purpose, streams)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
