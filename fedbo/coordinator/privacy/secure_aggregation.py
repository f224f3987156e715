"""Simulated secure aggregation (Bonawitz et al. 2017): the coordinator learns the sum of a round's messages, but no single one.

The agents of a round, its cohort, agree on pairwise keys. Each deals shares of two secrets to all: of its part in these keys,
and of a seed of its own. A message is a vector in fixed point modulo 2^bits. Its sender adds a mask from each key, with
opposite signs within a pair so that they cancel, and one from its own seed. The coordinator asks the senders for shares of the
seeds of all senders, and of the keys of all other agents; `needed` shares reconstruct a secret. The sum without these masks is
the sum of the messages.

The arithmetic is carried out, with keys far too short for real data: a simulation draws all secrets from one source anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import shake_256
from math import ceil
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.base import Algorithm, Array, Mechanism, Private, Problem
from fedbo.coordinator.exchange import Exchange
from fedbo.coordinator.privacy.noise import NoiseSource
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import check

Words = npt.NDArray[np.uint64]
Limbs = npt.NDArray[np.int64]

PRIME, GENERATOR = 2**127 - 1, 3  # of the group in which keys are agreed on
FIELD = 2**31 - 1  # of the shares: products of two numbers below it are exact in 64 bits
LIMBS, LIMB_BITS = 4, 30  # a secret is so many numbers below FIELD
KEY, SHARE, TAG = 32, 32, 16  # bytes of a public key, of a share of a secret and of what authenticates a message, in real use


@dataclass(frozen=True, slots=True)
class SecureAggregation:
    """Secure aggregation of messages in fixed point: numbers of `bits` bits, `fraction` of them behind the binary point.

    Numbers are rounded towards 0, which lengthens no message, and cut off where the sum of the whole cohort could leave the
    range. A round has no sum if fewer than the share `threshold` of its cohort, or fewer than two agents, can unmask it.
    """

    threshold: Annotated[float, Gt(0.5), Le(1)] = 0.66
    """Share of a cohort that is needed to unmask its sum."""
    bits: Annotated[int, Ge(16), Le(64)] = 40
    """Bits of a fixed-point number; sums are modulo 2^bits."""
    fraction: Annotated[int, Ge(0), Le(52)] = 24
    """Bits behind the binary point; at most bits - 8."""

    def __post_init__(self) -> None:
        check(self)
        if self.fraction > self.bits - 8:
            raise SettingError("fraction", f"must be at most bits - 8 = {self.bits - 8}", self.fraction)

    def needed(self, cohort: int) -> int:
        """Return how many of a cohort must send shares; at least 2, since the sum of one message is that message."""
        return max(2, ceil(self.threshold * cohort - 1e-9))

    def to_fixed(self, values: Array, cohort: int) -> Words:
        """Write numbers in fixed point, such that the sum over a cohort stays in range."""
        # 2^bit_length exceeds the cohort, so the sum of all its messages stays in the signed range.
        most = 2.0 ** (self.bits - 1 - cohort.bit_length())
        with np.errstate(over="ignore"):  # a damaged message may hold any number
            whole = np.clip(np.trunc(np.ldexp(values, self.fraction)), -most, most)
        return whole.astype(np.int64).astype(np.uint64) & self._all_bits

    def from_fixed(self, words: Words) -> Array:
        """Read numbers in fixed point."""
        unused = 64 - self.bits
        signed = (words << np.uint64(unused)).astype(np.int64) >> np.int64(unused)
        return np.asarray(np.ldexp(signed.astype(np.float64), -self.fraction))

    def plain_sum(self, vectors: Sequence[Words]) -> Words:
        """Return the sum of unmasked vectors."""
        return np.asarray(np.sum(vectors, axis=0, dtype=np.uint64) & self._all_bits)

    def added_bytes(self, mechanism: Mechanism, length: int, agents: int) -> tuple[int, int]:
        """Return the bytes that masks add to a message of `length` numbers, and to an answer.

        The cohort is the sampled share of all `agents`. A message has keys, shares for all others, and the masked vector for
        each block in place of the plain one. An answer has all keys, shares from all others, and the list of senders.
        """
        n = max(1, round(mechanism.share * agents))
        dealt = (n - 1) * (2 * SHARE + TAG)
        masked = ceil(mechanism.blocks * length * self.bits / 8)
        return 2 * KEY + dealt + masked - 8 * length, 2 * KEY * n + dealt + ceil(n / 8)

    @property
    def _all_bits(self) -> np.uint64:
        return np.uint64(2**self.bits - 1)


class Unmasking(NamedTuple):
    """How a round is unmasked: its cohort, the senders that return their shares, and the number needed."""

    cohort: list[int]
    answering: list[int]
    needed: int

    @property
    def has_failed(self) -> bool:
        """Check whether there are too few."""
        return len(self.answering) < self.needed

    @property
    def bytes(self) -> int:
        """Count the bytes of the shares: each answering agent sends one for each agent of the cohort."""
        return SHARE * len(self.answering) * len(self.cohort)


class Secrets(NamedTuple):
    """The secrets of a cohort, `keys` and `seeds`, each `(n, LIMBS)` in its order."""

    keys: Limbs
    seeds: Limbs


def why_not_masked(algorithm: Algorithm, problem: Problem, exchange: Exchange) -> str:
    """Return why the messages of an algorithm cannot be masked, with a remedy; empty if they can, or if there are none.

    Only messages that are declared to be summed can: they pass a `Mechanism`.
    """
    if algorithm.upload(problem) is None:
        return ""
    if not isinstance(algorithm, Private):
        return "does not only sum messages; use fts_de, dp_fts or dp_fts_de"
    if not exchange.is_synchronous:
        return f"has no rounds under '{exchange.mode}'; use mode = \"barrier\", or another mode with rounds"
    if algorithm.mechanism(problem).quantile is not None:
        return "requires the norms for its quantile, which are masked; remove the quantile"
    if problem.n_agents < 2:
        return "has a single agent, whose message equals the sum; use more agents"
    return ""


def draw_secrets(source: NoiseSource, release: int, cohort: Sequence[int]) -> Secrets:
    """Draw the secrets of a round; an agent's own do not depend on the rest of the cohort."""
    words = [source.words(f"secrets of agent {agent}", release, 2 * LIMBS) for agent in cohort]
    limbs = (np.array(words).reshape(len(cohort), 2, LIMBS) & np.uint64(2**LIMB_BITS - 1)).astype(np.int64)
    return Secrets(limbs[:, 0], limbs[:, 1])


def masked(vectors: Mapping[int, Words], secrets: Secrets) -> dict[int, Words]:
    """Mask the vectors `(L,)` of the senders, keyed by their places in the cohort."""
    keys = [_number(limbs) for limbs in secrets.keys]
    public = [pow(GENERATOR, key, PRIME) for key in keys]
    sent = {place: vector + _mask(_number(secrets.seeds[place]), len(vector)) for place, vector in vectors.items()}
    for place in sent:
        for other in range(len(keys)):
            # A pair of whom both send agrees on one key: it is computed once, and added with either sign.
            if other == place or (other in sent and other < place):
                continue
            mask = _mask(pow(public[other], keys[place], PRIME), len(sent[place]))
            sent[place] = sent[place] + _signed(mask, place < other)
            if other in sent:
                sent[other] = sent[other] + _signed(mask, other < place)
    return sent


def unmasked(sent: Mapping[int, Words], public: Sequence[int], recovered: Limbs) -> Words:
    """Return the sum of the sent vectors without its masks, from the `recovered` seeds of senders and keys of the others."""
    total: Words = np.sum(list(sent.values()), axis=0, dtype=np.uint64)
    for place, limbs in enumerate(recovered):
        if place in sent:
            total = total - _mask(_number(limbs), len(total))
            continue
        for other in sent:
            mask = _mask(pow(public[other], _number(limbs), PRIME), len(total))
            total = total - _signed(mask, other < place)
    return total


def dealt(secrets: Limbs, coefficients: Limbs, points: Limbs) -> Limbs:
    """Return shares `(h, n, LIMBS)` at `points (h,)` of secrets `(n, LIMBS)` (Shamir 1979), from `(needed - 1, n, LIMBS)`."""
    shares = np.zeros((len(points), *secrets.shape), dtype=np.int64)
    # Horner's rule for polynomials whose constant terms are the secrets.
    for row in (*coefficients[::-1], secrets):
        shares = (shares * points[:, None, None] + row) % FIELD
    return shares


def rejoined(shares: Limbs, points: Limbs) -> Limbs:
    """Return the secrets `(n, LIMBS)` from `needed` of their shares `(h, n, LIMBS)`, by interpolation at 0."""
    known, total = [int(point) for point in points], np.zeros(shares.shape[1:], dtype=np.int64)
    for point, share in zip(known, shares, strict=True):
        above, below = 1, 1
        for other in known:
            if other != point:
                above, below = above * other % FIELD, below * (other - point) % FIELD
        # The Lagrange coefficient of this point at 0, modulo FIELD.
        total = (total + share * (above * pow(below, -1, FIELD) % FIELD)) % FIELD
    return total


def secure_sum(
    settings: SecureAggregation, vectors: Mapping[int, Words], unmasking: Unmasking, source: NoiseSource, release: int
) -> Words:
    """Carry out a round: return the sum of the vectors, by agent, as the coordinator learns it."""
    place = {agent: number for number, agent in enumerate(unmasking.cohort)}
    secrets = draw_secrets(source, release, unmasking.cohort)
    sent = masked({place[agent]: vector for agent, vector in vectors.items()}, secrets)
    public = [pow(GENERATOR, _number(limbs), PRIME) for limbs in secrets.keys]
    # Of the shares that were dealt, those alone are computed that are asked for.
    asked = np.array([secrets.seeds[n] if n in sent else secrets.keys[n] for n in range(len(place))])
    count = (unmasking.needed - 1) * asked.size
    words = source.words("shares", release, count) % np.uint64(FIELD)
    points = np.array([place[agent] + 1 for agent in unmasking.answering[: unmasking.needed]])
    shares = dealt(asked, words.astype(np.int64).reshape(unmasking.needed - 1, *asked.shape), points)
    return settings.plain_sum([unmasked(sent, public, rejoined(shares, points))])


def _signed(mask: Words, plus: bool) -> Words:
    return mask if plus else np.uint64(0) - mask


def _number(limbs: Limbs) -> int:
    return sum(int(limb) << (LIMB_BITS * place) for place, limb in enumerate(limbs)) + 2


def _mask(seed: int, length: int) -> Words:
    """Expand a seed to words `(length,)`."""
    return np.frombuffer(shake_256(seed.to_bytes(16, "little")).digest(8 * length), np.uint64)
