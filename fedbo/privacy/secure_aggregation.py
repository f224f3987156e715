"""Secure aggregation (Bonawitz et al. 2017): the coordinator learns the sum of a round's messages, but no single one.

The agents of a round, its cohort, agree on pairwise keys. Each deals shares of two secrets to all: of its part in these keys,
and of a seed of its own. A message is a vector in fixed point modulo 2^bits. Its sender adds a mask from each key, with
opposite signs within a pair so that they cancel, and one from its own seed. The coordinator says who has sent; the senders
confirm to each other that all heard the same, and give shares of the seeds of all senders and of the keys of all other agents.
`needed` shares reconstruct a secret. The sum without these masks is the sum of the messages.

Fixed point, masks, shares and the bytes of messages are those of real sites, too. A simulation carries them out with keys far
too short for real data: it draws all secrets from one source anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import shake_256
from math import ceil
from typing import Annotated, NamedTuple, Protocol

import numpy as np
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.base import Algorithm, Array, Mechanism, Private, Problem
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.privacy.mask_sizes import MessageSizes, Unmasking
from fedbo.privacy.noise import NoiseSource
from fedbo.privacy.secret_sharing import LIMBS, SECRET, Words, dealt, from_limbs, polynomials, rejoined, to_limbs
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import check

PRIME, GENERATOR = 2**127 - 1, 3  # of the group in which simulated agents agree on keys


@dataclass(frozen=True, slots=True)
class SecureAggregation:
    """Secure aggregation of messages in fixed point: numbers of `bits` bits, `fraction` of them behind the binary point.

    Numbers are rounded towards 0, which lengthens no message, and cut off where the sum of the whole cohort could leave the
    range. A round has no sum if fewer than the share `threshold` of its cohort, or than the `least_cohort`, can unmask it.
    """

    threshold: Annotated[float, Gt(0.5), Le(1)] = 0.66
    """Share of a cohort that unmasks its sum, see secure_aggregation."""
    bits: Annotated[int, Ge(16), Le(64)] = 40
    """Bits of a fixed-point number; sums are modulo 2^bits."""
    fraction: Annotated[int, Ge(0), Le(52)] = 24
    """Bits behind the binary point; at most bits - 8."""

    def __post_init__(self) -> None:
        check(self)
        if self.fraction > self.bits - 8:
            raise SettingError("fraction", f"must be at most bits - 8 = {self.bits - 8}", self.fraction)

    def needed(self, cohort: float) -> int:
        """Return how many of so many agents must send shares; at least 2, since the sum of one message is that message."""
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

    def packed(self, words: Words) -> bytes:
        """Write words `(L,)` with `bits` bits each, without gaps."""
        bits = np.unpackbits(words.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        return np.packbits(bits[:, : self.bits], bitorder="little").tobytes()

    def unpacked(self, data: bytes, length: int) -> Words:
        """Read words `(length,)` that `packed` has written."""
        bits = np.zeros((length, 64), dtype=np.uint8)
        flat = np.unpackbits(np.frombuffer(data, np.uint8), count=length * self.bits, bitorder="little")
        bits[:, : self.bits] = flat.reshape(length, self.bits)
        return np.packbits(bits, axis=1, bitorder="little").view("<u8").ravel().astype(np.uint64)

    def added_bytes(self, mechanism: Mechanism, length: int, agents: int) -> tuple[int, int]:
        """Return the bytes that masks add to a message of `length` numbers, and to an answer.

        The cohort is the sampled share of all `agents`. A message has keys, shares for all others, and the masked vector for
        each block in place of the plain one. An answer has the next cohort, all keys, and shares from all others.
        """
        sizes = MessageSizes(max(1, round(mechanism.share * agents)))
        masked = sizes.masked(mechanism.blocks * length, self.bits)
        return sizes.setup_up + masked - 8 * length, sizes.setup_down

    @property
    def _all_bits(self) -> np.uint64:
        return np.uint64(2**self.bits - 1)


class SiteSums(Protocol):
    """Real sites, which mask their messages themselves; a call that is repeated after a restart has the same result."""

    def open(self, release: int, cohort: Sequence[int]) -> None:
        """Start the agreement of a release's cohort on its masks."""

    def unmask(self, release: int, arrived: Sequence[int]) -> Unmasking:
        """Wait for the sum of a release, whose senders are among those that have `arrived`."""


class Secrets(NamedTuple):
    """The secrets of a cohort, `keys` and `seeds`, each of `SECRET` bytes, in its order."""

    keys: list[bytes]
    seeds: list[bytes]


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


def least_cohort(settings: SecureAggregation, algorithm: Private, problem: Problem, exchange: Exchange) -> int:
    """Return how many agents a cohort has at least, all of whom are then needed: it follows from the terms of the study alone.

    It is the share `threshold` of the agents that a round asks, as Bonawitz et al. 2017 fix it before anybody is there. If it
    followed from the cohort, whoever chooses a cohort of two reads the message of one of them with the help of the other.
    """
    asked = algorithm.mechanism(problem).share * len(problem.targets)
    return settings.needed(min(asked, getattr(exchange, "k", None) or asked))


def contributions(messages: Array, factors: Array) -> Array:
    """Return what agents add to a sum of P blocks `(n, P M)`: messages `(n, M)` by their `factors (P, n)`, block by block."""
    return (factors.T[:, :, None] * messages[:, None, :]).reshape(len(messages), -1)


def expanded(secret: bytes, length: int) -> Words:
    """Expand a secret to a mask `(length,)`."""
    return np.frombuffer(shake_256(secret).digest(8 * length), "<u8").astype(np.uint64, copy=False)


def signed(mask: Words, own: int, other: int) -> Words:
    """Return a pair's mask with the sign by which the agent at place `own` adds it; the one at `other` adds its opposite."""
    return mask if own < other else np.uint64(0) - mask


def unmasked(sent: Mapping[int, Words], seeds: Mapping[int, bytes], agreed: Mapping[tuple[int, int], bytes]) -> Words:
    """Return the sum of the sent vectors, by place, without its masks.

    `seeds` are those of the senders; `agreed` is what each pair of a sender and of an agent that has not sent agreed on.
    """
    total: Words = np.sum(list(sent.values()), axis=0, dtype=np.uint64)
    for place in sent:
        total = total - expanded(seeds[place], len(total))
    for (sender, other), secret in agreed.items():
        total = total - signed(expanded(secret, len(total)), sender, other)
    return total


def draw_secrets(source: NoiseSource, release: int, cohort: Sequence[int]) -> Secrets:
    """Draw the secrets of a simulated round; an agent's own do not depend on the rest of the cohort."""
    drawn = [source.words(f"secrets of agent {agent}", release, 2 * SECRET // 8).tobytes() for agent in cohort]
    return Secrets([both[:SECRET] for both in drawn], [both[SECRET:] for both in drawn])


def masked(vectors: Mapping[int, Words], secrets: Secrets) -> dict[int, Words]:
    """Mask the vectors `(L,)` of the senders of a simulated round, keyed by their places in the cohort."""
    public = [_public(key) for key in secrets.keys]
    sent = {place: vector + expanded(secrets.seeds[place], len(vector)) for place, vector in vectors.items()}
    for place in sent:
        for other in range(len(public)):
            # A pair of whom both send agrees on one key: it is computed once, and added with either sign.
            if other == place or (other in sent and other < place):
                continue
            mask = expanded(_agreed(secrets.keys[place], public[other]), len(sent[place]))
            sent[place] = sent[place] + signed(mask, place, other)
            if other in sent:
                sent[other] = sent[other] + signed(mask, other, place)
    return sent


def secure_sum(
    settings: SecureAggregation, vectors: Mapping[int, Words], unmasking: Unmasking, source: NoiseSource, release: int
) -> Words:
    """Simulate a round: return the sum of the vectors, by agent, as the coordinator learns it."""
    place = {agent: number for number, agent in enumerate(unmasking.cohort)}
    secrets = draw_secrets(source, release, unmasking.cohort)
    sent = masked({place[agent]: vector for agent, vector in vectors.items()}, secrets)
    # Of the shares that were dealt, those alone are computed that are asked for.
    asked = to_limbs([secrets.seeds[n] if n in sent else secrets.keys[n] for n in place.values()])
    words = source.words("shares", release, (unmasking.needed - 1) * len(place) * LIMBS)
    points = np.array([place[agent] + 1 for agent in unmasking.answering[: unmasking.needed]])
    recovered = from_limbs(rejoined(dealt(asked, polynomials(words, unmasking.needed), points), points))
    public = [_public(key) for key in secrets.keys]
    gone = [other for other in place.values() if other not in sent]
    agreed = {(sender, other): _agreed(recovered[other], public[sender]) for other in gone for sender in sent}
    return settings.plain_sum([unmasked(sent, {sender: recovered[sender] for sender in sent}, agreed)])


def _public(key: bytes) -> int:
    return pow(GENERATOR, int.from_bytes(key, "little"), PRIME)


def _agreed(key: bytes, public: int) -> bytes:
    return pow(public, int.from_bytes(key, "little"), PRIME).to_bytes(SECRET, "little")
