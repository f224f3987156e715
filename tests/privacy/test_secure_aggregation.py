"""Secure aggregation: the sum to the bit, what masks hide, what dropouts cost, and who is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_runs import NUMBERS, Discreet, Whisper, releases, said, uneven
from scipy import stats
from small_runs import ALL_MODES, Ran, Setting
from talking import Talk

import fedbo
from fedbo.algorithms.base import Mechanism, Private, Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.streams import Streams
from fedbo.analysis.cost import estimate_cost
from fedbo.coordinator.environment.availability import Bernoulli
from fedbo.coordinator.environment.faults import Crash, Hang, NetworkPartition
from fedbo.coordinator.environment.timing import Constant, Exponential
from fedbo.coordinator.kernel.exchange import Barrier, Immediate
from fedbo.privacy.budget import PrivacyBudget
from fedbo.privacy.estimates import privacy_estimates
from fedbo.privacy.mask_sizes import HEADER, KEY, PAIR, SIGNATURE, Unmasking
from fedbo.privacy.noise import Secure, Seeded
from fedbo.privacy.secret_sharing import FIELD, LIMBS, SECRET, dealt, from_limbs, rejoined, to_limbs
from fedbo.privacy.secure_aggregation import SecureAggregation, draw_secrets, masked, secure_sum, why_not_masked
from fedbo.study.study import load_study

PLAIN_SUM = Mechanism(blocks=2, clip=3.0, noise=0.0)
EVERYBODY = tuple(range(5))


def run(settings: SecureAggregation | None, law: Mechanism = PLAIN_SUM, **changes: Any) -> Ran:
    terms = PrivacyBudget(secure_aggregation=settings)
    return Discreet(Whisper(law, uneven(law.blocks, 5)), terms=terms, **changes).run()


# The arithmetic of one round.


@pytest.mark.parametrize("source", [Seeded(Streams(3)), Secure(b"k" * 32)], ids=["seeded", "secure"])
@pytest.mark.parametrize("bits", [16, 33, 40, 64])
@pytest.mark.parametrize(("cohort", "gone"), [(2, 0), (3, 1), (7, 0), (7, 2), (20, 6)])
def test_the_unmasked_sum_is_the_plain_sum_to_the_bit(cohort: int, gone: int, bits: int, source: Any) -> None:
    """Cohorts have numbers of their own; some have not sent, and of those who have some give no shares."""
    settings = SecureAggregation(bits=bits, fraction=min(24, bits - 8))
    agents = [3 * n + 1 for n in range(cohort)]
    rng = np.random.default_rng([cohort, gone, bits])
    senders = sorted(rng.choice(agents, cohort - gone, replace=False).tolist())
    vectors = {agent: settings.to_fixed(rng.standard_normal(6), cohort) for agent in senders}
    answering = senders[len(senders) - settings.needed(cohort) :] if len(senders) > settings.needed(cohort) else senders
    unmasking = Unmasking(agents, senders, answering, settings.needed(cohort))
    assert not unmasking.has_failed
    for release in (0, 1):
        got = secure_sum(settings, vectors, unmasking, source, release)
        assert np.array_equal(got, settings.plain_sum(list(vectors.values())))
    exact = np.sum([np.trunc(np.ldexp(settings.from_fixed(v), settings.fraction)) for v in vectors.values()], axis=0)
    assert np.array_equal(settings.from_fixed(got), np.ldexp(exact, -settings.fraction)), "and is what the numbers add up to"


def test_a_masked_message_says_nothing_and_differs_by_the_message_alone() -> None:
    """Of 4,000 masked words each of 16 values of the top bits comes as often as by chance (p above 0.001 for this seed)."""
    settings = SecureAggregation(bits=64, fraction=40)
    secrets = draw_secrets(Seeded(Streams(1)), 0, range(4))
    zeros, ones = np.zeros(4000), np.ones(4000)
    sent = [masked({n: settings.to_fixed(one, 4) for n in range(4)}, secrets)[2] for one in (zeros, ones)]
    assert np.array_equal(sent[1] - sent[0], settings.to_fixed(ones, 4) - settings.to_fixed(zeros, 4))
    counts = np.bincount((sent[1] >> np.uint64(60)).astype(int), minlength=16)
    assert stats.chisquare(counts).pvalue > 0.001
    other = draw_secrets(Seeded(Streams(1)), 1, range(4))
    assert (masked({2: settings.to_fixed(ones, 4)}, other)[2] != sent[1]).mean() > 0.99, "every round has masks of its own"


def test_fewer_shares_than_are_needed_fit_every_secret() -> None:
    rng = np.random.default_rng(2)
    secret, points = rng.integers(0, 2**30, (1, LIMBS)), np.array([1, 2, 3, 4])
    coefficients = rng.integers(0, FIELD, (2, 1, LIMBS))
    shares = dealt(secret, coefficients, points)
    for some in ([0, 1, 2], [3, 1, 0], [1, 2, 3]):
        assert np.array_equal(rejoined(shares[some], points[some]), secret)
    other = rng.integers(0, 2**30, (1, LIMBS))
    # With the right coefficients any other secret gives the same two shares.
    second = (shares[1] - 2 * shares[0] + other) * pow(2, -1, FIELD) % FIELD
    first = (shares[0] - other - second) % FIELD
    assert np.array_equal(dealt(other, np.stack([first, second]), points)[:2], shares[:2])
    assert not np.array_equal(rejoined(shares[:2], points[:2]), secret)


def test_shares_that_belong_to_different_secrets_are_no_secret() -> None:
    secrets = [bytes([255] * SECRET), bytes(SECRET), b"0123456789abcdef"]
    assert from_limbs(to_limbs(secrets)) == secrets
    for wrong in ([[2**30, 0, 0, 0, 0]], [[0, 0, 0, 0, 2**8]]):
        with pytest.raises(ValueError, match="belong to different secrets"):
            from_limbs(np.array(wrong))


@pytest.mark.parametrize("bits", [16, 17, 33, 40, 63, 64])
def test_words_take_their_bits_and_no_more(bits: int) -> None:
    settings = SecureAggregation(bits=bits, fraction=0)
    words = np.random.default_rng(bits).integers(0, 2**bits, 11, dtype=np.uint64)
    assert len(settings.packed(words)) == -(-11 * bits // 8)
    assert np.array_equal(settings.unpacked(settings.packed(words), 11), words)
    (whole,) = [int.from_bytes(settings.packed(words), "little")]
    assert [whole >> (bits * place) & (2**bits - 1) for place in range(11)] == words.tolist()


def test_numbers_in_fixed_point_never_grow_and_never_leave_the_range() -> None:
    settings = SecureAggregation(bits=24, fraction=12)
    values = np.random.default_rng(4).standard_normal(1000)
    read = settings.from_fixed(settings.to_fixed(values, 5))
    assert (np.abs(read) <= np.abs(values)).all() and (np.abs(read - values) < 2.0**-12).all()
    assert (np.sign(read) * np.sign(values) >= 0).all()
    for cohort in (2, 3, 5, 100):
        for sign in (1.0, -1.0):
            most = settings.to_fixed(np.full(1, sign * 1e305), cohort)
            total = settings.from_fixed(settings.plain_sum([most] * cohort))[0]
            assert np.sign(total) == sign and abs(total) == pytest.approx(abs(settings.from_fixed(most)[0]) * cohort)


# Whole runs.


def test_a_release_is_the_sum_of_what_agents_have_shortened_and_weighed() -> None:
    settings = SecureAggregation(bits=48, fraction=30)
    ran = run(settings)
    vectors, plain = ran.core.state.server.vectors, run(None).core.state.server.vectors
    assert len(vectors) == len(plain) == 6
    phi = uneven(2, 5)
    for number, release in enumerate(vectors):
        shortened = {n: said(n, number) * min(1.0, 3.0 / np.sqrt(2) / 3.0) for n in range(5)}
        fixed = [settings.to_fixed(np.outer(phi(number)[:, n], shortened[n]).ravel(), 5) for n in range(5)]
        expected = settings.from_fixed(settings.plain_sum(fixed)).reshape(2, NUMBERS)
        assert np.allclose(release, expected, atol=2.0**-28, rtol=0)
        assert np.abs(release - plain[number]).max() < 5 * 2.0**-30 and not np.array_equal(release, plain[number])
        assert np.array_equal(np.ldexp(release, 30), np.trunc(np.ldexp(release, 30)))


def test_messages_carry_keys_and_shares_and_answers_wait_for_the_shares_that_unmask() -> None:
    settings = SecureAggregation()
    ran, plain = run(settings, latency=Constant(0.25)), run(None, latency=Constant(0.25))
    up = (HEADER + 2 * KEY + SIGNATURE) + (HEADER + 4 * PAIR) + (HEADER + 2 * NUMBERS * 40 // 8)
    down = (HEADER + 5 * (4 + KEY)) + (HEADER + 1 + 5 * (2 * KEY + SIGNATURE)) + (HEADER + 1 + 4 * PAIR)
    assert {record.bytes for record in ran.of("sent")} == {record.bytes for record in ran.of("arrived")} == {up}
    assert {record.bytes for record in ran.of("delivered")} == {16 + down}
    closed = {record.round: record.time for record in ran.of("round")}
    assert all(record.time == pytest.approx(closed[record.answer] + 1.25) for record in ran.of("delivered"))
    shares = [(record.bytes, record.answering, record.cohort, record.needed) for record in ran.of("unmasked")]
    told, signed = 5 * (HEADER + 1 + HEADER + SIGNATURE), 5 * (HEADER + 1 + 5 * SIGNATURE)
    assert shares == [(told + signed + 5 * (HEADER + 5 * 20), 5, 5, 4)] * len(closed)
    assert not plain.of("unmasked") and len(plain.of("round")) == len(closed)


def test_who_has_sent_and_is_gone_gives_no_shares_and_below_the_threshold_nothing_is_read() -> None:
    """Agent 0 takes long, so that the others have sent when two of them vanish, unknown to the coordinator."""
    slow = Discreet(Whisper(PLAIN_SUM), evaluation=Constant(1.0), iterations=2, latency=Constant(0.01))
    for gone, failed in (((1,), False), ((1, 2), True)):
        plan = (Hang((0,), at=0.5, duration=3.0), Hang(gone, at=2.5, duration=8.0))
        setting = replace(slow, world={"plan": plan}, terms=PrivacyBudget(secure_aggregation=SecureAggregation(threshold=0.8)))
        ran = setting.run()
        first = releases(ran)[0]
        first_sum = [record for record in ran.records if record.kind in ("aborted", "unmasked")][0]
        assert (first_sum.kind, first_sum.answering) == (("aborted", 3) if failed else ("unmasked", 4))
        assert (first_sum.cohort, first_sum.round) == (5, 0)
        assert first.arrived == ([] if failed else list(EVERYBODY)) and first.sampled == list(EVERYBODY)
        assert (ran.core.state.server.vectors[0] == 0).all() == failed and (first.signal == 0) == failed
        assert len(ran.of("done")) == 5, "the study goes on"


def test_an_aborted_release_is_noise_alone_and_is_charged_to_nobody() -> None:
    law = Mechanism(blocks=1, clip=3.0, noise=1.0)
    ran = run(SecureAggregation(threshold=1.0), law, availability=Bernoulli(0.3, 1.5), iterations=12)
    entries = releases(ran)
    empty = [one for one in entries if not one.arrived]
    assert empty and len(empty) == len(ran.of("aborted")) < len(entries)
    assert all(one.charged == [] and one.whole and one.signal == 0.0 for one in empty)
    assert all(one.charged == one.arrived == one.sampled for one in entries if one.arrived)
    assert all(vectors.any() for vectors in ran.core.state.server.vectors)


def test_no_gain_from_sampling_is_claimed_where_agents_know_who_was_asked() -> None:
    law = Mechanism(blocks=1, clip=3.0, noise=1.0, share=0.6)
    assert not releases(run(None, law))[0].whole
    masks = run(SecureAggregation(), law)
    assert all(one.whole == "with secure aggregation, agents know who was selected" for one in releases(masks))


def test_what_a_study_will_cost_is_told_with_its_masks(tmp_path: Any) -> None:
    tables = {
        "study": {"name": "masked"},
        "objective": {"name": "quadratic", "agents": 6},
        "budget": {"iterations": 4},
        "algorithm": [{"name": "dp_fts_de", "share": 0.5, "features": 12, "own": {"refit": 1000, "features": 12}}],
        "exchange": {"mode": "barrier"},
    }
    plain, masks = load_study(tables), load_study({**tables, "privacy": {"secure_aggregation": {}}})
    (before,), (after,) = privacy_estimates(plain), privacy_estimates(masks)
    assert not before.whole and "know who was selected" in after.whole and after.epsilon > before.epsilon
    told = estimate_cost(masks)
    up, down = SecureAggregation().added_bytes(masks.algorithm[0].make().mechanism(masks.problem()), 12, 6)
    assert told.bytes_up == told.messages_up * (96 + up) and told.bytes_down > estimate_cost(plain).bytes_down
    result = fedbo.run(load_study(masks.document()), out=tmp_path / "run")
    events = result.events.to_pylist()
    assert {event["bytes"] for event in events if event["kind"] == "sent"} == {96 + up}
    assert {event["bytes"] for event in events if event["kind"] == "delivered"} == {4 * 96 + down}
    assert load_study(masks.document()).privacy == masks.privacy, "the resolved study is a study"


@pytest.mark.parametrize("exchange", [m for m in ALL_MODES if m.is_synchronous], ids=lambda m: f"{m.mode} {m.accepts_late}")
def test_masks_of_one_round_are_of_no_use_in_another(exchange: Any) -> None:
    plan = (Crash((1,), rate=0.2, restart=1.0), NetworkPartition((2, 3), rate=0.1, duration=2.0))
    ran = run(
        SecureAggregation(threshold=0.6),
        exchange=exchange,
        latency=Exponential(0.4),
        availability=Bernoulli(0.2, 1.5),
        world={"plan": plan},
        iterations=10,
    )
    assert all(record.staleness == 0 for record in ran.of("arrived"))
    for one in releases(ran):
        assert set(one.arrived) <= set(one.sampled)
    rounds = {record.round for record in ran.records if record.kind in ("unmasked", "aborted")}
    assert rounds <= {record.round for record in ran.of("round")}


# Who is refused.


@pytest.mark.parametrize("name", list(algorithms()))
def test_only_what_declares_that_it_is_summed_is_masked(name: str) -> None:
    made = entry(name).make()
    problem = Problem(2, 5, range(5), 2, 6, pulls=40)
    why = why_not_masked(made, problem, Barrier())
    if made.upload(problem) is None or isinstance(made, Private):
        assert not why
    else:
        assert why.startswith("does not only sum messages; use")
    if isinstance(made, Private):
        assert "no rounds under 'immediate'" in why_not_masked(made, problem, Immediate())
        assert "a single agent" in why_not_masked(made, replace(problem, n_agents=1), Barrier())
        if hasattr(made, "quantile"):
            assert "its quantile" in why_not_masked(made.__class__(quantile=0.5), problem, Barrier())


def test_a_method_that_declares_nothing_is_refused_by_the_core_itself() -> None:
    silent = Discreet(Talk(), terms=PrivacyBudget(secure_aggregation=SecureAggregation()))
    with pytest.raises(ValueError, match="secure aggregation does not support an algorithm that does not only sum messages"):
        silent.core()
    Setting(Talk()).core()
