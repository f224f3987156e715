"""The coordinator's side of `sync` as a state machine without input and output: bytes come in, and answers become due.

Each site numbers its requests. The number of a request is on the disk before anything follows from it. So a request counts
once, however often the network delivers it, whatever clocks say. One that comes again joins the first and gets its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from fedbo.sites import wire
from fedbo.sites.documents import Roster
from fedbo.sites.errors import SignatureError, SitesError
from fedbo.sites.keys import PrivateKey, PublicKey
from fedbo.sites.outbox import JournalRecords
from fedbo.sites.sequences import BEHIND, COPY, OTHER_FOLDER, RequestSequences
from fedbo.sites.wire import RequestHead, Sync, SyncReply, WireError

REPEAT = 1.0  # seconds after which an order or a letter is sent again to a site that does not know it
MOST_JOINED = 8  # connections that wait for one answer

Channel = int  # number of a connection that waits for an answer
REVOKED = "this key was revoked"
FINAL = frozenset({BEHIND, COPY, OTHER_FOLDER, REVOKED})


class RequestRefused(SitesError):
    """A request that is refused: `why` for the audit log, and the signed `answer` for a site that must end."""

    def __init__(self, why: str, agent: int | None = None, answer: bytes | None = None) -> None:
        super().__init__(why)
        self.why, self.agent, self.answer = why, agent, answer


class Admitted(NamedTuple):
    """A request whose head is in order. Its body is read only where it `needs_body`."""

    head: RequestHead
    key: PublicKey
    needs_body: bool


@dataclass(slots=True)
class HeldRequest:
    """A request that waits for its answer on all `channels` on which it came, until the time `until` at the latest."""

    head: RequestHead
    key: PublicKey
    sync: Sync
    until: float
    channels: list[Channel]


@dataclass(slots=True)
class Mailbox:
    """The coordinator's knowledge of one agent.

    - `order`: its newest order, with the lease.
    - `handed`, `taken`: highest lease among the reports that were handed out, and among those that are acknowledged.
    - `heard`: time of the last request; `evaluating`: the lease that its site works on.
    - `counted`: last step that counts, once the study has ended; `told`: whether the site knows it.
    - `last`: signature of the last answered request, and the answer.
    - `letter`: the newest letter to the site, with its number.
    - `sent`, `sent_at`: lease of the last order and number of the last letter that were sent, and the time of the later one.
    - `read`, `replied`: numbers of the newest letters whose answer was handed out, and is acknowledged.
    """

    order: tuple[int, bytes] | None = None
    handed: int = 0
    taken: int = 0
    heard: float | None = None
    evaluating: int | None = None
    counted: int | None = None
    told: bool = False
    held: HeldRequest | None = None
    last: tuple[bytes, bytes] = (b"", b"")
    letter: tuple[int, bytes] = (0, b"")
    sent: tuple[int, int] = (0, 0)
    sent_at: float = -inf
    read: int = 0
    replied: int = 0


class CoordinatorMachine:
    """The mailboxes of all agents. Times are seconds of a clock that never goes back; nothing of it is kept.

    - `decode`: (agent, lease, bytes) -> report; WireError where the bytes are none.
    - `most`: bytes of the longest legal body.
    - `clock`: the study's time, which answers tell.
    - `letters`: whether there are letters that a site may answer.
    - `hold`: seconds that a request without an answer is held open, at most `wire.HOLD`.
    - `refused`: called with the reason and the agent when a held request is refused after all.
    """

    def __init__(
        self,
        records: JournalRecords,
        key: PrivateKey,
        study: bytes,
        roster: Callable[[], Roster],
        *,
        decode: Callable[[int, int, bytes], Any],
        most: int,
        letters: bool = True,
        clock: Callable[[], float] = lambda: 0.0,
        hold: float = wire.HOLD,
        refused: Callable[[str, int], None] = lambda why, agent: None,
    ) -> None:
        self._sequences = RequestSequences(records)
        self._key, self._study, self._roster = key, study, roster
        self._decode, self.most, self._clock, self._hold = decode, most, clock, hold
        self._refused, self._letters = refused, letters
        self._boxes: dict[int, Mailbox] = {}
        self._arrived: dict[int, Any] = {}  # the newest of each agent: earlier ones answer orders that were replaced
        self._replies: dict[int, tuple[int, int, bytes]] = {}
        self._outgoing: list[tuple[Channel, bytes]] = []

    def box(self, agent: int) -> Mailbox:
        """Return the mailbox of an agent."""
        return self._boxes.setdefault(agent, Mailbox())

    # Requests of sites.

    def admit(self, data: bytes, path: str) -> Admitted:
        """Check the head of a request before its body is read; RequestRefused otherwise."""
        try:
            head = wire.read_head(data)
        except WireError as error:
            raise RequestRefused(str(error)) from None
        if head.study != self._study:
            raise RequestRefused("it is of another study", head.agent)
        key = self._verified(head, path)
        if head.length > self.most:
            words = f"its body has {head.length:,} bytes, but at most {self.most:,} are allowed"
            raise self._refusal(head, words)
        if (path == wire.HELLO) != (head.sequence == 0):
            raise self._refusal(head, "its sequence does not suit its path")
        return Admitted(head, key, self._needs_body(head, key))

    def hello(self, admitted: Admitted) -> bytes:
        """Return the answer to a request that changes nothing."""
        status = wire.GOING if self.box(admitted.head.agent).counted is None else wire.ENDED
        return self._signed(admitted.head, SyncReply(status, self._clock(), 0))

    def receive(self, admitted: Admitted, body: bytes, channel: Channel, now: float) -> None:
        """Accept a request from a channel, on which its answer is due later; RequestRefused otherwise."""
        head, key = admitted.head, admitted.key
        box = self.box(head.agent)
        if not self._needs_body(head, key):
            self._join(box, head, channel)
            return
        try:
            wire.check_body(head, body)
            sync = wire.unpack_sync(body)
            if sync.answer[0] and not self._letters:
                raise WireError("it answers a letter, but this study has none")
            reports = [self._decode(head.agent, lease, data) for lease, data in sync.reports]
        except WireError as error:
            raise self._refusal(head, str(error)) from None
        if self._sequences.is_new(head, key):
            why = self._sequences.why_inconsistent(head, key, sync)
            if box.order is not None and box.order[0] < sync.seen:
                why = why or BEHIND
            if why:
                raise self._refusal(head, why)
            self._sequences.take(head, key, sync)
        for (lease, _), report in zip(sync.reports, reports, strict=True):
            if lease > box.handed:
                box.handed = lease
                self._arrived[head.agent] = report
        if sync.answer[0] > box.read:
            box.read = sync.answer[0]
            self._replies[head.agent] = (head.agent, *sync.answer)
        if box.held is not None:
            self._answer(box, now)  # the site goes on with this request
        box.heard, box.evaluating, box.told = now, sync.evaluating or None, box.told or sync.knows_end
        box.held = HeldRequest(head, key, sync, now + self._hold, [channel])
        self._settle(box, now)

    def forget(self, channel: Channel) -> None:
        """Note that a channel is gone, so that no answer to it is due."""
        for box in self._boxes.values():
            if box.held is not None and channel in box.held.channels:
                box.held.channels.remove(channel)

    # The coordinator's own orders.

    def order(self, agent: int, lease: int, data: bytes) -> None:
        """Put an order into an agent's mailbox in place of its earlier one. The lease grows with each."""
        self.box(agent).order = (lease, data)

    def withdraw(self, agent: int) -> None:
        """Withdraw an agent's order, if it was not sent yet."""
        self.box(agent).order = None

    @property
    def has_arrived(self) -> bool:
        """Return whether there is a report, or an answer to a letter, that was not returned before."""
        return bool(self._arrived or self._replies)

    def arrived(self) -> list[Any]:
        """Return the newest report of each agent that was not returned before."""
        reports, self._arrived = self._arrived, {}
        return list(reports.values())

    def taken(self, agent: int, lease: int) -> None:
        """Acknowledge a report, and those before: it is on the disk elsewhere."""
        box = self.box(agent)
        box.taken = max(box.taken, lease)

    def letter(self, agent: int, number: int, data: bytes) -> None:
        """Put a letter into an agent's mailbox in place of its earlier one. Its number grows with each."""
        self.box(agent).letter = (number, data)

    def replies(self) -> list[tuple[int, int, bytes]]:
        """Return the answers to letters that were not returned before: agent, number of the letter, and answer."""
        replies, self._replies = self._replies, {}
        return list(replies.values())

    def replied(self, agent: int, number: int) -> None:
        """Acknowledge the answer to a letter, and to those before: it is on the disk elsewhere."""
        box = self.box(agent)
        box.replied = max(box.replied, number)

    def end(self, agent: int, counted: int) -> None:
        """Note that the study has ended for an agent; `counted` is its last step that counts."""
        self.box(agent).counted = counted

    # Answers.

    def answers(self, now: float) -> list[tuple[Channel, bytes]]:
        """Return the answers that are due, each with its channel."""
        for box in self._boxes.values():
            if box.held is not None:
                self._settle(box, now)
        due, self._outgoing = self._outgoing, []
        return due

    def next_time(self) -> float | None:
        """Return the time at which the next answer is due at the latest; None when no request waits."""
        return min((box.held.until for box in self._boxes.values() if box.held is not None), default=None)

    def _settle(self, box: Mailbox, now: float) -> None:
        """Answer a held request if there is something new for its site, or if it was held long enough."""
        held = box.held
        assert held is not None
        full = held.sync.has_more and box.taken >= held.sync.reports[-1][0]
        if any(_mail(box, now)) or full or now >= held.until or held.sync.knows_end or box.counted is not None:
            self._answer(box, now)
        elif any(_mail(box, inf)):
            held.until = min(held.until, box.sent_at + REPEAT)

    def _answer(self, box: Mailbox, now: float) -> None:
        """Answer the held request as things are now."""
        held = box.held
        assert held is not None
        head, mail = held.head, _mail(box, now)
        active = self._roster().key_of(head.agent)
        box.held = None
        if active is None or active.raw != held.key.raw:  # revoked since it came: nothing more may leave for it
            self._refused(REVOKED, head.agent)
            reply = SyncReply(wire.REFUSED, self._clock(), 0, text=REVOKED)
        elif box.counted is not None:
            reply = SyncReply(wire.ENDED, self._clock(), box.taken, box.counted)
        else:
            (lease, order), letter = (each or (0, b"") for each in mail)
            if any(mail):
                box.sent, box.sent_at = (lease or box.sent[0], letter[0] or box.sent[1]), now
            reply = SyncReply(
                wire.GOING, self._clock(), box.taken, lease=lease, order=order, replied=box.replied, letter=letter
            )
        answer = self._signed(head, reply)
        box.last = (head.signature, answer)
        self._outgoing += [(channel, answer) for channel in held.channels]

    def _join(self, box: Mailbox, head: RequestHead, channel: Channel) -> None:
        """Wait for the answer to a request that came before, or get it again. One that was overtaken gets an empty answer."""
        if box.held is not None and box.held.head.signature == head.signature:
            box.held.channels.append(channel)
            if len(box.held.channels) > MOST_JOINED:
                self._outgoing.append((box.held.channels.pop(0), self._signed(head, SyncReply(wire.GOING, self._clock(), 0))))
        else:
            is_last = box.last[0] == head.signature
            answer = box.last[1] if is_last else self._signed(head, SyncReply(wire.GOING, self._clock(), 0))
            self._outgoing.append((channel, answer))

    # What may be taken.

    def _verified(self, head: RequestHead, path: str) -> PublicKey:
        """Return the active key that signed a head; RequestRefused otherwise."""
        roster = self._roster()
        active = roster.key_of(head.agent)
        for entry in (entry for entry in roster.entries if entry.agent == head.agent):
            key = PublicKey.of_hex(entry.key)
            try:
                wire.verify_request(key, path, head)
            except SignatureError:
                continue
            if active is None or key.raw != active.raw:
                raise self._refusal(head, REVOKED)
            return key
        raise RequestRefused("no key of this agent signed it", head.agent)

    def _needs_body(self, head: RequestHead, key: PublicKey) -> bool:
        """Return whether a request is to be taken; False where it came before, or a later one came before it."""
        if head.sequence == 0 or self._sequences.is_new(head, key):
            return True
        if not self._sequences.is_last(head, key):
            if why := self._sequences.why_old(head, key):
                raise self._refusal(head, why)
            return False
        box = self.box(head.agent)
        is_held = box.held is not None and box.held.head.signature == head.signature
        return not is_held and box.last[0] != head.signature  # an earlier process of the coordinator took it

    def _refusal(self, head: RequestHead, why: str) -> RequestRefused:
        """Return a refusal, signed if the site must end: what an attacker on the way can cause must not end it."""
        if why not in FINAL:
            return RequestRefused(why, head.agent)
        answer = self._signed(head, SyncReply(wire.REFUSED, self._clock(), 0, text=why))
        return RequestRefused(why, head.agent, answer)

    def _signed(self, head: RequestHead, reply: SyncReply) -> bytes:
        return wire.sign_answer(self._key, head.signature, wire.pack_reply(reply))


def _mail(box: Mailbox, now: float) -> list[tuple[int, bytes] | None]:
    """Return the order and the letter that the site of a held request lacks; None for one that it has, or was just sent.

    A site may ask as often as it likes: without a least time each request of a few bytes would fetch a whole order.
    """
    assert box.held is not None
    known = (box.held.sync.seen, box.held.sync.letter)
    waits = box.sent if now < box.sent_at + REPEAT else (0, 0)
    found = zip((box.order or (0, b""), box.letter), known, waits, strict=True)
    return [mail if mail[0] > max(has, sent) else None for mail, has, sent in found]
