"""Random streams keyed by their purpose, so that no event changes the draws of another agent.

Every generator is a `numpy.random.Philox`. Its key is (study seed, replicate), and its counter starts at (0, step, owner,
purpose). Two draws share a stream only if all five agree; a stream has 2**66 words before it reaches its neighbour. The order
of arrival, the packing of agents into processes, and the algorithm under comparison do not enter. A crash, a resume or another
policy therefore leaves every other draw as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

Words = npt.NDArray[np.uint64]
_MULTIPLIERS, _WEYL = (0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_HALF, _LOWER = np.uint64(32), np.uint64(2**32 - 1)
_FEW = 64  # generators that cost no more than the arrays of all of them
WORLD = -1  # owner of draws that all agents share
COORDINATOR = -2


class _Key(ISeedSequence):
    """A key that is given and not derived: as `Philox(key=...)`, which would ask the system for entropy first."""

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: npt.DTypeLike = np.uint32) -> npt.NDArray[np.uint64]:
        """Return the two words of the key."""
        return self._words


@lru_cache(maxsize=64)
def _key(seed: int, replicate: int) -> _Key:
    return _Key(np.array([seed, replicate], dtype=np.uint64))


@lru_cache(maxsize=4096)
def _word(purpose: str) -> int:
    return int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")


def _philox(counter: Sequence[Words], *key: int) -> Words:
    """Return the first word of each block of Philox-4x64-10 (Salmon et al. 2011), as `numpy.random.Philox` does."""
    first, second, third, fourth = counter
    for turn in range(10):
        high, low = zip(*map(_product, (first, third), _MULTIPLIERS), strict=True)
        left, right = (np.uint64((word + turn * weyl) % 2**64) for word, weyl in zip(key, _WEYL, strict=True))
        first, second, third, fourth = high[1] ^ second ^ left, low[1], high[0] ^ fourth ^ right, low[0]
    return first


def _product(words: Words, factor: int) -> tuple[Words, Words]:
    """Return the upper and the lower 64 bits of products."""
    high, low = words >> _HALF, words & _LOWER
    above, below = np.uint64(factor >> 32), np.uint64(factor % 2**32)
    middle = high * below + (low * below >> _HALF)
    other = low * above + (middle & _LOWER)
    return high * above + (middle >> _HALF) + (other >> _HALF), words * np.uint64(factor)


def hiding(purpose: str, numbers: npt.NDArray[np.float64]) -> str:
    """Return the purpose of noise that hides these numbers: equal numbers receive equal noise, other numbers other noise.

    If two different values had the same noise, the difference of their releases would remove it. The numbers are whole
    multiples of the release's rounding, so the last bits of a sum do not matter.
    """
    exact = np.ascontiguousarray(numbers, dtype="<f8") + 0.0  # minus zero has other bits than zero
    return f"{purpose} {blake2b(exact.tobytes(), digest_size=16).hexdigest()}"


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes four times as long to make
class Streams:
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
        """Return the generator for one purpose; a second call starts the same stream again."""
        # A name that is not put together knows its hash.
        word = _word(self.scope + purpose if self.scope else purpose)
        counter = np.array([0, self.step, self.owner + 2, word], dtype=np.uint64)
        key: Any = _key(self.seed, self.replicate)  # NumPy takes any seed sequence, its stubs only its own
        return np.random.Generator(np.random.Philox(key, counter=counter))

    def block(
        self, purpose: str, first: int, draw: Callable[[np.random.Generator], npt.NDArray[np.float64]]
    ) -> npt.NDArray[np.float64]:
        """Return the numbers `first`, `first` + 1, … of one purpose; `draw` makes them with the purpose's generator."""
        return draw(self.rng(purpose))

    def times(
        self, purpose: str, draw: Callable[[np.random.Generator], Iterator[float]], memoryless: bool = True
    ) -> Iterator[float]:
        """Return the ascending times of one purpose; `draw` makes them with the purpose's generator.

        With `memoryless`, what follows a moment depends on the past only by whether the number of times so far is even.
        """
        return draw(self.rng(purpose))

    def uniforms(self, owners: npt.NDArray[np.int64], purpose: str) -> npt.NDArray[np.float64]:
        """Return the first uniform number of each owner's generator for one purpose."""
        if len(owners) < _FEW:
            return np.array([self.of(owner).rng(purpose).random() for owner in owners.tolist()])
        counter = [np.full(len(owners), word, dtype=np.uint64) for word in (1, self.step, 0, _word(self.scope + purpose))]
        counter[2] = (owners + 2).astype(np.uint64)
        words = _philox(counter, self.seed, self.replicate)
        return np.asarray((words >> np.uint64(11)) * 2.0**-53, dtype=np.float64)

    def shared(self, purpose: str) -> np.random.Generator:
        """Return the generator that every agent of this replicate obtains for this purpose, at any step."""
        return Streams(self.seed, self.replicate, scope=self.scope).rng(purpose)

    def at(self, step: int) -> Streams:
        """Return the same owner's streams at another step."""
        return Streams(self.seed, self.replicate, self.owner, step, self.scope)

    def of(self, owner: int) -> Streams:
        """Return another owner's streams at the same step."""
        return Streams(self.seed, self.replicate, owner, self.step, self.scope)

    def within(self, scope: str) -> Streams:
        """Return the same owner's streams for another task."""
        return Streams(self.seed, self.replicate, self.owner, self.step, scope)


def _generators(streams: Sequence[Streams], purpose: str) -> Iterator[np.random.Generator]:
    """Yield the generator of each stream; the streams differ in owners and steps only, and each generator ends with the next.

    It is one generator with a new state, which needs a third of the time of a new generator.
    """
    if len(streams) == 1 or type(streams[0]) is not Streams:  # to read a state takes as long as to make a generator
        yield from (each.rng(purpose) for each in streams)
        return
    generator = streams[0].rng(purpose)
    bits: Any = generator.bit_generator
    begun = bits.state
    counter = begun["state"]["counter"]
    for each in streams:
        counter[1], counter[2] = each.step, each.owner + 2
        bits.state = begun
        yield generator


def uniforms(streams: Sequence[Streams], purpose: str) -> list[float]:
    """Return the first uniform number of each of these streams, which differ in owners and steps only."""
    return [generator.random() for generator in _generators(streams, purpose)]


def normals(streams: Sequence[Streams], purpose: str, counts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the first `counts` normal numbers of each of these streams, which differ in owners and steps only."""
    found, at = np.empty(sum(counts)), 0
    for generator, count in zip(_generators(streams, purpose), counts, strict=True):
        generator.standard_normal(out=found[at : at + count])
        at += count
    return found
