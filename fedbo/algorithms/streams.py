"""Random streams keyed by their purpose, so that no event changes the draws of another agent.

Every generator is a `numpy.random.Philox`. Its key is (study seed, replicate), and its counter starts at (0, step, owner,
purpose). Two draws share a stream only if all five agree; a stream has 2**66 words before it reaches its neighbour. The order
of arrival, the packing of agents into processes, and the algorithm under comparison do not enter. A crash, a resume or another
policy therefore leaves every other draw as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

Numbers = npt.NDArray[np.int64]
GoesOn = Callable[[np.random.Generator, Sequence[float], float], Iterator[float]] | None
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


@lru_cache(maxsize=256)
def _words(seed: int, replicate: int, purpose: str) -> tuple[np.uint64, ...]:
    return np.uint64(seed), np.uint64(replicate), np.uint64(_word(purpose))


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

    def uniform(self, purpose: str) -> float:
        """Return the first uniform number of one purpose."""
        if type(self) is not Streams or "numba" not in sys.modules:  # some streams may be replaced, and an import takes longer
            return float(self.rng(purpose).random())
        words = _words(self.seed, self.replicate, self.scope + purpose)
        return float(_compiled().uniform(words, self.owner, self.step))

    def block(
        self, purpose: str, first: int, draw: Callable[[np.random.Generator], npt.NDArray[np.float64]]
    ) -> npt.NDArray[np.float64]:
        """Return the numbers `first`, `first` + 1, … of one purpose; `draw` makes them with the purpose's generator."""
        return draw(self.rng(purpose))

    def times(
        self,
        purpose: str,
        draw: Callable[[np.random.Generator], Iterator[float]],
        memoryless: bool = True,
        goes_on: GoesOn = None,
    ) -> Iterator[float]:
        """Return the ascending times of one purpose; `draw` makes them with the purpose's generator.

        With `memoryless`, what follows a moment depends on the past only by whether the number of times so far is even. With
        `goes_on`, it is what this makes with a generator, the past and the moment.
        """
        return draw(self.rng(purpose))

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

    def each(self, owners: Numbers, steps: Numbers) -> StreamBlock:
        """Return the streams of several owners, each at its own step."""
        return StreamBlock(self, owners, steps)


@dataclass(slots=True)
class StreamBlock:
    """The streams of `owners (k,)` at `steps (k,)`, which have all else in common with `of`; each draws what it draws alone."""

    of: Streams
    owners: Numbers
    steps: Numbers

    def __getitem__(self, places: npt.NDArray[Any]) -> StreamBlock:
        """Return the streams at some places, given by number or by a mask."""
        return StreamBlock(self.of, self.owners[places], self.steps[places])

    def __iter__(self) -> Iterator[Streams]:
        """Return the streams one by one."""
        for owner, step in zip(self.owners.tolist(), self.steps.tolist(), strict=True):
            yield self.of.of(owner).at(step)

    def uniforms(self, purpose: str, counts: Numbers | None = None) -> npt.NDArray[np.float64]:
        """Return the first uniform number of each stream for one purpose, or the first `counts (k,)`, stream after stream."""
        return self._numbers(purpose, counts, normal=False)

    def normals(self, purpose: str, counts: Numbers | None = None) -> npt.NDArray[np.float64]:
        """Return normal numbers as `uniforms` does uniform ones."""
        return self._numbers(purpose, counts, normal=True)

    def key(self, purpose: str) -> tuple[np.uint64, ...] | None:
        """Return what compiled routines need to draw for one purpose; None where they must not, or would take longer."""
        few = 0 if "numba" in sys.modules else 64  # the import of the compiled routines takes its time, too
        if type(self.of) is not Streams or len(self.owners) < few:  # some streams may be replaced
            return None
        return _words(self.of.seed, self.of.replicate, self.of.scope + purpose)

    def _numbers(self, purpose: str, counts: Numbers | None, normal: bool) -> npt.NDArray[np.float64]:
        counts = np.ones(len(self.owners), np.int64) if counts is None else counts
        key = self.key(purpose)
        if key is None:
            drawn = [each.rng(purpose) for each in self]
            parts = [one.standard_normal(n) if normal else one.random(n) for one, n in zip(drawn, counts.tolist(), strict=True)]
            return np.concatenate([np.empty(0), *parts])
        found = np.empty(counts.sum())
        _compiled().numbers(key, self.owners, self.steps, counts, normal, found)
        return found


@cache
def _compiled() -> Any:
    """Import the compiled routines where they are needed, which takes half a second the first time."""
    from fedbo.surrogates.compiled import philox

    return philox
