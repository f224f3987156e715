"""Rounds of secure aggregation between sites in this process, of whom some drop out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np

from fedbo.privacy.secret_sharing import Words
from fedbo.privacy.secure_aggregation import SecureAggregation
from fedbo.sites.keys import PrivateKey, PublicKey
from fedbo.sites.mask_messages import MaskingError, MaskTerms
from fedbo.sites.mask_sums import CoordinatorRound, Phase
from fedbo.sites.masks import SiteRound

PHASES: tuple[Phase, ...] = ("advertise", "share", "mask", "confirm", "unmask")
STUDY, DEFAULT = b"s" * 32, SecureAggregation()


class Sites:
    """Sites with keys, and their draws by a seed."""

    def __init__(
        self, agents: Sequence[int], length: int = 3, seed: int = 0, settings: SecureAggregation = DEFAULT, least: int = 2
    ) -> None:
        self.identities = {agent: PrivateKey.drawn() for agent in agents}
        self.terms = MaskTerms(settings, STUDY, max(agents) + 1, length, least)
        self.draws = Random(seed)

    def keys(self, cohort: Sequence[int]) -> dict[int, PublicKey]:
        """Return the public keys of a cohort."""
        return {agent: self.identities[agent].public for agent in cohort}

    def vectors(self, agents: Sequence[int]) -> dict[int, Words]:
        """Draw vectors over the whole range."""
        settings, length = self.terms.settings, self.terms.length
        return {n: settings.unpacked(self.draws.randbytes(8 * length), length) for n in agents}

    def join(self, opened: Mapping[int, bytes]) -> dict[int, SiteRound]:
        """Let sites begin a round."""
        return {
            n: SiteRound(self.terms, n, self.identities[n], data, entropy=self.draws.randbytes) for n, data in opened.items()
        }

    def begin(self, cohort: Sequence[int], number: int = 0) -> tuple[CoordinatorRound, dict[int, SiteRound]]:
        """Open a round, in which all sites have advertised their keys."""
        coordinator = CoordinatorRound(self.terms, number, self.keys(cohort))
        sites = self.join(coordinator.open())
        for agent, site in sites.items():
            assert coordinator.receive(agent, site.advert())
        return coordinator, sites

    def until(
        self, phase: Phase, cohort: Sequence[int], vectors: Mapping[int, Words], gone: Mapping[int, Phase] | None = None
    ) -> tuple[CoordinatorRound, dict[int, SiteRound], dict[int, bytes]]:
        """Play a round up to a phase, in which the returned messages come to the sites."""
        coordinator, sites = self.begin(cohort)
        messages = coordinator.advance()
        while coordinator.phase != phase:
            self.answer(coordinator, sites, messages, vectors, gone or {})
            messages = coordinator.advance()
        return coordinator, sites, messages

    def answer(
        self,
        coordinator: CoordinatorRound,
        sites: Mapping[int, SiteRound],
        messages: Mapping[int, bytes],
        vectors: Mapping[int, Words],
        gone: Mapping[int, Phase],
    ) -> None:
        """Let sites answer, but for those that drop out in a phase no later than this one."""
        for agent, data in messages.items():
            if agent in gone and PHASES.index(gone[agent]) <= PHASES.index(coordinator.phase):
                continue
            reply = sites[agent].receive(data) or sites[agent].mask(vectors[agent])
            assert coordinator.receive(agent, reply) and not coordinator.receive(agent, reply), "once only"

    def play(
        self, cohort: Sequence[int], vectors: Mapping[int, Words], gone: Mapping[int, Phase], number: int = 0
    ) -> CoordinatorRound:
        """Play a round to its end; `gone` says in which phase an agent is silent for the first time."""
        coordinator = CoordinatorRound(self.terms, number, self.keys(cohort))
        sites = self.join(coordinator.open())
        for agent, site in sites.items():
            assert gone.get(agent) == "advertise" or coordinator.receive(agent, site.advert())
        while messages := coordinator.advance():
            self.answer(coordinator, sites, messages, vectors, gone)
        return coordinator


def exact_sum(vectors: Sequence[Words], bits: int) -> list[int]:
    """Add vectors up as whole numbers."""
    return [sum(column) % 2**bits for column in zip(*(vector.tolist() for vector in vectors), strict=True)]


def refused(call: Callable[[], object]) -> str:
    """Return with which words a call is refused; empty if it is not."""
    try:
        call()
    except MaskingError as error:
        return str(error)
    return ""


def uniform_bytes(words: Words, bits: int) -> np.ndarray:
    """Return the lowest `bits` bits of words as bytes, for words of whole bytes."""
    return words.astype("<u8").view(np.uint8).reshape(-1, 8)[:, : bits // 8]
