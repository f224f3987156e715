"""A site's half of secure aggregation (Bonawitz et al. 2017), as a state machine without input or output: bytes in, bytes out.

| phase | a site sends | the coordinator answers, once it ends the phase |
|---|---|---|
| advertise | two public keys of this round, signed by the key of the site | the keys of all that have advertised |
| share | shares of its two secrets, encrypted for each of these | the shares for each site, from all that have dealt |
| mask | its masked vector | who has sent |
| confirm | its signature under who has dealt and who has sent | the signatures |
| unmask | a share of the seed of each sender, and of the key of each other | nothing: it computes the sum |

A site that does not answer in time has dropped out. A round that fewer than `needed` agents finish has no sum. All sides are
taken to follow the protocol, but to be curious. A lying coordinator learns no more than one sum of at least `needed` messages:
a site refuses every message by which it could learn more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedbo.privacy.mask_sizes import KEY, PAIR, SIGNATURE, MessageSizes
from fedbo.privacy.secret_sharing import LIMBS, SECRET, Limbs, Words, dealt, polynomials, share_bytes, to_limbs
from fedbo.privacy.secure_aggregation import expanded, signed
from fedbo.sites.keys import PrivateKey
from fedbo.sites.mask_messages import (
    ADVERT,
    MaskingError,
    MaskStep,
    MaskTerms,
    advert_text,
    agreed,
    check_advert,
    check_confirmation,
    confirmation_text,
    context_of,
    head,
    key_of,
    listed,
    message,
    pair_secret,
    public_of,
    read_list,
    read_opening,
    sealed,
    shares_in,
    unsealed,
    way,
)


class SiteRound:
    """The part of one site in one round. Its secrets are in memory only: a site that starts again has dropped out.

    - `opened_by`: the coordinator's message that opens the round, whose keys `sites` has.
    - `last`: the number of the last round that this site took part in, from its disk. No round is opened twice.
    - `entropy`: returns so many random bytes.

    A site must not mask one message in two rounds: the difference of their sums could be that message.
    """

    def __init__(
        self,
        terms: MaskTerms,
        agent: int,
        key: PrivateKey,
        opened_by: bytes,
        last: int = -1,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.number, receiver, self.sites = read_opening(opened_by, terms)
        self.cohort = list(self.sites)
        if receiver != agent or agent not in self.cohort:
            raise MaskingError(f"round {self.number} was opened for agent {receiver}, but this site has agent {agent}")
        if self.sites[agent] != key.public:
            raise MaskingError(f"round {self.number} was opened with another key for agent {agent} than that of this site")
        if self.number <= last:
            raise MaskingError(f"round {self.number} is opened a second time: the last one was round {last}")
        self.agent, self.place = agent, self.cohort.index(agent)
        self.needed = terms.needed(len(self.cohort))
        if self.needed > len(self.cohort):
            words = (
                f"was opened for {len(self.cohort)} agents, but a round has at least {self.needed} by the terms of the study"
            )
            raise MaskingError(f"round {self.number} {words}")
        self._terms, self._key, self._entropy = terms, key, entropy
        self._sizes, self._n = MessageSizes(len(self.cohort)), len(self.cohort)
        self._secrets = [entropy(SECRET), entropy(SECRET)]  # of its part in the pairwise keys, and its seed
        self._pairwise, self._channel = key_of(self._secrets[0]), key_of(entropy(SECRET))
        self._keys = dict[int, bytes]()  # both keys of all that have advertised, by place
        self._held = dict[int, Limbs]()  # shares of key and seed `(2, LIMBS)` of all that have dealt, by place
        self._incoming = dict[int, bytes]()  # what encrypts the shares from each place
        self._senders, self._lists, self._context = list[int](), b"", b""
        self._expects: MaskStep | None = MaskStep.KEYS
        self._answered = dict[MaskStep, tuple[bytes, bytes]]()

    def advert(self) -> bytes:
        """Return the message of the phase `advertise`."""
        keys = public_of(self._pairwise) + public_of(self._channel)
        signature = self._key.sign(advert_text(self._terms, self.number, self.sites, self.agent, keys))
        return message(MaskStep.ADVERT, self.agent, self.number, keys, signature)

    def receive(self, data: bytes) -> bytes:
        """Answer a message of the coordinator; with nothing, if the vector comes next. A repeated one gets the same answer.

        MaskingError if it is refused: this site then takes no further part in the round.
        """
        kind, agent, number = head(data)
        if kind in self._answered and self._answered[kind][0] == data:
            return self._answered[kind][1]
        if (agent, number) != (self.agent, self.number):  # perhaps late, of an earlier round
            raise self._refusal(f"a message for agent {agent} in round {number} has come here")
        if kind is not self._expects:
            self._end()
            raise self._refusal(f"{kind.name} is out of order, or differs from an earlier one")
        self._expects = None  # for good, if anything is wrong with this message
        reply, self._expects = self._steps[kind](self, data)
        self._answered[kind] = data, reply
        return reply

    @property
    def can_mask(self) -> bool:
        """Check whether the vector comes next."""
        return self._expects is MaskStep.MASKED

    def mask(self, vector: Words) -> bytes:
        """Return the message of the phase `mask`: a vector `(length,)` in fixed point, with its masks."""
        if not self.can_mask or vector.shape != (self._terms.length,):
            raise self._refusal(
                f"one vector ({self._terms.length},) is masked, after the shares have come; this is {vector.shape}"
            )
        total = vector + expanded(self._secrets[1], len(vector))
        for place in self._held:
            if place != self.place:
                secret = pair_secret(self._pairwise, self._keys[place][:KEY], self._context)
                total = total + signed(expanded(secret, len(vector)), self.place, place)
        self._expects = MaskStep.SENDERS
        return message(MaskStep.MASKED, self.agent, self.number, self._terms.settings.packed(total))

    def _deal(self, data: bytes) -> tuple[bytes, MaskStep]:
        """Check the keys of all, and deal shares of the own secrets to them."""
        members, content = read_list(data, self._n, self._sizes.keys, "the list of keys")
        self._require(members, range(self._n), "keys")
        for number, place in enumerate(members):
            advert = content[ADVERT * number : ADVERT * (number + 1)]
            check_advert(self._terms, self.number, self.sites, self.cohort[place], advert)
            self._keys[place] = advert[: 2 * KEY]
        if self._keys[self.place] != public_of(self._pairwise) + public_of(self._channel):
            raise self._refusal("the list of keys has other ones for this site than its own")
        self._context = context_of(self._terms, self.number, self.sites, self._keys)
        words = np.frombuffer(self._entropy(8 * (self.needed - 1) * 2 * LIMBS), np.uint64)
        points = np.array(members) + 1
        pairs = dict(zip(members, dealt(to_limbs(self._secrets), polynomials(words, self.needed), points), strict=True))
        self._held[self.place] = pairs.pop(self.place)
        parts = []
        for place, pair in pairs.items():
            ways, other = (way(self.place, place), way(place, self.place)), self._keys[place][KEY:]
            outgoing, self._incoming[place] = agreed(self._channel, other, self._context, *ways)
            parts.append(sealed(outgoing, share_bytes(pair), self._context))
        return message(MaskStep.DEALT, self.agent, self.number, *parts), MaskStep.DELIVERED

    def _take(self, data: bytes) -> tuple[bytes, MaskStep]:
        """Decrypt the shares that the others have dealt."""
        members, content = read_list(data, self._n, self._sizes.delivered, "the list of shares")
        self._require(members, self._keys, "shares")
        others = [place for place in members if place != self.place]
        for number, place in enumerate(others):
            part = content[PAIR * number : PAIR * (number + 1)]
            self._held[place] = shares_in(unsealed(self._incoming[place], part, self._context))
        return b"", MaskStep.MASKED

    def _confirm(self, data: bytes) -> tuple[bytes, MaskStep]:
        """Sign who has dealt and who has sent, if that leaves a sum of enough messages."""
        self._senders, _ = read_list(data, self._n, lambda _: self._sizes.senders, "the list of senders")
        self._require(self._senders, self._held, "senders")
        self._lists = listed(self._held, self._n) + listed(self._senders, self._n)
        signature = self._key.sign(confirmation_text(self._context, self.agent, self._lists))
        return message(MaskStep.CONFIRMATION, self.agent, self.number, signature), MaskStep.CONFIRMATIONS

    def _give(self, data: bytes) -> tuple[bytes, None]:
        """Send a share of either the seed or the key of each that has dealt, once enough have confirmed the same lists."""
        members, content = read_list(data, self._n, self._sizes.confirmations, "the list of confirmations")
        self._require(members, self._senders, "confirmations")
        for number, place in enumerate(members):
            signature = content[SIGNATURE * number : SIGNATURE * (number + 1)]
            check_confirmation(self.sites, self._context, self.cohort[place], self._lists, signature)
        shares = np.array([self._held[place][int(place in self._senders)] for place in sorted(self._held)])
        reply = message(MaskStep.SHARES, self.agent, self.number, share_bytes(shares))
        self._secrets, self._held = [], {}
        return reply, None

    def _require(self, members: Sequence[int], known: Sequence[int] | Mapping[int, object], what: str) -> None:
        """Check that enough agents are listed, this one among them, and none that may not be."""
        if len(members) < self.needed or self.place not in members:
            words = f"the list of {what} has {len(members)} agents; {self.needed} are needed, this one among them"
            raise self._refusal(words)
        if not {*members} <= {*known}:
            raise self._refusal(f"the list of {what} has agents that had dropped out")

    def _refusal(self, why: str) -> MaskingError:
        return MaskingError(f"round {self.number}, agent {self.agent}: {why}")

    def _end(self) -> None:
        self._expects, self._secrets, self._held, self._answered = None, [], {}, {}

    _steps: Mapping[MaskStep, Callable[[SiteRound, bytes], tuple[bytes, MaskStep | None]]] = {
        MaskStep.KEYS: _deal,
        MaskStep.DELIVERED: _take,
        MaskStep.SENDERS: _confirm,
        MaskStep.CONFIRMATIONS: _give,
    }
