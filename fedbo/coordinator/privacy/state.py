"""All that changes in a run's private aggregation, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array
from fedbo.coordinator.privacy.charge import PrivacyCharge


@dataclass(slots=True)
class AggregatorState:
    """All that changes in a run's private aggregation.

    - `held (N, M)` are the messages of the open release, `norms (N,)` their norms, and `bases (N,)` the rounds in which their
      steps began, -1 where there is none.
    - `clip` is the clipping norm S.
    - `spent (N,)` sums the squares of the norms of all charges without amplification.
    - `eligible` could be asked for the open release, `sampled` were.
    - `charges` are those with amplification, each for the agent to which it costs most.
    - `release` is the number of the open release.
    - `budget_exhausted`: there will be no more releases; `announced` are the agents that have been told so.
    """

    held: Array
    norms: Array
    bases: npt.NDArray[np.int64]
    clip: float
    spent: Array
    eligible: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    charges: list[PrivacyCharge] = field(default_factory=list)
    release: int = 0
    budget_exhausted: bool = False
    announced: set[int] = field(default_factory=set)
