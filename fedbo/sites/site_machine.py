"""A site's side of `sync` as a state machine without input and output: it says what to send and when, and reads answers.

The sequence of a request is on the disk before the request leaves, an order before it is handed out, and a report until it is
acknowledged. So a site may end at any moment, and goes on where it was.
"""

from __future__ import annotations

import math
import os
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fedbo.sites import wire
from fedbo.sites.errors import SignatureError
from fedbo.sites.keys import PrivateKey, PublicKey
from fedbo.sites.outbox import JournalRecords
from fedbo.sites.wire import RequestHead, Sync, SyncReply, WireError

PACE = 1.0  # seconds between two requests where answers come at once but say nothing
FIRST_WAIT = 0.25  # seconds up to which a site waits after a first failure
WAIT_SHARE = 1 / 30  # of the time since the last answer, up to which it waits after later ones
LONGEST_WAIT = 30.0
_LIFE, _NUMBERS = struct.Struct("<16sIQ"), struct.Struct("<QQQ32s")
_LEASE, _COUNTED = struct.Struct("<Q"), struct.Struct("<q")


class SentRequest(NamedTuple):
    """The request whose answer the site waits for.

    - `sequence`, `signature`, `data`: its number, its signature, all its bytes.
    - `reported`: highest lease among its reports, or among all where more did not fit.
    - `answer`: number of the letter that it answers.
    - `at`: time at which it was made.
    """

    sequence: int
    signature: bytes
    data: bytes
    reported: int
    answer: int
    at: float


@dataclass(slots=True)
class SiteRecord:
    """The state that a site keeps on its disk.

    - `folder`, `life`: see `Sync`.
    - `sequence`, `answered`, `confirmed`: the last request's number, the last answered one, the last acknowledged lease.
    - `order`: the newest order, with its lease.
    - `chain`: digest of the acknowledged reports, see `wire.chained`.
    - `reports`: reports by lease that are not acknowledged; `reported` is the highest lease of all.
    - `counted`: last step that counts, once the study has ended.
    """

    folder: bytes = b""
    life: int = 0
    sequence: int = 0
    answered: int = 0
    confirmed: int = 0
    chain: bytes = wire.NO_REPORTS
    order: tuple[int, bytes] | None = None
    reports: dict[int, bytes] = field(default_factory=dict)
    reported: int = 0
    counted: int | None = None


class SiteMachine:
    """One site of a study. Times are seconds of a clock that never goes back; nothing of it is kept.

    - `check`: (lease, bytes of an order); WireError where the bytes are none.
    - `most`: bytes of the longest legal body of a request.
    - `patience`: seconds without any answer after which the site is lost.
    - `draw`: random bytes; `jitter`: uniform draws of [0, 1).
    """

    def __init__(
        self,
        records: JournalRecords,
        key: PrivateKey,
        coordinator: PublicKey,
        study: bytes,
        agent: int,
        *,
        check: Callable[[int, bytes], object],
        most: int,
        now: float,
        patience: float = math.inf,
        draw: Callable[[int], bytes] = os.urandom,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._records, self._key, self._coordinator = records, key, coordinator
        self._study, self._agent, self._check, self._most = study, agent, check, most
        self._patience, self._jitter = patience, jitter
        self._kept = _restored(records.read())
        self._kept.folder = self._kept.folder or draw(wire.FOLDER_BYTES)
        self._kept.life += 1
        records.replace(_packed(self._kept))
        self._start = draw(wire.START_BYTES)
        self.sent: SentRequest | None = None
        self._is_open = False  # whether an attempt to send it waits for the answer
        self._due = self._heard = now
        self._failing: float | None = None
        self._clock: tuple[float, float] | None = None
        self.knows_end = False  # and the coordinator knows that it does
        self.evaluating: int | None = None
        self.letter: tuple[int, bytes] = (0, b"")
        self._answer: tuple[int, bytes] = (0, b"")
        self.refused: str | None = None
        self.trouble = ""

    @property
    def order(self) -> tuple[int, bytes] | None:
        """Return the newest order with its lease, unless it was reported on or the study has ended."""
        order = self._kept.order
        is_open = order is not None and order[0] > self._kept.reported and self.ended is None
        return order if is_open else None

    @property
    def ended(self) -> int | None:
        """Return the last step that counts once the study has ended, -1 for none; None before."""
        return self._kept.counted

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to send: the coordinator knows that the site knows the end, or refuses the site."""
        return self.refused is not None or self.knows_end

    def is_lost(self, now: float) -> bool:
        """Return whether no answer has come for so long that the site gives up."""
        return now - self._heard > self._patience

    def study_time(self, now: float) -> float | None:
        """Return the study's time by the last answer; None before the first."""
        return None if self._clock is None else self._clock[0] + now - self._clock[1]

    def report(self, lease: int, data: bytes) -> None:
        """Keep a report on the order of this lease, which is sent until it is acknowledged.

        It is on the disk when this returns. ValueError without such an order, or for a second report.
        """
        seen = 0 if self._kept.order is None else self._kept.order[0]
        if not self._kept.reported < lease <= seen:
            raise ValueError(f"lease {lease} was reported on already, or is not of an order of this site")
        self._write(b"R" + _LEASE.pack(lease) + data)
        self._kept.reports[lease], self._kept.reported = data, lease

    def next_time(self) -> float | None:
        """Return the time from which `request` has something to send; None while it waits for an answer or is over."""
        if self.is_over:
            return None
        if not self._is_open:
            return self._due
        assert self.sent is not None
        return -math.inf if self._has_more_than(self.sent) else None

    def _has_more_than(self, sent: SentRequest) -> bool:
        """Return whether there is a report or an answer to a letter that a request does not have."""
        return self._kept.reported > sent.reported or self._answer[0] > sent.answer

    def answer(self, number: int, data: bytes) -> None:
        """Answer a letter; the answer is sent until it is acknowledged. It is not on the disk, and neither are letters."""
        self._answer = (number, data)

    def request(self, now: float) -> bytes | None:
        """Return the bytes to send now, if it is time; the earlier request's answer no longer counts if they are others."""
        due = self.next_time()
        if due is None or now < due:
            return None
        if self.sent is None or self._has_more_than(self.sent):
            self.sent = self._new_request(now)
        self._is_open = True
        return self.sent.data

    def failed(self, request: bytes, why: str, now: float) -> None:
        """Note that an attempt to send a request has failed; it is tried again after a random time."""
        if self.sent is None or request is not self.sent.data or not self._is_open:
            return
        self._is_open, self.trouble = False, why
        self._failing = now if self._failing is None else self._failing
        span = min(max(FIRST_WAIT, (now - self._failing) * WAIT_SHARE), LONGEST_WAIT)
        self._due = now + span * self._jitter()

    def receive(self, request: bytes, data: bytes, now: float) -> None:
        """Process the answer to a request. One that is damaged, or not the coordinator's, counts as a failed attempt."""
        sent = self.sent
        if sent is None or request is not sent.data:
            return
        try:
            reply = wire.unpack_reply(wire.answer_body(self._coordinator, sent.signature, data))
            if reply.order:
                self._check(reply.lease, reply.order)
        except (WireError, SignatureError) as error:
            self.failed(request, str(error), now)
            return
        self._take(sent, reply, now)

    def _take(self, sent: SentRequest, reply: SyncReply, now: float) -> None:
        """Act on an answer: the order is on the disk before anything else follows from it."""
        has_news = self._take_news(reply)
        self._kept.answered = sent.sequence
        self.sent, self._is_open, self._failing, self._heard, self.trouble = None, False, None, now, ""
        self._clock = (reply.clock, now)
        # An answer that comes at once and says nothing must not be asked for again at once.
        self._due = now if has_news else max(now, sent.at + PACE)

    def _take_news(self, reply: SyncReply) -> bool:
        """Process what is new in an answer; return whether anything is."""
        kept = self._kept
        if reply.status == wire.REFUSED:
            self.refused = reply.text
            return True
        if reply.status == wire.ENDED:
            self.knows_end = kept.counted is not None
            if kept.counted is None:
                self._write(b"E" + _COUNTED.pack(reply.counted))
                kept.counted = reply.counted
            return True
        has_news = False
        if reply.order and (kept.order is None or reply.lease > kept.order[0]):
            self._write(b"O" + _LEASE.pack(reply.lease) + reply.order)
            kept.order, has_news = (reply.lease, reply.order), True
        taken = min(reply.taken, kept.reported)
        if taken > kept.confirmed:
            _confirm(kept, taken)
            has_news = True
        if reply.letter[0] > self.letter[0]:
            self.letter, has_news = reply.letter, True
        if reply.replied >= self._answer[0]:
            self._answer = (self._answer[0], b"")
        return has_news

    def _new_request(self, now: float) -> SentRequest:
        """Number, sign and return a request; its number is on the disk before anybody else sees it."""
        kept = self._kept
        sequence = kept.sequence + 1
        self._write(_numbers(kept, sequence))
        kept.sequence = sequence
        reports, room = list[tuple[int, bytes]](), self._most - wire.SYNC_BYTES - len(self._answer[1])
        for lease, data in kept.reports.items():
            room -= wire.REPORT_BYTES + len(data)
            if room < 0 or len(reports) == wire.MOST_REPORTS:
                break
            reports.append((lease, data))
        sync = Sync(
            life=kept.life,
            folder=kept.folder,
            answered=kept.answered,
            seen=0 if kept.order is None else kept.order[0],
            confirmed=kept.confirmed,
            reported=reports[-1][0] if reports else kept.confirmed,
            chain=wire.chained(kept.chain, reports),
            evaluating=self.evaluating or 0,
            knows_end=kept.counted is not None,
            has_more=len(reports) < len(kept.reports),
            reports=tuple(reports),
            letter=self.letter[0],
            answer=self._answer if self._answer[1] else (0, b""),
        )
        head = RequestHead(study=self._study, agent=self._agent, start=self._start, sequence=sequence)
        data = wire.sign_request(self._key, wire.SYNC, head, wire.pack_sync(sync))
        signature = wire.read_head(data[: wire.REQUEST_HEAD]).signature
        answer = self._answer[0]
        return SentRequest(sequence=sequence, signature=signature, data=data, reported=kept.reported, answer=answer, at=now)

    def _write(self, record: bytes) -> None:
        if self._records.is_long:
            self._records.replace(_packed(self._kept))
        self._records.append(record)


def _confirm(kept: SiteRecord, taken: int) -> None:
    """Forget reports that are acknowledged, but for their digest."""
    reports = [(lease, data) for lease, data in kept.reports.items() if lease <= taken]
    kept.chain, kept.confirmed = wire.chained(kept.chain, reports), taken
    kept.reports = {lease: data for lease, data in kept.reports.items() if lease > taken}


def _numbers(kept: SiteRecord, sequence: int) -> bytes:
    return b"Q" + _NUMBERS.pack(sequence, kept.answered, kept.confirmed, kept.chain)


def _packed(kept: SiteRecord) -> list[bytes]:
    """Return the records from which `_restored` makes the same state."""
    records = [b"F" + _LIFE.pack(kept.folder, kept.life, kept.reported)]
    records.append(_numbers(kept, kept.sequence))
    if kept.order is not None:
        records.append(b"O" + _LEASE.pack(kept.order[0]) + kept.order[1])
    records += [b"R" + _LEASE.pack(lease) + data for lease, data in kept.reports.items()]
    if kept.counted is not None:
        records.append(b"E" + _COUNTED.pack(kept.counted))
    return records


def _restored(records: list[bytes]) -> SiteRecord:
    """Return the state after these records."""
    kept = SiteRecord()
    for record in records:
        kind, data = record[:1], record[1:]
        if kind == b"F":
            kept.folder, kept.life, kept.reported = _LIFE.unpack(data)
        elif kind == b"Q":
            kept.sequence, kept.answered, kept.confirmed, kept.chain = _NUMBERS.unpack(data)
        elif kind == b"E":
            (kept.counted,) = _COUNTED.unpack(data)
        else:
            (lease,) = _LEASE.unpack(data[: _LEASE.size])
            if kind == b"O":
                kept.order = (lease, data[_LEASE.size :])
            else:
                kept.reports[lease], kept.reported = data[_LEASE.size :], lease
    kept.reports = {lease: data for lease, data in kept.reports.items() if lease > kept.confirmed}
    return kept
