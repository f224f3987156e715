"""Letters beside orders and reports: they arrive at least once, the newest only, and nothing of them outlives a process."""

from __future__ import annotations

import random

import pytest
from test_machines import MOST, Pair

from fedbo.sites import wire
from fedbo.sites.coordinator_machine import RequestRefused
from fedbo.sites.wire import Sync, SyncReply


@pytest.fixture
def pair() -> Pair:
    return Pair()


def exchange(pair: Pair, now: float) -> None:
    """Let a request arrive, and its answer too."""
    data = pair.request(now)
    channel = int(10 * now)
    pair.send(data, channel, now)
    pair.answered(data, channel, now)


def test_a_letter_ends_the_waiting_of_a_held_request_and_its_answer_leaves_at_once(pair: Pair) -> None:
    held = pair.request()
    pair.send(held, 1)
    assert pair.coordinator.answers(1.0) == []
    pair.coordinator.letter(0, 9, b"letter")
    pair.answered(held, 1, 2.0)
    assert pair.site.letter == (9, b"letter")
    waiting = pair.request(2.0)
    pair.send(waiting, 2, 2.0)
    assert pair.coordinator.answers(2.0) == [], "the letter was seen"
    pair.site.answer(9, b"answer")
    assert pair.site.next_time() == float("-inf"), "an answer does not wait for the end of a held request"
    data = pair.request(2.5)
    pair.send(data, 3, 2.5)
    assert pair.coordinator.has_arrived and pair.coordinator.replies() == [(0, 9, b"answer")]
    assert pair.coordinator.replies() == [] and not pair.coordinator.has_arrived


def test_an_answer_is_sent_until_it_is_acknowledged_and_handed_out_once(pair: Pair) -> None:
    pair.coordinator.letter(0, 9, b"letter")
    exchange(pair, 1.0)
    pair.site.answer(9, b"answer")
    lost = pair.request(2.0)
    pair.send(lost, 20, 2.0)
    pair.site.failed(lost, "cut", 3.0)
    pair.coordinator = pair.new_coordinator()  # killed before it has written the answer down
    pair.send(lost, 21, 60.0)
    assert pair.coordinator.replies() == [(0, 9, b"answer")]
    pair.coordinator.order(0, 1, b"order")
    pair.answered(lost, 21, 60.0)
    again = pair.request(70.0)
    pair.send(again, 22, 70.0)
    assert b"answer" in again and pair.coordinator.replies() == []
    pair.coordinator.replied(0, 9)
    pair.coordinator.order(0, 2, b"next")
    pair.answered(again, 22, 70.0)
    assert b"answer" not in pair.request(80.0)


def test_a_site_that_starts_again_gets_the_newest_letter_again_and_has_no_answer(pair: Pair) -> None:
    pair.coordinator.letter(0, 9, b"letter")
    exchange(pair, 1.0)
    pair.site.answer(9, b"answer")
    pair.coordinator.letter(0, 10, b"newer")
    pair.site = pair.new_site(now=2.0)
    data = pair.request(2.0)
    assert b"answer" not in data
    pair.send(data, 5, 2.0)
    pair.answered(data, 5, 2.0)
    assert pair.site.letter == (10, b"newer")
    assert b"letter" not in b"".join(pair.disk.records + pair.records.records)


def test_letters_and_answers_survive_lost_and_repeated_requests(pair: Pair) -> None:
    """A chain of 60 letters, each sent once the one before was answered, with half of all messages lost (for this seed)."""
    draws, number, answered, now = random.Random(3), 1, list[int](), 0.0
    pair.coordinator.letter(0, 1, b"letter 1")
    for channel in range(1, 2000):
        now += 40.0  # beyond every pause, and beyond the end of a held request
        if (data := pair.site.request(now)) is None:
            continue
        if draws.random() < 0.5:
            pair.site.failed(data, "lost", now)
            continue
        pair.send(data, channel, now)
        if draws.random() < 0.5:
            pair.coordinator.answers(now + wire.HOLD)
            pair.site.failed(data, "lost", now)
        else:
            answers = dict(pair.coordinator.answers(now + wire.HOLD))
            pair.site.receive(data, answers[channel], now)
        for _, number_, reply in pair.coordinator.replies():
            answered.append(number_)
            assert reply == b"answer to letter %d" % number_
            pair.coordinator.replied(0, number_)
            number = number_ + 1
            pair.coordinator.letter(0, number, b"letter %d" % number)
        if pair.site.letter[0] > len(answered):
            pair.site.answer(pair.site.letter[0], b"answer to " + pair.site.letter[1])
        if number > 60:
            break
    assert answered == list(range(1, 61))


def test_an_answer_that_is_too_long_is_refused_before_it_is_read(pair: Pair) -> None:
    pair.coordinator.letter(0, 9, b"letter")
    exchange(pair, 1.0)
    pair.site.answer(9, bytes(MOST))
    data = pair.request(2.0)
    with pytest.raises(RequestRefused, match=f"at most {MOST} are allowed"):
        pair.coordinator.admit(data[: wire.REQUEST_HEAD], wire.SYNC)


def test_letters_and_answers_survive_packing() -> None:
    sync = Sync(
        life=1,
        folder=b"f" * 16,
        answered=2,
        seen=3,
        confirmed=4,
        reported=5,
        chain=wire.NO_REPORTS,
        evaluating=6,
        knows_end=False,
        has_more=False,
        reports=((7, b"report"),),
        letter=2**40,
        answer=(2**41, b"answer"),
    )
    assert wire.unpack_sync(wire.pack_sync(sync)) == sync
    reply = SyncReply(wire.GOING, 1.5, 2, lease=3, order=b"order", text="text", replied=2**40, letter=(2**41, b"letter"))
    assert wire.unpack_reply(wire.pack_reply(reply)) == reply
