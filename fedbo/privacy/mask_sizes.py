"""The bytes of the messages of a round of secure aggregation: real sites send such messages, and a simulation counts them."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from fedbo.privacy.secret_sharing import SHARE, Words

KEY, SIGNATURE, TAG = 32, 64, 16  # bytes of a public key, of a signature, and of what authenticates an encrypted message
PAIR, HEADER = 2 * SHARE + TAG, 14  # bytes of the encrypted shares for one agent, and of the beginning of each message


class MessageSizes(NamedTuple):
    """The bytes of messages in a cohort of so many agents, of whom `k` still take part."""

    cohort: int

    @property
    def members(self) -> int:
        """Count the bytes of a list of some of the cohort: one bit for each of it."""
        return ceil(self.cohort / 8)

    @property
    def opening(self) -> int:
        """Count the bytes by which the coordinator opens a round: the numbers of the cohort, and the keys of their sites."""
        return HEADER + (4 + KEY) * self.cohort

    @property
    def advert(self) -> int:
        """Count the bytes of an agent's two public keys, signed."""
        return HEADER + 2 * KEY + SIGNATURE

    def keys(self, k: int) -> int:
        """Count the bytes of the keys of k agents, which the coordinator passes on."""
        return HEADER + self.members + k * (2 * KEY + SIGNATURE)

    def dealt(self, k: int) -> int:
        """Count the bytes of the encrypted shares that an agent deals to the k - 1 others."""
        return HEADER + (k - 1) * PAIR

    def delivered(self, k: int) -> int:
        """Count the bytes of the encrypted shares that the k - 1 others have dealt to an agent."""
        return HEADER + self.members + (k - 1) * PAIR

    def masked(self, length: int, bits: int) -> int:
        """Count the bytes of a masked vector of `length` numbers."""
        return HEADER + ceil(length * bits / 8)

    @property
    def senders(self) -> int:
        """Count the bytes by which the coordinator says who has sent."""
        return HEADER + self.members

    @property
    def confirmation(self) -> int:
        """Count the bytes of a signature under the list of those who have sent."""
        return HEADER + SIGNATURE

    def confirmations(self, k: int) -> int:
        """Count the bytes of k confirmations, which the coordinator passes on."""
        return HEADER + self.members + k * SIGNATURE

    def shares(self, k: int) -> int:
        """Count the bytes of the shares that an agent gives to unmask: one for each of k agents."""
        return HEADER + k * SHARE

    @property
    def setup_up(self) -> int:
        """Count the bytes that an agent sends before its masked vector, where all take part."""
        return self.advert + self.dealt(self.cohort)

    @property
    def setup_down(self) -> int:
        """Count the bytes that an agent receives before it sends its masked vector, where all take part."""
        return self.opening + self.keys(self.cohort) + self.delivered(self.cohort)


class Unmasking(NamedTuple):
    """How a round is unmasked: its cohort, who of it has sent, the senders that answer, and the number needed.

    `total` is the sum that real sites have unmasked; None where it is simulated, or has failed.
    """

    cohort: list[int]
    sent: list[int]
    answering: list[int]
    needed: int
    total: Words | None = None

    @property
    def has_failed(self) -> bool:
        """Check whether there are too few."""
        return len(self.answering) < self.needed

    @property
    def steps(self) -> list[int]:
        """Count the bytes of an answering agent in each step: it confirms who has sent and, if enough do, gives its shares."""
        sizes, n = MessageSizes(len(self.cohort)), len(self.cohort)
        confirmed, shares = sizes.senders + sizes.confirmation, sizes.confirmations(len(self.answering)) + sizes.shares(n)
        return [confirmed] if self.has_failed else [confirmed, shares]

    @property
    def bytes(self) -> int:
        """Count the bytes of all steps, and of the keys and shares of agents that then sent no message."""
        sizes, silent = MessageSizes(len(self.cohort)), len(self.cohort) - len(self.sent)
        unheard = len(self.sent) - len(self.answering)  # these are told who has sent, and do not answer
        setup = sizes.setup_up + sizes.setup_down
        return sum(self.steps) * len(self.answering) + sizes.senders * unheard + setup * silent
