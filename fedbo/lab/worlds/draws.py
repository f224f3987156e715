"""Random choices from one generator, rounded so that a drawn study reads like a hand-written one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draws:
    """Choices from a generator, in the order of the calls."""

    rng: np.random.Generator

    def chance(self, probability: float, /) -> bool:
        """Return True with this probability."""
        return bool(self.rng.random() < probability)

    def one_of(self, *options: T) -> T:
        """Return one of the options, all equally likely."""
        return options[int(self.rng.integers(len(options)))]

    def some_of(self, options: Sequence[T], least: int = 1) -> list[T]:
        """Return at least `least` of the options, in their order."""
        count = int(self.rng.integers(least, len(options) + 1))
        chosen = self.rng.choice(len(options), size=count, replace=False)
        return [options[place] for place in sorted(chosen.tolist())]

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def number(self, low: float, high: float) -> float:
        """Return a number between two bounds, with two digits; log-uniform if both bounds are positive and far apart."""
        if low > 0 and high / low >= 20:
            value = math.exp(self.rng.uniform(math.log(low), math.log(high)))
        else:
            value = float(self.rng.uniform(low, high))
        return min(max(float(f"{value:.2g}"), low), high)

    def keep(self, probability: float, /, **settings: Any) -> dict[str, Any]:
        """Return a subset of some settings, each kept with this probability; None is never kept."""
        return {name: value for name, value in settings.items() if self.chance(probability) and value is not None}
