"""A site under a coordinator that chooses cohorts and letters as it likes: what is masked is hidden as the terms say."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random

import numpy as np
import pytest

pytest.importorskip("cryptography")

from private_runs import said

from fedbo.algorithms.base import Private, Problem
from fedbo.algorithms.catalog import entry
from fedbo.coordinator.kernel.exchange import Barrier, Deadline, Exchange, FirstK
from fedbo.privacy.secure_aggregation import SecureAggregation, least_cohort
from fedbo.sites.keys import PrivateKey
from fedbo.sites.mask_messages import MaskingError, MaskStep, head, opening
from fedbo.sites.mask_sums import CoordinatorRound
from fedbo.sites.mask_work import SiteMasks
from fedbo.sites.masks import SiteRound
from tests.sites.mask_rounds import Sites, refused
from tests.sites.schedules import MemoryRecords
from tests.sites.test_mask_rounds import AGENTS, ALGORITHM, PROBLEM, TERMS

OWN = 2


class Liar:
    """A coordinator whose confederates are all other sites; it opens rounds and orders steps at random, and repeats letters."""

    def __init__(self, seed: int) -> None:
        self.draws, self.disk = Random(seed), MemoryRecords()
        self.keys = {agent: PrivateKey.drawn() for agent in range(AGENTS)}
        self.round: CoordinatorRound | None = None
        self.others: dict[int, SiteRound] = {}
        self.letters: list[bytes] = []
        self.left: set[bytes] = set()  # all that the site has sent
        self.cohorts: dict[int, int] = {}  # sizes of those that the site has accepted, by round
        self.steps: set[int] = set()
        self.restart()

    def act(self) -> None:
        """Do one of all that a coordinator could do, or kill the site."""
        likely = [self.go_on] * 20 + [self.step] * 2 + [self.repeat] * 2 + [self.open] * 2
        self.draws.choice([*likely, self.restart])()

    def restart(self) -> None:
        self.site = SiteMasks(TERMS, ALGORITHM, PROBLEM, OWN, self.keys[OWN], self.disk)

    def open(self) -> None:
        """Open a round for any cohort, with an earlier number or a new one; by the liar's own terms two are enough."""
        others = [agent for agent in range(AGENTS) if agent != OWN]
        cohort = {agent: self.keys[agent].public for agent in [OWN, *self.draws.sample(others, self.draws.randint(1, 4))]}
        number = self.draws.choice((0, 1, 1)) + max(self.cohorts, default=0)
        lax = TERMS._replace(least=2)
        self.round, opened = CoordinatorRound(lax, number, cohort), opening(OWN, number, cohort)
        letters = self.round.open()
        self.others = {n: SiteRound(lax, n, self.keys[n], letters[n]) for n in cohort if n != OWN}
        for agent, site in self.others.items():
            self.round.receive(agent, site.advert())
        if head(self.send(opened))[0] is MaskStep.ADVERT:
            assert number not in self.cohorts
            self.cohorts[number] = len(cohort)

    def go_on(self) -> None:
        """End the open phase with all that has come, or with a part of it."""
        if self.round is None:
            return
        if self.round.phase == "mask" and OWN in self.round.missing:
            self.step(1 + max(self.steps, default=-1))
        came = self.round.cohort
        only = None if self.draws.random() < 0.9 else {OWN, *self.draws.sample(came, self.draws.randint(1, len(came)))}
        for agent, data in self.round.advance(only).items():
            if agent == OWN:
                self.send(data)
                continue
            try:
                reply = self.others[agent].receive(data) or self.others[agent].mask(np.zeros(TERMS.length, np.uint64))
                self.round.receive(agent, reply)
            except MaskingError:
                continue

    def repeat(self) -> None:
        if self.letters:
            letter = self.draws.choice(self.letters)
            self.send(letter)

    def step(self, step: int | None = None) -> None:
        """Order a step, perhaps an earlier one, whose message the site masks."""
        step = self.draws.randrange(len(self.steps) + 2) if step is None else step
        self.steps.add(step)
        if (found := self.site.mask(step, said(OWN, step))) is not None:
            self.receive(found[1])

    def send(self, letter: bytes) -> bytes:
        self.letters.append(letter)
        reply = self.site.answer(letter)
        self.receive(reply)
        return reply

    def receive(self, reply: bytes) -> None:
        if reply:
            self.left.add(reply)
            if self.round is not None and head(reply)[2] == self.round.number and head(reply)[0] is not MaskStep.GONE:
                with suppress(MaskingError):  # of a round that has been opened twice
                    self.round.receive(OWN, reply)


@pytest.mark.parametrize(
    "seeds", [range(8), *(pytest.param(range(k, k + 25), marks=pytest.mark.long) for k in range(8, 208, 25))]
)
def test_no_sequence_of_letters_unmasks_a_message_among_fewer_than_the_terms_say(seeds: range) -> None:
    """Of 50 moves for each seed: one vector of a step, one of a round, of cohorts that the terms allow, and shares once."""
    seen = Counter[str]()
    for seed in seeds:
        liar = Liar(seed)
        for _ in range(50):
            liar.act()
        kinds = Counter(head(reply)[0] for reply in liar.left)
        assert kinds[MaskStep.MASKED] <= len(liar.steps)
        each = Counter(head(reply)[::2] for reply in liar.left)
        assert all(each[kind, number] <= 1 for kind, number in each if kind in (MaskStep.MASKED, MaskStep.SHARES))
        assert all(size >= TERMS.least for size in liar.cohorts.values())
        assert all(number in liar.cohorts for kind, number in each if kind is MaskStep.MASKED)
        seen.update(kind.name for kind in kinds)
    assert min(seen["MASKED"], seen["SHARES"], seen["GONE"]) > 0, "some rounds came to an end"


@pytest.mark.parametrize("threshold", [0.51, 0.66, 0.9, 1.0])
def test_a_cohort_that_is_smaller_than_the_terms_say_is_refused(threshold: float) -> None:
    """Of ten sites a coordinator opens a round for a few; of two, the other one being its confederate, the sum is a message."""
    settings = SecureAggregation(threshold=threshold)
    problem = Problem(2, 10, range(10), 1, 4)
    method = entry("fts_de").make()
    assert isinstance(method, Private)
    least = least_cohort(settings, method, problem, Barrier())
    assert least == settings.needed(10) > 5
    sites = Sites(range(10), settings=settings, least=least)
    for size in range(2, 11):
        cohort = [0, *range(11 - size, 10)]
        opened = opening(0, 0, sites.keys(cohort))

        def join(opened: bytes = opened) -> SiteRound:
            return SiteRound(sites.terms, 0, sites.identities[0], opened)

        if size < least:
            assert f"for {size} agents, but a round has at least {least} by the terms of the study" in refused(join)
        else:
            assert join().needed == least


@pytest.mark.parametrize(
    ("share", "exchange", "least"),
    [(1.0, Barrier(), 14), (0.35, Barrier(), 5), (0.01, Barrier(), 2), (1.0, Deadline(), 14), (1.0, FirstK(k=6), 4)],
)
def test_the_least_cohort_is_the_threshold_of_the_agents_that_a_round_asks(
    share: float, exchange: Exchange, least: int
) -> None:
    method = replace(entry("dp_fts").make(), share=share)  # type: ignore[type-var]
    problem = Problem(2, 25, range(20), 1, 4)
    assert least_cohort(SecureAggregation(), method, problem, exchange) == least
