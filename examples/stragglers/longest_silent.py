"""A choice of agents by the time of their last report."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LongestSilent:
    """Agents from which no message has come for the longest time, those that have not reported yet before all others."""

    def choose(self, known: Any, count: int, rng: np.random.Generator) -> Any:
        """Take the earliest reports; ties by chance."""
        return np.lexsort((rng.random(len(known.agents)), np.nan_to_num(known.reported, nan=-1.0)))[:count]
