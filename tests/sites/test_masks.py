"""Secure aggregation between real sites: the exact sum whoever drops out, what lies and forgeries meet, and what it costs."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

pytest.importorskip("cryptography")

from private_runs import NUMBERS, Discreet, Whisper, uneven
from scipy import stats

from fedbo.algorithms.base import Mechanism
from fedbo.coordinator.environment.timing import Constant
from fedbo.privacy.budget import PrivacyBudget
from fedbo.privacy.mask_sizes import HEADER, KEY, PAIR, MessageSizes, Unmasking
from fedbo.privacy.secret_sharing import rejoined
from fedbo.privacy.secure_aggregation import SecureAggregation
from fedbo.sites.keys import PrivateKey
from fedbo.sites.mask_messages import MaskStep, advert_text, key_of, listed, message, opening, public_of, shares_in
from fedbo.sites.mask_sums import CoordinatorRound, Phase
from fedbo.sites.masks import SiteRound
from tests.sites.mask_rounds import PHASES, Sites, exact_sum, refused, uniform_bytes

FIVE = range(5)
MASKS = SecureAggregation()


# The sum.


@pytest.mark.parametrize("bits", [*(pytest.param(bits, marks=pytest.mark.long) for bits in (16, 37, 40)), 64])
def test_the_sum_is_exact_whoever_drops_out_in_whichever_phase(bits: int) -> None:
    """Of 30 cohorts for each `bits`; agents have numbers of their own, and drop out in any phase with probability 0.3."""
    draws, ends = Random(bits), Counter[str]()
    for case in range(30):
        cohort = draws.sample(range(1000), draws.randint(2, 7))
        settings = SecureAggregation(threshold=draws.uniform(0.51, 0.9), bits=bits, fraction=8)
        sites = Sites(cohort, draws.randint(1, 5), seed=case, settings=settings)
        gone: dict[int, Phase] = {agent: draws.choice(PHASES) for agent in cohort if draws.random() < 0.3}
        vectors = sites.vectors(cohort)
        ended = sites.play(cohort, vectors, gone)
        needed = settings.needed(len(cohort))
        finished = [sum(PHASES.index(gone.get(n, "unmask")) + (n not in gone) > place for n in cohort) for place in range(5)]
        if min(finished) < needed:
            assert (ended.phase, ended.total) == ("failed", None) and str(needed) in ended.why
        else:
            sent = [vectors[n] for n in cohort if gone.get(n) in (None, "confirm", "unmask")]
            assert ended.phase == "summed" and ended.total is not None
            assert ended.total.tolist() == exact_sum(sent, bits)
        ends[ended.phase] += 1
    assert min(ends["summed"], ends["failed"]) > 5, "both ends are met"


@pytest.mark.long
def test_a_hundred_sites_of_which_thirty_drop_out() -> None:
    """Ten in each of three phases after the shares have come. Bytes are within 5 % of what the simulation counts."""
    sites = Sites(range(100), 400, settings=MASKS)
    vectors, draws = sites.vectors(range(100)), Random(1)
    gone: dict[int, Phase] = dict(zip(draws.sample(range(100), 30), ("mask", "confirm", "unmask") * 10, strict=True))
    ended = sites.play(range(100), vectors, gone)
    sent = [n for n in range(100) if gone.get(n) != "mask"]
    assert ended.total is not None and ended.total.tolist() == exact_sum([vectors[n] for n in sent], 40)
    assert ended.senders == sent and len(sent) == 90
    assert sum(ended.bytes) == pytest.approx(predicted(100, sent, [n for n in sent if n not in gone], 400), rel=0.05)


# Bytes and time.


def predicted(n: int, sent: list[int], answering: list[int], length: int) -> int:
    """Return the bytes that a simulation counts for masks and masked vectors."""
    up, down = MASKS.added_bytes(Mechanism(blocks=1, clip=1.0, noise=0.0), length, n)
    unmasking = Unmasking(list(range(n)), sent, answering, MASKS.needed(n))
    return len(sent) * (8 * length + up + down) + unmasking.bytes


@pytest.mark.parametrize("n", [2, 5, 24])
def test_the_simulation_counts_the_bytes_of_real_sites(n: int) -> None:
    """To the byte, where agents drop out after the shares have come, as they do there."""
    sites, everybody = Sites(range(n), 7), list(range(n))
    spare = n - MASKS.needed(n)
    silent, unheard = everybody[: spare // 2], everybody[spare // 2 : spare]
    sent = [agent for agent in everybody if agent not in silent]
    answering = [agent for agent in sent if agent not in unheard]
    gone: dict[int, Phase] = {**dict.fromkeys(silent, "mask"), **dict.fromkeys(unheard, "confirm")}
    ended = sites.play(everybody, sites.vectors(everybody), gone)
    assert ended.phase == "summed"
    assert sum(ended.bytes) == predicted(n, sent, answering, 7)


def test_a_simulated_round_logs_the_bytes_and_the_time_of_a_real_one() -> None:
    law, latency = Mechanism(blocks=2, clip=3.0, noise=0.0), 0.25
    whisper = Whisper(law, uneven(2, 5))
    ran = Discreet(whisper, terms=PrivacyBudget(secure_aggregation=MASKS), latency=Constant(latency), iterations=2).run()
    up, down, unmasking = (next(record.bytes for record in ran.of(kind)) for kind in ("sent", "delivered", "unmasked"))
    sites = Sites(FIVE, 2 * NUMBERS)
    ended = sites.play(FIVE, sites.vectors(FIVE), {})
    assert 5 * (up + down - 16) + unmasking == sum(ended.bytes), "an answer itself has 16 bytes"
    # After a round has closed, the simulation waits with its answers until both round trips have passed.
    coordinator, playing, messages = sites.until("confirm", FIVE, sites.vectors(FIVE))
    trips = 0
    while messages:
        sites.answer(coordinator, playing, messages, {}, {})
        messages, trips = coordinator.advance(), trips + 1
    closed = ran.of("round")[0].time
    arrival = min(record.time for record in ran.of("delivered"))
    assert coordinator.total is not None and arrival - closed - latency == pytest.approx(trips * 2 * latency)


# What the coordinator sees.


def test_masked_vectors_are_uniform_to_the_coordinator() -> None:
    """Each byte of 3 x 4,000 masked zeros, and of their sums without one sender, is as likely.

    Masks are of fresh keys in each run, so a test of six vectors errs once in a million runs.
    """
    sites = Sites(range(3), 4000, seed=5)
    zeros = {n: np.zeros(4000, dtype=np.uint64) for n in range(3)}
    coordinator, playing, messages = sites.until("mask", range(3), zeros)
    seen = []
    for agent, data in messages.items():
        assert not playing[agent].receive(data)
        masked = playing[agent].mask(zeros[agent])
        seen.append(MASKS.unpacked(masked[HEADER:], 4000))
    for words in (*seen, seen[0] + seen[1], seen[1] + seen[2], seen[0] + seen[1] + seen[2]):
        counts = np.bincount(uniform_bytes(words, 40).ravel(), minlength=256)
        assert stats.chisquare(counts).pvalue > 1.6e-7
    # Masks of pairs cancel, so that the sum of all shows the seeds alone, and not that the vectors are zeros.
    assert not np.array_equal((seen[0] + seen[1] + seen[2]) & np.uint64(2**40 - 1), np.zeros(4000))


def test_every_round_has_masks_of_its_own() -> None:
    sites = Sites(range(3), 100)
    vectors = sites.vectors(range(3))
    masked = []
    for _ in range(2):
        _, playing, messages = sites.until("mask", range(3), vectors)
        assert not playing[0].receive(messages[0])
        masked.append(MASKS.unpacked(playing[0].mask(vectors[0])[HEADER:], 100))
    assert (masked[0] != masked[1]).all()


def test_fewer_shares_than_needed_recover_nothing() -> None:
    """With `needed` shares the seed of agent 0 comes out; with one share less, what comes out is another number."""
    sites = Sites(FIVE, 2)
    coordinator, playing, messages = sites.until("unmask", FIVE, sites.vectors(FIVE))
    given = [shares_in(playing[agent].receive(messages[agent])[HEADER:]) for agent in FIVE]
    points = np.array(FIVE) + 1
    seeds = [rejoined(np.array([given[k] for k in some]), points[some]) for some in ([0, 1, 2, 3], [4, 2, 1, 0], [1, 2, 3])]
    assert coordinator.needed == 4 and np.array_equal(seeds[0], seeds[1]) and not (seeds[0] == seeds[2]).any()


# A coordinator that lies.


def told(site: SiteRound, senders: list[int]) -> bytes:
    """Return the message that says to a site who has sent."""
    return message(MaskStep.SENDERS, site.agent, site.number, listed(senders, len(site.cohort)))


@pytest.mark.parametrize(
    ("senders", "why"),
    [
        ([0, 1, 2], "has 3 agents; 4 are needed"),
        ([1, 2, 3, 4], "this one among them"),
        ([0, 1, 2, 3, 4], "had dropped out"),
        ([0, 1, 2, 3, 5], "not in the cohort"),
    ],
    ids=["too few", "without oneself", "who has dealt no shares", "a stranger"],
)
def test_a_list_of_senders_that_cannot_be_true_is_refused(senders: list[int], why: str) -> None:
    sites = Sites(FIVE)
    _, playing, messages = sites.until("confirm", FIVE, sites.vectors(FIVE), {4: "share"})
    assert why in refused(lambda: playing[0].receive(told(playing[0], senders)))
    assert "out of order" in refused(lambda: playing[0].receive(messages[0])), "and then the truth is too late"


def test_who_is_told_two_lists_gives_no_shares() -> None:
    """The second list would make the site give the key of agent 4, whose seed it has said it would give."""
    sites = Sites(FIVE)
    coordinator, playing, messages = sites.until("confirm", FIVE, sites.vectors(FIVE))
    sites.answer(coordinator, playing, messages, {}, {})
    confirmations = coordinator.advance()
    assert "differs from an earlier one" in refused(lambda: playing[0].receive(told(playing[0], [0, 1, 2, 3])))
    assert "out of order" in refused(lambda: playing[0].receive(confirmations[0]))
    given = playing[1].receive(confirmations[1])
    assert playing[1].receive(confirmations[1]) == given, "what comes twice is answered in the same way"
    assert "differs" in refused(lambda: playing[1].receive(told(playing[1], [0, 1, 2, 3])))


def given_after_lies(lie: str, misled: list[int], offered: str) -> set[bool]:
    """Return which of two groups gave shares, where the `misled` of seven sites hear that agent 0 has dropped out.

    They hear it of the senders, or of those that dealt shares. Each site is then offered the signatures of `everybody`, or of
    the sites that were told the same.
    """
    n, without = 7, list(range(1, 7))
    sites = Sites(range(n), settings=SecureAggregation(threshold=0.55))
    vectors = sites.vectors(range(n))
    _, playing, messages = sites.until("confirm" if lie == "senders" else "mask", range(n), vectors)
    if lie == "dealers":
        for agent, data in messages.items():
            if agent in misled:  # the first shares are those of agent 0
                data = message(MaskStep.DELIVERED, agent, 0, listed(without, n), data[HEADER + 1 + PAIR :])
            assert not playing[agent].receive(data)
            playing[agent].mask(vectors[agent])
    lists = {agent: without if lie == "dealers" or agent in misled else list(range(n)) for agent in range(n)}
    heard = [agent for agent in range(n) if agent in lists[agent]]
    signatures = {agent: playing[agent].receive(told(playing[agent], lists[agent]))[HEADER:] for agent in heard}
    gave = set()
    for agent in heard:
        some = [k for k in lists[agent] if offered == "everybody" or (k in misled) == (agent in misled)]
        data = message(MaskStep.CONFIRMATIONS, agent, 0, listed(some, n), *(signatures[k] for k in some))
        if not refused(lambda agent=agent, data=data: playing[agent].receive(data)):
            gave.add(agent in misled)
    return gave


@pytest.mark.parametrize("lie", [pytest.param("senders", marks=pytest.mark.long), "dealers"])
def test_of_sites_that_are_told_different_lists_only_a_majority_that_was_told_the_same_gives_shares(lie: str) -> None:
    """Four of seven are needed, so a coordinator gets the shares of one list at most, whomever it misleads."""
    for count in range(7):
        misled = list(range(1, count + 1))
        told_the_truth = 7 - count - (lie == "dealers")  # agent 0 cannot be told that it has not sent
        expected = {truth == 0 for truth, size in enumerate((count, told_the_truth)) if size >= 4}
        assert given_after_lies(lie, misled, "those told the same") == expected
        assert given_after_lies(lie, misled, "everybody") == (expected if count in (0, 6) else set())


# Keys that are forged, replayed or mixed up.


def listed_keys(site: SiteRound, adverts: dict[int, bytes]) -> bytes:
    """Return the message that passes adverts on to a site."""
    return message(
        MaskStep.KEYS, site.agent, site.number, listed(adverts, len(site.cohort)), *(adverts[n] for n in sorted(adverts))
    )


@pytest.mark.parametrize("forgery", ["own", "earlier round", "other cohort", "other study", "other agent", "swapped"])
def test_keys_that_a_site_has_not_signed_for_this_round_are_refused_by_all(forgery: str) -> None:
    sites = Sites(range(6), 2)
    terms, real, five = sites.terms, sites.identities[2], sites.keys(FIVE)
    coordinator = CoordinatorRound(terms, 7, sites.keys(FIVE))
    playing = sites.join(coordinator.open())
    adverts = {agent: site.advert()[HEADER:] for agent, site in playing.items()}
    keys = public_of(key_of(b"a" * 16)) + public_of(key_of(b"b" * 16))
    signed = {
        "own": (PrivateKey.drawn(), advert_text(terms, 7, five, 2, keys)),
        "earlier round": (real, advert_text(terms, 6, five, 2, keys)),
        "other cohort": (real, advert_text(terms, 7, sites.keys(range(6)), 2, keys)),
        "other study": (real, advert_text(terms._replace(study=b"t" * 32), 7, five, 2, keys)),
        "other agent": (sites.identities[3], advert_text(terms, 7, five, 3, keys)),
        "swapped": (real, advert_text(terms, 7, five, 2, keys[KEY:] + keys[:KEY])),
    }
    signer, text = signed[forgery]
    forged = keys + signer.sign(text)
    assert "agent 2 signed no such keys" in refused(lambda: coordinator.receive(2, message(MaskStep.ADVERT, 2, 7, forged)))
    for agent in (0, 2):
        data = listed_keys(playing[agent], adverts | {2: forged})
        assert "agent 2 signed no such keys" in refused(lambda agent=agent, data=data: playing[agent].receive(data))


def test_two_keys_of_one_site_in_a_round_are_refused_and_its_own_must_be_listed() -> None:
    sites = Sites(FIVE, 2)
    coordinator, playing = sites.begin(FIVE)
    again = sites.join({1: opening(1, 0, sites.keys(FIVE))})[1]
    assert not coordinator.receive(1, again.advert()), "the first keys of a round count"
    adverts = {agent: site.advert()[HEADER:] for agent, site in playing.items()}
    data = listed_keys(again, adverts)
    assert "other ones for this site than its own" in refused(lambda: again.receive(data))


def test_a_round_is_opened_once_and_for_sites_of_the_study_alone() -> None:
    sites = Sites(FIVE)
    identity = sites.identities[1]

    def join(data: bytes, last: int = -1) -> str:
        return refused(lambda: SiteRound(sites.terms, 1, identity, data, last))

    keys = sites.keys(FIVE)
    assert not join(opening(1, 3, keys), last=2)
    assert "a second time" in join(opening(1, 3, keys), last=3) and "a second time" in join(opening(1, 3, keys), last=4)
    assert "has agent 1" in join(opening(2, 3, keys)) and "has agent 1" in join(opening(1, 3, sites.keys([0, 2])))
    assert "another key for agent 1" in join(opening(1, 3, keys | {1: PrivateKey.drawn().public}))
    assert "one key for several" in join(opening(1, 3, keys | {0: keys[2]}))
    data, member = opening(1, 3, keys), 36
    pieces = [data[HEADER + member * k : HEADER + member * (k + 1)] for k in FIVE]
    for wrong in ([1], [1, 0], [1, 1], []):
        assert "two or more agents of the study" in join(data[:HEADER] + b"".join(pieces[k] for k in wrong))
    assert "two or more agents" in join(opening(1, 3, keys | {5: PrivateKey.drawn().public})), "of five agents"
    assert "two or more agents" in join(data[:-1]) and "at least 14 bytes" in join(b"")


def test_shares_that_were_changed_or_come_from_another_round_are_refused() -> None:
    sites = Sites(FIVE)
    vectors = sites.vectors(FIVE)
    _, playing, messages = sites.until("mask", FIVE, vectors)
    _, _, others = sites.until("mask", FIVE, vectors)
    changed = bytearray(messages[0])
    changed[-1] ^= 1
    assert "changed on their way" in refused(lambda: playing[0].receive(bytes(changed)))
    assert "another round" in refused(lambda: playing[1].receive(others[1]))
    assert not playing[2].receive(messages[2])
    assert "one vector (3,) is masked" in refused(lambda: playing[2].mask(np.zeros(4, dtype=np.uint64)))
    playing[2].mask(vectors[2])
    assert "one vector (3,) is masked" in refused(lambda: playing[2].mask(vectors[2]))


def test_a_message_of_an_earlier_round_does_not_end_this_one() -> None:
    sites = Sites(FIVE)
    late = message(MaskStep.SENDERS, 0, 6, listed(FIVE, 5))
    coordinator, playing = sites.begin(FIVE, number=7)
    messages = coordinator.advance()
    assert "in round 6 has come here" in refused(lambda: playing[0].receive(late))
    assert coordinator.receive(0, playing[0].receive(messages[0]))
    assert not coordinator.receive(1, message(MaskStep.DEALT, 1, 6, b"")), "and the coordinator ignores it"


def test_shares_that_do_not_fit_fail_the_round_and_do_not_change_its_sum() -> None:
    """A site gives its shares of a key that nobody advertised, since it deals shares of another secret than its own."""
    sites = Sites(FIVE)
    coordinator, playing = sites.begin(FIVE)
    playing[4]._secrets[0] = bytes(16)
    messages = coordinator.advance()
    while messages:
        sites.answer(coordinator, playing, messages, sites.vectors(FIVE), {4: "mask"})
        messages = coordinator.advance()
    assert coordinator.phase == "failed" and coordinator.total is None
    assert "shares of the key of agent 4 do not give that key" in coordinator.why


# Bytes from anybody.


@pytest.mark.parametrize("phase", PHASES)
def test_the_coordinator_refuses_messages_of_a_wrong_length_and_signed_ones_with_any_bit_changed(phase: Phase) -> None:
    """Afterwards the true message still counts: all is checked before anything is kept."""
    draws, sites = Random(3), Sites(FIVE, 2)
    vectors = sites.vectors(FIVE)
    if phase == "advertise":
        coordinator = CoordinatorRound(sites.terms, 0, sites.keys(FIVE))
        honest = sites.join(coordinator.open())[0].advert()
    else:
        coordinator, playing, messages = sites.until(phase, FIVE, vectors)
        honest = playing[0].receive(messages[0]) or playing[0].mask(vectors[0])
    for _ in range(40):
        wrong = draws.choice([honest[: draws.randrange(len(honest))], honest + draws.randbytes(draws.randint(1, 9))])
        assert refused(lambda data=wrong: coordinator.receive(0, data))
        if phase in ("advertise", "confirm"):
            changed = bytearray(honest)
            changed[draws.randrange(HEADER, len(changed))] ^= 1 << draws.randrange(8)
            assert "agent 0" in refused(lambda data=bytes(changed): coordinator.receive(0, data))
    assert refused(lambda: coordinator.receive(1, honest)), "of another agent"
    assert coordinator.receive(0, honest)


@pytest.mark.parametrize("phase", ["share", "mask", "confirm", "unmask"])
def test_a_site_refuses_what_is_not_a_message_and_says_so(phase: Phase) -> None:
    draws, sites = Random(4), Sites(FIVE, 2)
    vectors = sites.vectors(FIVE)
    for _ in range(12):
        _, playing, messages = sites.until(phase, FIVE, vectors)
        data, site = bytearray(messages[0]), playing[0]
        how = draws.randrange(3)
        if how == 0:
            data = data[: draws.randrange(len(data))]
        elif how == 1:
            data += draws.randbytes(draws.randint(1, 100))
        else:
            data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
        assert refused(lambda site=site, data=data: site.receive(bytes(data)))


def test_no_legal_message_is_longer_than_is_known_beforehand() -> None:
    sites = Sites(range(9), 20)
    coordinator, playing = sites.begin(range(9))
    longest, messages = max(map(len, coordinator.open().values())), coordinator.advance()
    while messages:
        longest = max(longest, *map(len, messages.values()))
        sites.answer(coordinator, playing, messages, sites.vectors(range(9)), {})
        messages = coordinator.advance()
    assert coordinator.phase == "summed" and longest == sites.terms.most_bytes == MessageSizes(9).keys(9)


def test_a_site_forgets_its_secrets_once_it_has_given_shares() -> None:
    sites = Sites(FIVE)
    _, playing, messages = sites.until("unmask", FIVE, sites.vectors(FIVE))
    playing[0].receive(messages[0])
    assert not playing[0]._secrets and not playing[0]._held
