"""Sources of private noise and of the coins of sampling: the study's seed, or a secret key independent of any seed."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import DamagedError
from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams, hiding

KEY_BYTES = 32


class NoiseSource(Protocol):
    """Draws by purpose and number, and for noise by the numbers it hides; a repeated call returns the same draws."""

    def uniform(self, purpose: str, number: int, shape: tuple[int, ...]) -> Array:
        """Return numbers from U(0, 1)."""

    def normal(self, purpose: str, number: int, hidden: Array) -> Array:
        """Return numbers from N(0, 1), one for each hidden number; other hidden numbers have other noise."""

    def words(self, purpose: str, number: int, count: int) -> npt.NDArray[np.uint64]:
        """Return words of 64 random bits."""


@dataclass(frozen=True, slots=True)
class Seeded:
    """Draws that anyone with the study's seed can repeat: right for simulations, no protection of real data."""

    streams: Streams

    def uniform(self, purpose: str, number: int, shape: tuple[int, ...]) -> Array:
        """Return numbers from U(0, 1)."""
        return self.streams.at(number).rng(purpose).random(shape)

    def normal(self, purpose: str, number: int, hidden: Array) -> Array:
        """Return numbers from N(0, 1), one for each hidden number."""
        return self.streams.at(number).rng(hiding(purpose, hidden)).standard_normal(hidden.shape)

    def words(self, purpose: str, number: int, count: int) -> npt.NDArray[np.uint64]:
        """Return words of 64 random bits."""
        return np.frombuffer(self.streams.at(number).rng(purpose).bytes(8 * count), np.uint64)


@dataclass(frozen=True, slots=True)
class Secure:
    """Draws from SHAKE-256, keyed with a secret: without the key they are indistinguishable from chance.

    A resumed run has the same key and so repeats its releases: fresh noise on an earlier release would reveal more than the
    ledger states. A release that is repeated with another sum has other noise: subtracting two releases with the same noise
    would reveal the difference of their sums.
    """

    key: bytes

    def uniform(self, purpose: str, number: int, shape: tuple[int, ...]) -> Array:
        """Return numbers from U(0, 1), at 53 bits, without 0 and 1."""
        words = self.words(purpose, number, math.prod(shape)) >> np.uint64(11)
        return np.asarray((words.astype(np.float64) + 0.5) * 2.0**-53).reshape(shape)

    def normal(self, purpose: str, number: int, hidden: Array) -> Array:
        """Return numbers from N(0, 1), one for each hidden number, by inversion of the distribution function."""
        return np.asarray(scipy.special.ndtri(self.uniform(hiding(purpose, hidden), number, hidden.shape)))

    def words(self, purpose: str, number: int, count: int) -> npt.NDArray[np.uint64]:
        """Return words of 64 random bits."""
        return np.frombuffer(hashlib.shake_256(self.key + f"{number}/{purpose}".encode()).digest(8 * count), np.uint64)


def secret_key(path: Path) -> bytes:
    """Read the key of a run, or create one that only this user can read; a key is on disk before anything depends on it."""
    if not path.exists():
        atomic.write(path, lambda file: file.write(os.urandom(KEY_BYTES)), new=True, mode=0o600)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise DamagedError(path, f"it has {len(key)} bytes, not {KEY_BYTES}")
    return key
