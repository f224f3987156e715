"""Both state machines step by step: what is held, joined, answered, repeated and refused."""

from __future__ import annotations

import random

import pytest
from schedules import STUDY, MemoryRecords, private_keys, roster

from fedbo.sites import wire
from fedbo.sites.coordinator_machine import REPEAT, REVOKED, CoordinatorMachine, RequestRefused
from fedbo.sites.documents import Roster
from fedbo.sites.sequences import BEHIND, COPY, OTHER_FOLDER
from fedbo.sites.site_machine import LONGEST_WAIT, PACE, SiteMachine
from fedbo.sites.wire import HOLD

COORDINATOR, *KEYS = private_keys(2)
MOST = 600


class Pair:
    """A coordinator and a site without a network between them."""

    def __init__(self) -> None:
        self.records, self.disk = MemoryRecords(), MemoryRecords()
        self.roster = roster(2)
        self.refused = list[str]()
        self.coordinator, self.site = self.new_coordinator(), self.new_site()

    def new_coordinator(self, records: MemoryRecords | None = None) -> CoordinatorMachine:
        return CoordinatorMachine(
            records or self.records,
            COORDINATOR,
            STUDY,
            lambda: self.roster,
            decode=lambda agent, lease, data: (agent, lease, data),
            most=MOST,
            clock=lambda: 50.0,
            refused=lambda why, agent: self.refused.append(why),
        )

    def new_site(
        self, disk: MemoryRecords | None = None, now: float = 0.0, patience: float = 60.0, agent: int = 0
    ) -> SiteMachine:
        return SiteMachine(
            disk or self.disk,
            KEYS[agent],
            COORDINATOR.public,
            STUDY,
            agent,
            check=lambda lease, order: None,
            most=MOST,
            now=now,
            patience=patience,
            jitter=random.Random(1).random,
        )

    def request(self, now: float = 0.0, site: SiteMachine | None = None) -> bytes:
        data = (site or self.site).request(now)
        assert data is not None
        return data

    def send(self, data: bytes, channel: int, now: float = 0.0) -> None:
        admitted = self.coordinator.admit(data[: wire.REQUEST_HEAD], wire.SYNC)
        self.coordinator.receive(admitted, data[wire.REQUEST_HEAD :] if admitted.needs_body else b"", channel, now)

    def answered(self, data: bytes, channel: int, now: float = 0.0) -> None:
        """Bring the site the answer that is due on a channel."""
        answers = dict(self.coordinator.answers(now))
        self.site.receive(data, answers[channel], now)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_request_is_held_until_there_is_an_order(pair: Pair) -> None:
    data = pair.request()
    pair.send(data, 1)
    assert pair.coordinator.answers(HOLD - 0.1) == [] and pair.coordinator.next_time() == HOLD
    pair.coordinator.order(0, 1, b"order")
    pair.answered(data, 1, 5.0)
    assert pair.site.order == (1, b"order") and pair.site.study_time(7.0) == 52.0


def test_a_request_is_held_for_25_seconds_at_most(pair: Pair) -> None:
    pair.send(pair.request(), 1)
    assert [channel for channel, _ in pair.coordinator.answers(HOLD)] == [1]
    assert HOLD == 25.0


def test_a_repeated_request_joins_the_first_and_gets_the_same_answer(pair: Pair) -> None:
    data = pair.request()
    for channel in (1, 2):
        pair.send(data, channel)
    pair.coordinator.order(0, 1, b"order")
    first, second = pair.coordinator.answers(1.0)
    assert (first[0], second[0]) == (1, 2) and first[1] == second[1]
    pair.coordinator.order(0, 2, b"a later order")
    pair.send(data, 3)
    assert pair.coordinator.answers(2.0) == [(3, first[1])]
    assert len(pair.records.records) == 1


def test_a_report_is_handed_out_once_and_kept_until_it_is_acknowledged(pair: Pair) -> None:
    pair.coordinator.order(0, 1, b"order")
    data = pair.request()
    pair.send(data, 1)
    pair.answered(data, 1)
    held = pair.request(1.0)
    pair.send(held, 2)
    pair.site.report(1, b"report")
    data = pair.request(2.0)
    assert data != held, "a report does not wait for the end of a held request"
    pair.send(data, 3)
    assert [channel for channel, _ in pair.coordinator.answers(2.0)] == [2]
    assert pair.coordinator.arrived() == [(0, 1, b"report")] and pair.coordinator.arrived() == []
    pair.site.failed(data, "cut", 3.0)
    again = pair.new_site(now=3.0)  # killed before it was acknowledged
    pair.send(pair.request(3.0, again), 4)
    assert pair.coordinator.arrived() == []
    assert again.order is None and pair.site._kept.reports == {1: b"report"}
    pair.coordinator.taken(0, 1)
    pair.coordinator.order(0, 2, b"next")
    pair.site = again
    sent = again.sent
    assert sent is not None
    pair.answered(sent.data, 4, 4.0)
    assert again._kept.reports == {} and again.order == (2, b"next")
    with pytest.raises(ValueError, match="reported on already"):
        again.report(1, b"again")


def test_a_coordinator_that_was_killed_takes_the_last_request_again(pair: Pair) -> None:
    data = pair.request()
    pair.send(data, 1)
    pair.coordinator = pair.new_coordinator()
    pair.coordinator.order(0, 1, b"order")
    pair.send(data, 2)
    pair.answered(data, 2)
    assert pair.site.order == (1, b"order") and len(pair.records.records) == 1


def test_more_reports_than_fit_leave_one_request_after_the_other(pair: Pair) -> None:
    for lease in range(1, 6):
        pair.coordinator.order(0, lease, b"order")
        data = pair.request(float(lease))
        pair.send(data, lease, float(lease))
        pair.answered(data, lease, float(lease))
        pair.site.report(lease, bytes(200))
    arrived = list[int]()
    for channel in range(10, 20):
        data = pair.request(float(channel))
        pair.send(data, channel, float(channel))
        for _, lease, _ in pair.coordinator.arrived():
            arrived.append(lease)
            pair.coordinator.taken(0, lease)
        if channel < 13 and arrived[-1] < 5:
            pair.answered(data, channel, float(channel))
        else:
            break
    assert arrived == sorted(arrived) and arrived[-1] == 5  # of several in one request only the newest is handed out


def test_an_older_copy_of_a_folder_is_refused_by_name(pair: Pair) -> None:
    copied = MemoryRecords(pair.disk.records)
    pair.coordinator.order(0, 1, b"order")
    data = pair.request()
    pair.send(data, 1)
    pair.answered(data, 1)
    pair.send(pair.request(1.0), 2, 1.0)
    older = pair.new_site(copied)
    with pytest.raises(RequestRefused, match=COPY) as error:
        pair.send(pair.request(0.0, older), 3)
    assert error.value.answer is not None and error.value.agent == 0
    older.receive(older.sent.data, error.value.answer, 0.0)  # type: ignore[union-attr]
    assert older.refused == COPY and older.request(100.0) is None


def test_a_second_site_with_the_key_is_refused_by_name(pair: Pair) -> None:
    copied = MemoryRecords(pair.disk.records)
    pair.send(pair.request(), 1)
    with pytest.raises(RequestRefused, match=COPY):
        pair.send(pair.request(0.0, pair.new_site(copied)), 2)
    other = pair.new_site(MemoryRecords())
    other.request(0.0)
    other.failed(other.sent.data, "cut", 0.0)  # type: ignore[union-attr]
    other._kept.sequence = 5
    other.sent = None
    with pytest.raises(RequestRefused, match=OTHER_FOLDER):
        pair.send(pair.request(100.0, other), 3)


def test_the_earlier_of_two_processes_is_refused_once_the_later_one_was_taken(pair: Pair) -> None:
    pair.send(pair.request(), 1)
    later = pair.new_site(MemoryRecords(pair.disk.records))
    pair.send(pair.request(0.0, later), 2)
    for _ in range(5):  # until its sequence is above the other's
        pair.site.sent, pair.site._due, pair.site._is_open = None, 0.0, False
        data = pair.request()
    with pytest.raises(RequestRefused, match=COPY):
        pair.send(data, 3)


def test_an_older_copy_whose_sequence_is_higher_is_refused_for_what_it_does_not_know(pair: Pair) -> None:
    pair.coordinator.order(0, 1, b"order")
    data = pair.request()
    copied = MemoryRecords(pair.disk.records)
    pair.send(data, 1)
    pair.answered(data, 1)
    pair.send(pair.request(1.0), 2, 1.0)  # which says that the order was seen
    older = pair.new_site(copied)
    older._kept.sequence = 10
    with pytest.raises(RequestRefused, match=COPY):
        pair.send(pair.request(1.0, older), 3)


def test_requests_without_end_fetch_an_order_and_a_letter_once_in_a_while(pair: Pair) -> None:
    """Each has a next sequence and says that it knows nothing; the machine counts the answers with an order or a letter."""
    pair.coordinator.order(0, 1, b"order" * 20)
    pair.coordinator.letter(0, 1, b"letter" * 20)
    orders, letters, now = 0, 0, 0.0
    for number in range(1000):
        now = number / 100
        pair.site.sent, pair.site._due, pair.site._is_open = None, 0.0, False
        data = pair.request(now)
        pair.send(data, number, now)
        if number == 30:
            pair.coordinator.letter(0, 2, b"letter" * 20)
        for _, answer in pair.coordinator.answers(now):
            reply = wire.unpack_reply(answer[wire.ANSWER_HEAD :])
            orders, letters = orders + bool(reply.order), letters + bool(reply.letter[1])
    assert (orders, letters) == (10, 11)
    pair.site.sent, pair.site._due, pair.site._is_open = None, 0.0, False
    pair.send(pair.request(now), 1000, now + 0.01)
    assert [channel for channel, _ in pair.coordinator.answers(now)] == [999]  # and nothing for the last one, which waits
    assert (due := pair.coordinator.next_time()) is not None and due <= now + REPEAT
    ((_, answer),) = pair.coordinator.answers(due)
    assert wire.unpack_reply(answer[wire.ANSWER_HEAD :]).order


def test_a_report_is_kept_through_answers_that_do_not_acknowledge_it(pair: Pair) -> None:
    pair.coordinator.order(0, 1, b"order")
    data = pair.request()
    pair.send(data, 1)
    pair.answered(data, 1)
    pair.site.report(1, b"report")
    data = pair.request(1.0)
    pair.send(data, 2, 1.0)
    pair.coordinator.order(0, 2, b"in its place")  # before the report is on the coordinator's disk
    pair.answered(data, 2, 2.0)
    assert pair.site.order == (2, b"in its place") and pair.site._kept.reports == {1: b"report"}
    data = pair.request(3.0)
    assert wire.unpack_sync(data[wire.REQUEST_HEAD :]).reports == ((1, b"report"),)


def test_an_older_copy_that_has_caught_up_is_refused(pair: Pair) -> None:
    """It carries an order out again that was counted, and so its own observations are others than those that count."""
    pair.coordinator.order(0, 1, b"order")
    data = pair.request()
    pair.send(data, 1)
    pair.answered(data, 1)
    pair.site.request(1.0)  # its number is on the disk
    copied = MemoryRecords(pair.disk.records)
    pair.site.report(1, b"the report that counts")
    data = pair.request(2.0)
    pair.send(data, 2)
    for report, is_same in ((b"another report", False), (b"the report that counts", True)):
        older = pair.new_site(MemoryRecords(copied.records))
        older._kept.sequence = 10
        older.report(1, report)
        data = pair.request(3.0, older)
        if is_same:
            pair.send(data, 4)
        else:
            with pytest.raises(RequestRefused, match=COPY):
                pair.send(data, 3)


def test_an_older_copy_of_the_coordinators_folder_is_named(pair: Pair) -> None:
    older = MemoryRecords()
    for number in range(3):
        older = MemoryRecords(pair.records.records) if number == 1 else older
        data = pair.request(100.0 * number)
        pair.send(data, number, 100.0 * number)
        answers = dict(pair.coordinator.answers(100.0 * number + HOLD))
        pair.site.receive(data, answers[number], 100.0 * number + HOLD)
    pair.coordinator = pair.new_coordinator(older)
    with pytest.raises(RequestRefused, match=BEHIND):
        pair.send(pair.request(400.0), 9)


def test_an_order_below_one_that_the_site_has_seen_shows_an_older_record(pair: Pair) -> None:
    pair.coordinator.order(0, 5, b"order")
    data = pair.request()
    pair.send(data, 1)
    pair.answered(data, 1)
    pair.coordinator.order(0, 4, b"an order of an older record")
    with pytest.raises(RequestRefused, match=BEHIND):
        pair.send(pair.request(1.0), 2)


def _without(agent: int) -> Roster:
    """Return the roster with the key of an agent revoked."""
    known = roster(2)
    entries = tuple(entry.model_copy(update={"state": "revoked"}) if entry.agent == agent else entry for entry in known.entries)
    return Roster.signed(COORDINATOR, study=STUDY.hex(), coordinator=COORDINATOR.public.hex, number=1, entries=entries)


def test_a_key_that_is_revoked_gets_nothing_more(pair: Pair) -> None:
    data = pair.request()
    pair.send(data, 1)
    pair.roster = _without(0)
    pair.coordinator.order(0, 1, b"order")
    pair.answered(data, 1)
    assert pair.site.refused == REVOKED and pair.site.order is None and pair.refused == [REVOKED]
    with pytest.raises(RequestRefused, match=REVOKED):
        pair.send(pair.request(0.0, pair.new_site()), 2)


def test_the_end_is_told_until_the_coordinator_knows_that_it_is_known(pair: Pair) -> None:
    pair.coordinator.end(0, 4)
    data = pair.request()
    pair.send(data, 1)
    pair.answered(data, 1)
    assert pair.site.ended == 4 and not pair.site.is_over and not pair.coordinator.box(0).told
    data = pair.request(1.0)
    pair.send(data, 2)
    assert pair.coordinator.box(0).told
    pair.answered(data, 2, 1.0)
    assert pair.site.is_over and pair.site.request(100.0) is None
    assert pair.new_site().ended == 4


def test_an_answer_of_somebody_else_is_a_failed_attempt(pair: Pair) -> None:
    data = pair.request()
    other = private_keys(2)[1]
    signature = wire.read_head(data[: wire.REQUEST_HEAD]).signature
    body = wire.pack_reply(wire.SyncReply(wire.REFUSED, 0.0, 0, text="go away"))
    pair.site.receive(data, wire.sign_answer(other, signature, body), 1.0)
    assert pair.site.refused is None and "signature" in pair.site.trouble
    pair.site.receive(data, b"<html>502 Bad Gateway</html>", 1.0)
    assert pair.site.refused is None


def test_a_site_waits_a_random_time_after_failures_which_grows_with_the_cut(pair: Pair) -> None:
    now, waits = 0.0, list[float]()
    for _ in range(200):
        data = pair.request(now)
        pair.site.failed(data, "cut", now)
        due = pair.site.next_time()
        assert due is not None
        waits.append(due - now)
        now = due
    assert min(waits[:10]) < 0.1 and max(waits[:10]) <= 0.25
    assert all(wait <= max(0.25, now / 30) for wait in waits) and max(waits) <= LONGEST_WAIT
    assert max(wait for wait, end in zip(waits, waits, strict=True) if end) > 0.2


def test_a_wait_in_a_cut_of_30_seconds_is_at_most_a_second(pair: Pair) -> None:
    pair.site.failed(pair.request(), "cut", 0.0)
    data = pair.request(30.0)
    pair.site.failed(data, "cut", 30.0)
    due = pair.site.next_time()
    assert due is not None and 30.0 <= due <= 31.0


def test_an_answer_that_says_nothing_is_not_asked_for_again_at_once(pair: Pair) -> None:
    data = pair.request()
    pair.send(data, 1)
    answer = dict(pair.coordinator.answers(HOLD))[1]
    pair.site.receive(data, answer, 0.0)
    assert pair.site.next_time() == PACE and pair.site.request(0.5) is None


def test_journals_that_are_written_anew_keep_what_is_needed(pair: Pair) -> None:
    other = pair.new_site(MemoryRecords(), agent=1)
    first = pair.request(0.0, other)
    pair.send(first, 1)
    other.sent, other._is_open = None, False
    pair.send(pair.request(0.0, other), 2)
    pair.coordinator.order(0, 1, b"order")
    data = pair.request()
    pair.send(data, 3)
    pair.answered(data, 3)
    pair.site.report(1, b"report")
    for channel in range(4, 50):
        pair.site.sent, pair.site._due, pair.site._is_open = None, 0.0, False
        pair.send(pair.request(), channel)
    assert len(pair.disk.records) < 12 and len(pair.records.records) < 12
    again, kept = pair.new_site(), pair.site._kept
    assert (again._kept.sequence, again._kept.reports, again._kept.order) == (kept.sequence, {1: b"report"}, (1, b"order"))
    pair.coordinator = pair.new_coordinator()
    with pytest.raises(RequestRefused, match="after a later request"):
        pair.send(first, 50)


def test_a_site_is_lost_when_its_patience_is_over(pair: Pair) -> None:
    site = pair.new_site(now=10.0, patience=5.0)
    assert not site.is_lost(15.0) and site.is_lost(15.1)
