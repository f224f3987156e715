"""Whether an agent is there when its next iteration begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fedbo.coordinator.timing import Constant, Timing


class Availability(Protocol):
    """A model of absence. `draw` gives for `size` iterations how long the agent is away first; 0 is: it is there."""

    def draw(self, rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
        """Give `size` lengths of absence."""


@dataclass(frozen=True, slots=True)
class Always:
    """Every agent is always there."""

    model: ClassVar[str] = "always"

    def draw(self, rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
        """Give no absence."""
        return np.zeros(size)


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Before each iteration, and independently, an agent is away with this `probability`.

    It stays away for `absence` units of time; under a barrier it sits the whole round out instead.
    """

    model: ClassVar[str] = "bernoulli"
    probability: float = 0.1
    absence: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.probability < 1:
            raise ValueError(f"probability must be in [0, 1), not {self.probability}")
        if not self.absence > 0:
            raise ValueError(f"absence must be above 0, not {self.absence}")

    def draw(self, rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
        """Draw `size` absences, each 0 or `absence`."""
        return np.where(rng.random(size) < self.probability, self.absence, 0.0)


AVAILABILITIES: dict[str, type[Always] | type[Bernoulli]] = {m.model: m for m in (Always, Bernoulli)}


def absences(availability: Availability) -> Timing:
    """Read an availability as a model of durations, one for each iteration."""
    return Constant(0.0) if isinstance(availability, Always) else _Absences(availability)


@dataclass(frozen=True, slots=True)
class _Absences:
    availability: Availability

    def speed(self, rng: np.random.Generator) -> float:
        return 1.0

    def draw(self, rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
        return self.availability.draw(rng, size)
