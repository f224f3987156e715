"""The numbers of the requests of each key, on disk: which request is new, which came before, and which must not be taken.

A request is refused, with the reason, when an older copy of a site's folder is used again, when two sites use one key, or when
the coordinator's own folder is an older copy.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

from fedbo.sites.keys import PublicKey
from fedbo.sites.outbox import JournalRecords
from fedbo.sites.wire import NO_REPORTS, RequestHead, Sync, chained

COPY = "the site's folder is an older copy, or two sites use one key; end one of them, and rotate the key"
OTHER_FOLDER = "another folder uses this key; end one of the two sites, and rotate the key"
BEHIND = "the coordinator's folder is an older copy than what this site has seen; restore the newest one"
REPEATED = "it is a repetition of an earlier request"
LATE = "it came after a later request of the same process"
_REMEMBERED = 64  # requests of each key that a refusal can tell from unknown ones
_RECORD = struct.Struct("<32sQ32sI8s16sQQQQ32s")  # the raw key, then the fields of its record
_FIELDS = ("sequence", "digest", "life", "start", "folder", "answered", "seen", "confirmed", "reported", "chain")


@dataclass(slots=True)
class KeyRecord:
    """The coordinator's record of the requests of one key; the fields but the last two are on the disk.

    - `sequence`, `digest`: the last request that was taken, and the SHA-256 of its body.
    - `life`, `start`, `folder`: the site's process and folder that sent it.
    - `answered`, `seen`, `confirmed`, `reported`, `chain`: what the site knew then, see `Sync`.
    - `recent`: signatures of the last requests that were taken; `since`: the sequence from which on this process took them all.
    """

    sequence: int = 0
    digest: bytes = b""
    life: int = 0
    start: bytes = b""
    folder: bytes = b""
    answered: int = 0
    seen: int = 0
    confirmed: int = 0
    reported: int = 0
    chain: bytes = NO_REPORTS
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    since: int = 0


class RequestSequences:
    """The last request of each key."""

    def __init__(self, records: JournalRecords) -> None:
        self._records = records
        self._keys: dict[bytes, KeyRecord] = dict(map(_unpacked, records.read()))

    def is_new(self, head: RequestHead, key: PublicKey) -> bool:
        """Return whether a request is above all that were taken of its key."""
        known = self._keys.get(key.raw)
        return known is None or head.sequence > known.sequence

    def is_last(self, head: RequestHead, key: PublicKey) -> bool:
        """Return whether a request is the last one that was taken of its key."""
        known = self._keys.get(key.raw, KeyRecord())
        return (head.sequence, head.digest, head.start) == (known.sequence, known.digest, known.start)

    def why_old(self, head: RequestHead, key: PublicKey) -> str:
        """Return why a request that is neither new nor the last one is refused.

        It is empty for one that a later request of the same process has overtaken, as on two connections of a site.
        """
        known = self._keys[key.raw]
        if head.signature in known.recent:
            return REPEATED
        if head.start != known.start or head.sequence == known.sequence:
            return COPY
        is_remembered = head.sequence > max(known.since, known.sequence - _REMEMBERED)
        return "" if is_remembered else LATE

    def why_inconsistent(self, head: RequestHead, key: PublicKey, sync: Sync) -> str:
        """Return what is wrong with a new request beside what was taken before; empty if nothing is."""
        known = self._keys.get(key.raw) or KeyRecord(
            folder=sync.folder, sequence=sync.answered, reported=sync.reported, chain=sync.chain
        )
        if sync.folder != known.folder:
            return OTHER_FOLDER
        is_earlier = sync.life < known.life or (sync.life == known.life and head.start != known.start)
        knows_less = any(getattr(sync, name) < getattr(known, name) for name in ("answered", "seen", "confirmed", "reported"))
        # An older copy that has caught up has carried the same orders out again, with other reports.
        further = [(lease, data) for lease, data in sync.reports if lease > known.reported]
        if is_earlier or knows_less or chained(known.chain, further) != sync.chain:
            return COPY
        return BEHIND if sync.answered > known.sequence else ""

    def take(self, head: RequestHead, key: PublicKey, sync: Sync) -> None:
        """Write the number of a request to the disk, before anything follows from it."""
        known = self._keys.get(key.raw) or KeyRecord()
        after = KeyRecord(
            sequence=head.sequence,
            digest=head.digest,
            life=sync.life,
            start=head.start,
            folder=sync.folder,
            answered=sync.answered,
            seen=sync.seen,
            confirmed=sync.confirmed,
            reported=sync.reported,
            chain=sync.chain,
            recent=known.recent,
            since=known.since,
        )
        if self._records.is_long:
            self._records.replace([_packed(raw, each) for raw, each in self._keys.items()])
        self._records.append(_packed(key.raw, after))
        after.recent.append(head.signature)
        self._keys[key.raw] = after


def _packed(raw: bytes, known: KeyRecord) -> bytes:
    """Return the record of a key as it is on the disk."""
    return _RECORD.pack(raw, *(getattr(known, name) for name in _FIELDS))


def _unpacked(record: bytes) -> tuple[bytes, KeyRecord]:
    raw, *fields = _RECORD.unpack(record)
    return raw, KeyRecord(**dict(zip(_FIELDS, fields, strict=True)), since=fields[0])
