"""The coordinator's half of secure aggregation between real sites, as a state machine; `fedbo.sites.masks` has the phases."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

import numpy as np

from fedbo.privacy.mask_sizes import KEY, PAIR, MessageSizes
from fedbo.privacy.secret_sharing import Words, from_limbs, rejoined
from fedbo.privacy.secure_aggregation import unmasked
from fedbo.sites.keys import PublicKey
from fedbo.sites.mask_messages import (
    MaskingError,
    MaskStep,
    MaskTerms,
    body,
    check_advert,
    check_confirmation,
    context_of,
    head,
    key_of,
    listed,
    message,
    opening,
    pair_secret,
    public_of,
    shares_in,
)

Phase = Literal["advertise", "share", "mask", "confirm", "unmask", "summed", "failed"]
_SENT: dict[Phase, MaskStep] = {
    "advertise": MaskStep.ADVERT,
    "share": MaskStep.DEALT,
    "mask": MaskStep.MASKED,
    "confirm": MaskStep.CONFIRMATION,
    "unmask": MaskStep.SHARES,
}


class CoordinatorRound:
    """The coordinator's part in one round. A driver passes on messages, and decides when to wait no longer for `missing`.

    - `phase`: the phase that is open, or how the round has ended: "summed", with the sum in `total`, or "failed", with `why`.
    - `members`: places of the agents that have taken part in all phases so far.
    """

    def __init__(self, terms: MaskTerms, number: int, sites: Mapping[int, PublicKey]) -> None:
        self.number, self.cohort, self.needed = number, sorted(sites), terms.needed(len(sites))
        self.phase: Phase = "advertise"
        self.members = list(range(len(sites)))
        self.total: Words | None = None
        self.why = ""
        self.bytes = [0, 0]  # of all messages to and from sites
        self._terms, self._sites, self._sizes, self._n = terms, sites, MessageSizes(len(sites)), len(sites)
        self._dealers, self._senders, self._lists, self._context = list[int](), list[int](), b"", b""
        self._came: dict[Phase, dict[int, bytes]] = {phase: {} for phase in _SENT}

    def open(self) -> dict[int, bytes]:
        """Return the messages that open the round, by agent."""
        return self._counted({agent: opening(agent, self.number, self._sites) for agent in self.cohort})

    @property
    def missing(self) -> list[int]:
        """List the agents that the open phase waits for."""
        came = self._came.get(self.phase)
        return [] if came is None else [self.cohort[place] for place in self.members if place not in came]

    @property
    def senders(self) -> list[int]:
        """List the agents whose vectors are in the sum, once the phase `mask` has ended."""
        return [self.cohort[place] for place in self._senders]

    @property
    def can_sum(self) -> bool:
        """Check whether the sum can be computed, though some may still answer."""
        return self.phase == "unmask" and len(self._came["unmask"]) >= self.needed

    def receive(self, agent: int, data: bytes) -> bool:
        """Process a site's message; return False if it comes too late or again. MaskingError if it is not legal."""
        kind, sender, number = head(data)
        if agent != sender or agent not in self.cohort or kind not in _SENT.values():
            raise MaskingError(f"agent {agent} sent {kind.name} of agent {sender}, which is none of its messages")
        place = self.cohort.index(agent)
        phase = next(phase for phase, sent in _SENT.items() if sent is kind)
        if number != self.number or phase != self.phase or place not in self.members or place in self._came[phase]:
            return False
        content = body(data, self._length(phase), f"{kind.name} of agent {agent}")
        if phase == "advertise":
            check_advert(self._terms, self.number, self._sites, agent, content)
        elif phase == "confirm":
            check_confirmation(self._sites, self._context, agent, self._lists, content)
        elif phase == "unmask":
            shares_in(content)
        self._came[phase][place] = content
        self.bytes[1] += len(data)
        return True

    def advance(self, only: Collection[int] | None = None) -> dict[int, bytes]:
        """End the open phase, and return the next messages, by agent; none once the round has ended.

        Messages that have come count, with `only` those of these agents.
        """
        if self.phase in ("summed", "failed"):
            return {}
        self.members = [place for place in sorted(self._came[self.phase]) if only is None or self.cohort[place] in only]
        if len(self.members) < self.needed:
            self.why = (
                f"of {self._n} agents {len(self.members)} finished the phase '{self.phase}', but {self.needed} are needed"
            )
            self.phase = "failed"
            return {}
        if self.phase == "unmask":
            try:
                self.total, self.phase = self._sum(), "summed"
            except MaskingError as error:
                self.why, self.phase = str(error), "failed"
            return {}
        following = {"advertise": self._keys, "share": self._delivered, "mask": self._told, "confirm": self._confirmed}
        messages = following[self.phase]()
        phases = get_args(Phase)
        self.phase = phases[phases.index(self.phase) + 1]
        return self._counted({self.cohort[place]: data for place, data in messages.items()})

    def _keys(self) -> dict[int, bytes]:
        came = self._came["advertise"]
        keys = {place: came[place][: 2 * KEY] for place in self.members}
        self._context = context_of(self._terms, self.number, self._sites, keys)
        parts = (listed(self.members, self._n), *(came[place] for place in self.members))
        return {place: self._message(MaskStep.KEYS, place, *parts) for place in self.members}

    def _delivered(self) -> dict[int, bytes]:
        advertised, self._dealers = sorted(self._came["advertise"]), self.members
        dealers, found = listed(self._dealers, self._n), dict[int, bytes]()
        for place in self._dealers:
            parts = []
            for dealer in (dealer for dealer in self._dealers if dealer != place):
                start = PAIR * (advertised.index(place) - (dealer < place))  # a dealer leaves itself out
                parts.append(self._came["share"][dealer][start : start + PAIR])
            found[place] = self._message(MaskStep.DELIVERED, place, dealers, *parts)
        return found

    def _told(self) -> dict[int, bytes]:
        self._senders, senders = self.members, listed(self.members, self._n)
        self._lists = listed(self._dealers, self._n) + senders
        return {place: self._message(MaskStep.SENDERS, place, senders) for place in self._senders}

    def _confirmed(self) -> dict[int, bytes]:
        parts = (listed(self.members, self._n), *(self._came["confirm"][place] for place in self.members))
        return {place: self._message(MaskStep.CONFIRMATIONS, place, *parts) for place in self.members}

    def _sum(self) -> Words:
        """Recover seeds and keys from shares, and remove their masks; MaskingError if shares of a key do not fit."""
        helpers = self.members[: self.needed]
        shares = np.array([shares_in(self._came["unmask"][place]) for place in helpers])
        try:
            secrets = dict(zip(self._dealers, from_limbs(rejoined(shares, np.array(helpers) + 1)), strict=True))
        except ValueError as error:
            raise MaskingError(f"round {self.number}: {error}; a site has not followed the protocol") from None
        came, settings, pairs = self._came["advertise"], self._terms.settings, dict[tuple[int, int], bytes]()
        for gone in sorted({*self._dealers} - {*self._senders}):
            key = key_of(secrets[gone])
            if public_of(key) != came[gone][:KEY]:
                raise MaskingError(f"round {self.number}: shares of the key of agent {self.cohort[gone]} do not give that key")
            pairs |= {(sender, gone): pair_secret(key, came[sender][:KEY], self._context) for sender in self._senders}
        vectors = {place: settings.unpacked(self._came["mask"][place], self._terms.length) for place in self._senders}
        seeds = {place: secrets[place] for place in self._senders}
        return settings.plain_sum([unmasked(vectors, seeds, pairs)])

    def _length(self, phase: Phase) -> int:
        sizes, settings = self._sizes, self._terms.settings
        return {
            "advertise": sizes.advert,
            "share": sizes.dealt(len(self._came["advertise"])),
            "mask": sizes.masked(self._terms.length, settings.bits),
            "confirm": sizes.confirmation,
            "unmask": sizes.shares(len(self._dealers)),
        }[phase]

    def _message(self, kind: MaskStep, place: int, *parts: bytes) -> bytes:
        return message(kind, self.cohort[place], self.number, *parts)

    def _counted(self, messages: dict[int, bytes]) -> dict[int, bytes]:
        self.bytes[0] += sum(map(len, messages.values()))
        return messages
