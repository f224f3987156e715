"""Methods that say less than they reveal: their messages hold no number of an observation to the bit, and all the same tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedbo.algorithms.base import Payload
from fedbo.algorithms.collaborative.share_best import ShareBest
from fedbo.algorithms.fts import FTS
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams


@dataclass(frozen=True, slots=True)
class Blurred(ShareBest):
    """Sharing the best, moved by a millionth, and declared to be a draw."""

    reveals: ClassVar[Reveals] = Reveals.DRAWS

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Write the best point, less exactly."""
        payload, state = ShareBest.outbox(self, state, streams)
        if payload is None:
            return None, state
        return {"x": np.clip(payload["x"] + 1e-7 * streams.rng("blur").standard_normal(payload["x"].shape), 0, 1)}, state


@dataclass(frozen=True, slots=True)
class Silent(FTS):
    """Federated Thompson sampling that claims to send noisy sums."""

    reveals: ClassVar[Reveals] = Reveals.NOISY_SUMS
