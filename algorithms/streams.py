"""Random streams keyed by what they are for, so that nothing that happens can shift anybody's luck.

Every generator is a `numpy.random.Philox` whose key is (study seed, replicate) and whose counter starts at
(0, step, owner, purpose). Two draws share a stream only if all five agree; a stream may give 2**66 words before it
would touch its neighbour's. Neither the order of arrival, nor the packing of agents into processes, nor the
algorithm under comparison enters, so a crash, a resume or another policy leaves every other draw as it was.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

WORLD = -1  # owner of draws that all agents share
COORDINATOR = -2

_make: Final = tuple.__new__  # in half the time of a call of the class


class _Key(ISeedSequence):
    """A key that is given and not derived: as `Philox(key=...)`, which would ask the system for entropy first."""

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: npt.DTypeLike = np.uint32) -> npt.NDArray[np.uint64]:
        """Give the two words of the key."""
        return self._words


@lru_cache(maxsize=64)
def _key(seed: int, replicate: int) -> _Key:
    return _Key(np.array([seed, replicate], dtype=np.uint64))


@lru_cache(maxsize=4096)
def _word(purpose: str) -> int:
    return int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")


class Streams(NamedTuple):
    """The random streams of one owner at one step of one replicate.

    `seed` and `replicate` are non-negative; `owner` is an agent's index, `WORLD` or `COORDINATOR`; `step` counts from 0;
    `scope` separates tasks of one owner that use the same purposes, such as an earlier task and the present one.
    """

    seed: int
    replicate: int = 0
    owner: int = WORLD
    step: int = 0
    scope: str = ""

    def rng(self, purpose: str) -> np.random.Generator:
        """Give the generator for one purpose; asking again starts the same stream again."""
        counter = np.array([0, self.step, self.owner + 2, _word(self.scope + purpose)], dtype=np.uint64)
        key: Any = _key(self.seed, self.replicate)  # NumPy takes any seed sequence, its stubs only its own
        return np.random.Generator(np.random.Philox(key, counter=counter))

    def shared(self, purpose: str) -> np.random.Generator:
        """Give the generator that every agent of this replicate obtains for this purpose, at any step."""
        return Streams(self.seed, self.replicate, scope=self.scope).rng(purpose)

    def at(self, step: int) -> Streams:
        """Give the same owner's streams at another step."""
        return _make(Streams, (self.seed, self.replicate, self.owner, step, self.scope))

    def of(self, owner: int) -> Streams:
        """Give another owner's streams at the same step."""
        return _make(Streams, (self.seed, self.replicate, owner, self.step, self.scope))

    def within(self, scope: str) -> Streams:
        """Give the same owner's streams for another task."""
        return Streams(self.seed, self.replicate, self.owner, self.step, scope)
