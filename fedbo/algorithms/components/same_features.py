"""The random features that all agents of a replicate share, drawn and kept once in a process."""

from __future__ import annotations

from functools import lru_cache

from fedbo.algorithms.streams import WORLD, Streams
from fedbo.surrogates.features import Features, draw_features


def shared_features(streams: Streams, dim: int, count: int, length_scale: float, kernel: str = "se") -> Features:
    """Return the features that every agent obtains alike; they are read-only."""
    return _drawn(streams.of(WORLD).at(0), dim, count, length_scale, kernel)


@lru_cache(maxsize=16)
def _drawn(streams: Streams, dim: int, count: int, length_scale: float, kernel: str) -> Features:
    drawn = draw_features(streams.rng("shared features"), dim, count, length_scale, kernel)
    drawn.frequencies.flags.writeable = drawn.phases.flags.writeable = False
    return drawn
