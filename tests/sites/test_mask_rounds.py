"""Rounds of masks by letters: kills of the coordinator and of sites in every phase, and what never leaves a site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from private_runs import NUMBERS, Whisper, said, uneven

from fedbo.actors.task import StepReport
from fedbo.algorithms.base import Field, Mechanism, Problem
from fedbo.privacy.secure_aggregation import SecureAggregation
from fedbo.sites.errors import PolicyError
from fedbo.sites.keys import PrivateKey, PublicKey
from fedbo.sites.mask_messages import MaskStep, MaskTerms, head, letter_number, message, opening
from fedbo.sites.mask_rounds import MaskRounds
from fedbo.sites.mask_work import SiteMasks
from fedbo.sites.orders import decode_report, encode_report, most_request
from fedbo.sites.policy import SitePolicy
from fedbo.sites.terms import SyncTerms
from fedbo.sites.wire import WireError
from tests.sites.schedules import Killed, MemoryRecords

AGENTS = 5
LAW = Mechanism(blocks=2, clip=3.0, noise=0.0)
TERMS = MaskTerms(SecureAggregation(threshold=0.6, bits=48, fraction=30), b"s" * 32, AGENTS, 2 * NUMBERS, 3)
ALGORITHM, PROBLEM = Whisper(LAW, uneven(2, AGENTS)), Problem(2, AGENTS, range(AGENTS), 1, 4)
NEEDED = TERMS.settings.needed(AGENTS)


class Office:
    """Letters and answers between one coordinator and its sites, each of which may end at any time.

    `silent` gives the kind of letter at which a site is killed before it answers; `again` tells whether it starts anew.
    """

    def __init__(self, silent: Mapping[int, MaskStep] | None = None, again: bool = False) -> None:
        self.identities = {agent: PrivateKey.drawn() for agent in range(AGENTS)}
        self.keys = {agent: key.public for agent, key in self.identities.items()}
        self.disks = {agent: MemoryRecords() for agent in range(AGENTS)}
        self.records = MemoryRecords()
        self.silent, self.again = dict(silent or {}), again
        self.letters: dict[int, tuple[int, bytes]] = {}
        self.seen = dict.fromkeys(range(AGENTS), 0)
        self.waiting: dict[int, tuple[int, bytes]] = {}
        self.away: set[int] = set()
        self.refused: list[str] = []
        self.lease = 60.0
        self.sites = {agent: self.site(agent) for agent in range(AGENTS)}

    def site(self, agent: int, **settings: Any) -> SiteMasks:
        return SiteMasks(TERMS, ALGORITHM, PROBLEM, agent, self.identities[agent], self.disks[agent], **settings)

    def coordinator(self) -> MaskRounds:
        """Start a coordinator's process, whose mailboxes are empty."""
        self.letters = {}

        def refused(why: str, agent: int) -> None:
            self.refused.append(why)

        return MaskRounds(
            TERMS, self.records, self, lambda: self.keys, lambda agent: agent not in self.away, self.lease, refused
        )

    def letter(self, agent: int, number: int, data: bytes) -> None:
        assert number >= self.letters.get(agent, (0, b""))[0], "numbers only grow"
        self.letters[agent] = (number, data)

    def replies(self) -> list[tuple[int, int, bytes]]:
        """Deliver what is there, and return what sites have to say; what is not acknowledged is said again."""
        for agent, (number, data) in self.letters.items():
            if agent in self.away or number <= self.seen[agent]:
                continue
            self.seen[agent] = number
            if self.silent.get(agent) is head(data)[0]:
                del self.silent[agent]
                self.kill(agent)
            elif answer := self.sites[agent].answer(data):
                self.waiting[agent] = (number, answer)
        return [(agent, *answer) for agent, answer in self.waiting.items()]

    def replied(self, agent: int, number: int) -> None:
        if agent in self.waiting and self.waiting[agent][0] <= number:
            del self.waiting[agent]

    def kill(self, agent: int) -> None:
        """End a site; one that starts again has its disk, but no round."""
        self.waiting.pop(agent, None)
        if self.again:
            self.sites[agent], self.seen[agent] = self.site(agent), 0
        else:
            self.away.add(agent)

    def evaluate(self, rounds: MaskRounds, release: int, step: int) -> list[int]:
        """Let all sites that are there report on a step; return them."""
        for _ in range(4):
            rounds.turn()
        reported = [agent for agent in range(AGENTS) if agent not in self.away]
        for agent in reported:
            if self.silent.get(agent) is MaskStep.MASKED:  # between its evaluation and its report, which it repeats
                del self.silent[agent]
                self.kill(agent)
                if not self.again:
                    continue
            if (masked := self.sites[agent].mask(step, said(agent, release))) is not None:
                self.waiting[agent] = masked
        return [agent for agent in reported if agent not in self.away]


def expected(agents: Sequence[int], release: int) -> list[int]:
    """Add up what agents have shortened and weighed, as whole numbers."""
    settings, total = TERMS.settings, [0] * (2 * NUMBERS)
    for agent in agents:
        shortened = said(agent, release) * min(1.0, 3.0 / np.sqrt(2) / np.linalg.norm(said(agent, release)))
        blocks = np.outer(uneven(2, AGENTS)(release)[:, agent], shortened).ravel()
        total = [a + b for a, b in zip(total, settings.to_fixed(blocks, AGENTS).tolist(), strict=True)]
    return [number % 2**settings.bits for number in total]


def near(got: list[int], wanted: list[int]) -> bool:
    """Compare sums up to the last place of each number in them."""
    return all(min((a - b) % 2**48, (b - a) % 2**48) <= AGENTS for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("again", [False, True], ids=["is away", "starts again"])
@pytest.mark.parametrize("phase", ["OPENING", "KEYS", "DELIVERED", "MASKED", "SENDERS", "CONFIRMATIONS"])
def test_a_site_that_is_killed_in_any_phase_drops_out_of_the_sum_of_that_round_alone(phase: str, again: bool) -> None:
    kind, sends = MaskStep[phase], phase in ("SENDERS", "CONFIRMATIONS")
    office = Office({2: kind}, again)
    rounds = office.coordinator()
    for release in range(3):
        there = [agent for agent in range(AGENTS) if agent not in office.away]
        rounds.open(release, there)
        found = rounds.unmask(release, office.evaluate(rounds, release, release))
        # Killed at the opening, it takes part after its new start, as if the letter had come late.
        survives = release > 0 or sends or (again and kind is MaskStep.OPENING)
        senders = [agent for agent in there if agent != 2 or survives]
        assert found.sent == senders and not found.has_failed and found.total is not None
        assert near(found.total.tolist(), expected(senders, release))
    assert not office.refused


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_coordinator_that_is_killed_at_any_write_ends_with_the_same_sums(stride: int) -> None:
    """It is killed before every second of its writes, or of some, and after the others; sites keep what is not acknowledged."""
    deaths = 0
    for place in range(0, 56, stride):
        office, left = Office({4: MaskStep.SENDERS}), [place]

        def kill(left: list[int] = left, when: int = 1 + place % 2) -> int:
            left[0] -= 1
            return when if left[0] == -1 else 0

        office.records.kill = kill
        reported, found = dict[int, list[int]](), dict[int, Any]()
        while len(found) < 2:
            try:
                rounds = office.coordinator()
                for release in range(2):
                    rounds.open(release, range(AGENTS))
                    if release not in reported:
                        reported[release] = office.evaluate(rounds, release, release)
                    found[release] = rounds.unmask(release, reported[release])
            except Killed:
                deaths += 1
                found.clear()
        for release in range(2):
            senders = reported[release] if release else range(AGENTS)
            assert found[release].total is not None and near(found[release].total.tolist(), expected(senders, release))
    assert deaths >= 45 / stride, "most places are writes of the two rounds"


def test_a_round_with_too_few_sites_fails_and_the_next_one_does_not() -> None:
    office = Office()
    rounds = office.coordinator()
    office.away = {0, 1, 2}
    rounds.open(0, range(AGENTS))
    found = rounds.unmask(0, office.evaluate(rounds, 0, 0))
    assert found.has_failed and found.total is None and found.needed == NEEDED == 3
    office.away = set()
    rounds.open(1, range(AGENTS))
    assert rounds.unmask(1, office.evaluate(rounds, 1, 1)).sent == list(range(AGENTS))
    del office.keys[0], office.keys[1], office.keys[2], office.keys[3]
    rounds.open(2, range(AGENTS))
    assert rounds.unmask(2, []).has_failed, "the keys of all others were revoked"
    assert rounds.unmask(7, []).has_failed, "it was never opened"
    assert office.coordinator().unmask(1, []).sent == list(range(AGENTS)), "sums are on the disk"


def test_a_step_that_is_repeated_in_a_later_round_makes_its_site_drop_out() -> None:
    office = Office(again=True)
    rounds = office.coordinator()
    for release in range(2):
        rounds.open(release, range(AGENTS))
        reported = office.evaluate(rounds, release, 0 if release == 0 else 1)
        if release == 1:
            break
        assert len(rounds.unmask(0, reported).sent) == AGENTS
    rounds.unmask(1, range(AGENTS))
    rounds.open(2, range(AGENTS))
    for _ in range(4):
        rounds.turn()
    for agent in range(AGENTS):
        office.waiting[agent] = office.sites[agent].mask(1 if agent == 3 else 2, said(agent, 2)) or (0, b"")
    assert rounds.unmask(2, range(AGENTS)).sent == [0, 1, 2, 4]


def test_a_site_that_is_there_and_never_answers_is_not_waited_for_longer_than_its_lease() -> None:
    office = Office()
    office.lease = 0.3
    rounds = office.coordinator()
    mute: Any = SimpleNamespace(answer=lambda letter: b"", mask=lambda step, vector: None)
    office.sites[2] = mute
    rounds.open(0, range(AGENTS))
    assert rounds.unmask(0, office.evaluate(rounds, 0, 0)).sent == [0, 1, 3, 4]


def test_a_vector_without_its_report_is_not_in_the_sum() -> None:
    office = Office()
    rounds = office.coordinator()
    rounds.open(0, range(AGENTS))
    office.evaluate(rounds, 0, 0)
    found = rounds.unmask(0, [0, 1, 3, 4])
    assert found.sent == [0, 1, 3, 4] and found.total is not None
    assert near(found.total.tolist(), expected([0, 1, 3, 4], 0))


def test_a_site_masks_the_message_of_a_step_once_even_after_a_new_start() -> None:
    office = Office(again=True)
    rounds = office.coordinator()
    rounds.open(0, range(AGENTS))
    office.evaluate(rounds, 0, 0)
    office.kill(1)
    assert office.sites[1].mask(0, said(1, 0)) is None, "outside a round"
    assert rounds.unmask(0, range(AGENTS)).sent
    rounds.open(1, range(AGENTS))
    for _ in range(4):
        rounds.turn()
    number, vector = office.sites[1].mask(1, said(1, 1)) or (0, b"")
    assert (number, head(vector)[0]) == (letter_number(MaskStep.DELIVERED, 1), MaskStep.MASKED)
    again = office.sites[1].mask(2, said(1, 2)) or (0, b"")
    assert head(again[1])[0] is MaskStep.GONE, "one message in a round"
    assert office.sites[1].mask(3, said(1, 3)) is None, "it has dropped out"


def test_letters_that_a_site_refuses_make_it_drop_out_and_say_so() -> None:
    words: list[str] = []
    office = Office()

    def admit(sites: Mapping[int, PublicKey]) -> None:
        SitePolicy(peers=(office.keys[1].fingerprint,)).admit_peers(sites)

    site = office.site(1, refused=words.append)
    keys = office.keys
    assert head(site.answer(opening(1, 3, keys)))[0] is MaskStep.ADVERT
    assert head(site.answer(opening(1, 3, keys)))[0] is MaskStep.GONE and "a second time" in words[-1]
    assert head(site.answer(message(MaskStep.SENDERS, 1, 3, bytes(1))))[0] is MaskStep.GONE, "there is no round any more"
    assert site.answer(b"nonsense") == b"" and "at least 14 bytes" in words[-1]
    strict = office.site(1, refused=words.append, admit=admit)
    assert head(strict.answer(opening(1, 4, keys)))[0] is MaskStep.GONE
    assert f"peers does not list the key {keys[0].fingerprint} of agent 0" in words[-1]
    with pytest.raises(PolicyError):
        admit(keys)


def test_a_site_whose_messages_are_not_legal_drops_out_and_is_named() -> None:
    office = Office()
    rounds = office.coordinator()
    rounds.open(0, range(AGENTS))
    wrong = {3: b"x" * 200, 4: message(MaskStep.ADVERT, 4, 0, bytes(128))}
    for agent, data in wrong.items():
        site: Any = SimpleNamespace(answer=lambda letter, data=data: data, mask=lambda step, vector: None)
        office.sites[agent] = site
    found = rounds.unmask(0, office.evaluate(rounds, 0, 0))
    assert found.sent == [0, 1, 2] and not found.has_failed
    assert any("version 120" in why for why in office.refused) and any(
        "agent 4 signed no such" in why for why in office.refused
    )


# What travels.


def test_a_masked_message_never_travels_in_a_report() -> None:
    declared = {"sum": Field((NUMBERS,))}
    masked = SyncTerms(AGENTS, 2, declared, None, "nothing", 3, 9, 3, 30, TERMS.most_bytes)
    open_terms = masked._replace(letter=0)
    vector = np.random.default_rng(0).standard_normal(NUMBERS)
    report = StepReport(agent=1, step=2, queries=1, lease=9, payload={"sum": vector})
    hidden, plain = encode_report(report, masked), encode_report(report, open_terms)
    assert vector.tobytes() in plain and len(plain) - len(hidden) == 8 * NUMBERS
    assert not any(number.tobytes() in hidden for number in vector)
    read = decode_report(1, 9, hidden, masked).payload
    assert read is not None and read["sum"].shape == (NUMBERS,) and not read["sum"].any()
    for data, terms in ((plain, masked), (hidden, open_terms)):
        with pytest.raises(WireError, match="against the terms of the study"):
            decode_report(1, 9, data, terms)
    assert most_request(masked) == most_request(open_terms) + TERMS.most_bytes
    silent = StepReport(agent=1, step=2, queries=1, lease=9, payload=None)
    assert decode_report(1, 9, encode_report(silent, masked), masked).payload is None


def test_numbers_of_letters_grow_from_message_to_message() -> None:
    kinds = [MaskStep.OPENING, MaskStep.KEYS, MaskStep.DELIVERED, MaskStep.SENDERS, MaskStep.CONFIRMATIONS]
    numbers = [letter_number(kind, number) for number in range(3) for kind in kinds]
    assert numbers == sorted({*numbers}) and numbers[0] > 0
