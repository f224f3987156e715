"""Noise of observations: normal, or uniform and so bounded, drawn one by one or many at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Lt

from fedbo.objectives.base import Array
from fedbo.settings.ranges import check


@dataclass(frozen=True, slots=True)
class Noise:
    """Normal noise of a `variance` plus uniform noise on [-`half_width`, `half_width`], each absent where it is 0."""

    variance: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    half_width: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0

    def __post_init__(self) -> None:
        check(self)

    def draws(self, rng: np.random.Generator, n: int) -> Array:
        """Return n draws `(n,)`."""
        made = np.zeros(n)
        if self.variance:
            made += np.sqrt(self.variance) * rng.standard_normal(n)
        if self.half_width:
            made += self.half_width * (2.0 * rng.random(n) - 1.0)
        return made
