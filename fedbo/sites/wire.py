"""The bytes of a request of a site and of the coordinator's answer: a fixed head with a signature, then a body.

The head comes first and is signed, so a server reads a body only for a site that it knows, and only of the signed length.
Nothing in a body is a pickle or a name of a class. All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from fedbo.settings.shown import shown
from fedbo.sites.errors import SitesError
from fedbo.sites.keys import PrivateKey, PublicKey

SYNC, HELLO = "/v1/sync", "/v1/hello"
# The last character is the version of the format, of the reports in a request and of the orders and letters in an answer too.
REQUEST_MAGIC, ANSWER_MAGIC = b"FBQ2", b"FBA1"
START_BYTES = 8  # random, drawn anew by each process of a site
FOLDER_BYTES = 16  # random, drawn once for the folder of a site
_REQUEST = struct.Struct("<4s32sI8sQI32s64s")  # magic, study, agent, start, sequence, length, SHA-256, signature
_ANSWER = struct.Struct("<4sI32s64s")  # magic, length, SHA-256, signature
REQUEST_HEAD, ANSWER_HEAD = _REQUEST.size, _ANSWER.size
_SYNC = struct.Struct("<I16sQQQQ32sQ??BQQI")  # the fields of Sync; of reports their number, of the answer number and bytes
# Status, clock, taken, counted, lease and bytes of the order, bytes of the text, replied, number and bytes of the letter.
_REPLY = struct.Struct("<BdQqQIHQQI")
_LENGTH, _REPORT = struct.Struct("<I"), struct.Struct("<QI")  # of a report: its lease and length
SYNC_BYTES, REPORT_BYTES, REPLY_BYTES = _SYNC.size, _REPORT.size, _REPLY.size
HOLD = 25.0  # seconds that a request without an answer is held open; proxies cut connections after 30 to 60
SLOWEST = 2**14  # bytes per second at which a body must arrive
MOST_REPORTS = 16  # in one request
MOST_TEXT = 400  # bytes of the text of a refusal


class WireError(SitesError):
    """Bytes that are not as the format demands."""


class RequestHead(NamedTuple):
    """The head of a request.

    - `study`: digest of the study `(32,)`.
    - `agent`: number of the agent that the sender claims to be.
    - `start`: random bytes `(8,)` of the process that sent it.
    - `sequence`: number of the request; 0 for one that changes nothing.
    - `length`, `digest`: bytes of the body, and its SHA-256.
    - `signature`: signature `(64,)` by the site's key.
    """

    study: bytes
    agent: int
    start: bytes
    sequence: int
    length: int = 0
    digest: bytes = b""
    signature: bytes = b""


class Sync(NamedTuple):
    """The body of a request.

    - `life`: number of processes that this folder has had; `folder`: random bytes `(16,)` that identify it.
    - `answered`: highest sequence whose answer the site has received.
    - `seen`: highest lease among the orders on its disk.
    - `confirmed`: highest lease among acknowledged reports; `reported`: also among those of this request.
    - `chain`: digest `(32,)` of all reports up to `reported`, see `chained`.
    - `evaluating`: lease of the order that is being carried out, 0 for none.
    - `knows_end`: whether the site knows that the study has ended.
    - `has_more`: whether further reports did not fit, so that it wants an answer as soon as these are acknowledged.
    - `reports`: reports that are not acknowledged, each with its lease, in order.
    - `letter`: number of the newest letter that this process has received.
    - `answer`: number of a letter, and the site's answer to it, if that is not acknowledged.
    """

    life: int
    folder: bytes
    answered: int
    seen: int
    confirmed: int
    reported: int
    chain: bytes
    evaluating: int
    knows_end: bool
    has_more: bool
    reports: tuple[tuple[int, bytes], ...]
    letter: int = 0
    answer: tuple[int, bytes] = (0, b"")


_PLAIN = Sync._fields.index("reports")  # fields of a request that travel as they are, before those whose length varies
GOING, ENDED, REFUSED = range(3)


class SyncReply(NamedTuple):
    """The body of an answer.

    - `status`: `GOING`, `ENDED` (the study has ended) or `REFUSED` (the site must not go on; `text` is the reason).
    - `clock`: the study's time in seconds.
    - `taken`: highest lease among the reports that are acknowledged.
    - `counted`: last step of the agent that counts where the study has ended; -1 for none.
    - `order`: the newest order, if the site has not seen it, and its `lease`.
    - `replied`: number of the newest letter whose answer is acknowledged.
    - `letter`: the newest letter with its number, if the site has not seen it.
    """

    status: int
    clock: float
    taken: int
    counted: int = -1
    lease: int = 0
    order: bytes = b""
    text: str = ""
    replied: int = 0
    letter: tuple[int, bytes] = (0, b"")


NO_REPORTS = bytes(32)  # the chain before the first report


def chained(chain: bytes, reports: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the digest of all reports up to and with these, of which `chain` is the digest before them."""
    for lease, data in reports:
        chain = hashlib.sha256(chain + struct.pack("<Q", lease) + hashlib.sha256(data).digest()).digest()
    return chain


def sign_request(key: PrivateKey, path: str, head: RequestHead, body: bytes) -> bytes:
    """Return a request: `head` with the length, the digest and the signature of `body`, and the body."""
    head = head._replace(length=len(body), digest=hashlib.sha256(body).digest())
    head = head._replace(signature=key.sign(_signed_request(path, head)))
    return _packed(head) + body


def read_head(data: bytes) -> RequestHead:
    """Read the head of a request; WireError where it is none."""
    if len(data) != REQUEST_HEAD or not data.startswith(REQUEST_MAGIC):
        raise WireError("it does not begin with the head of a request of this version")
    _, study, agent, start, sequence, length, digest, signature = _REQUEST.unpack(data)
    return RequestHead(
        study=study, agent=agent, start=start, sequence=sequence, length=length, digest=digest, signature=signature
    )


def verify_request(key: PublicKey, path: str, head: RequestHead) -> None:
    """Check the signature of a head; SignatureError otherwise. Its body is as signed if it has the signed digest."""
    key.verify(_signed_request(path, head), head.signature)


def check_body(head: RequestHead, body: bytes) -> None:
    """Check that a body is the signed one; WireError otherwise."""
    if len(body) != head.length or hashlib.sha256(body).digest() != head.digest:
        raise WireError("its body is not the signed one")


def sign_answer(key: PrivateKey, request: bytes, body: bytes) -> bytes:
    """Return an answer: its head, signed over the signature `request` of the request that it answers, and its body."""
    digest = hashlib.sha256(body).digest()
    signature = key.sign(_signed_answer(request, len(body), digest))
    return _ANSWER.pack(ANSWER_MAGIC, len(body), digest, signature) + body


def verify_answer(key: PublicKey, request: bytes, data: bytes) -> int:
    """Check the head of an answer to the request with the signature `request`; return the length of its body.

    WireError where it is no answer, SignatureError where the coordinator did not give it to this request.
    """
    if len(data) < ANSWER_HEAD or not data.startswith(ANSWER_MAGIC):
        raise WireError("what came is not an answer of a coordinator of this version")
    _, length, digest, signature = _ANSWER.unpack_from(data)
    key.verify(_signed_answer(request, length, digest), signature)
    return int(length)


def answer_body(key: PublicKey, request: bytes, data: bytes) -> bytes:
    """Return the body of a whole answer; errors as `verify_answer`."""
    length, body = verify_answer(key, request, data), data[ANSWER_HEAD:]
    if len(body) != length or hashlib.sha256(body).digest() != _ANSWER.unpack_from(data)[2]:
        raise WireError("the body of the answer is not the signed one")
    return body


def pack_sync(sync: Sync) -> bytes:
    """Return the body of a request."""
    head = _SYNC.pack(*sync[:_PLAIN], len(sync.reports), sync.letter, sync.answer[0], len(sync.answer[1]))
    return head + b"".join(_REPORT.pack(lease, len(data)) + data for lease, data in sync.reports) + sync.answer[1]


def unpack_sync(data: bytes) -> Sync:
    """Read the body of a request; WireError where it is none."""
    reader = Reader(data)
    *fields, count, letter, answered, size = reader.take(_SYNC)
    if count > MOST_REPORTS:
        raise WireError(f"{count} reports, but at most {MOST_REPORTS} are allowed")
    reports = []
    for _ in range(count):
        lease, length = reader.take(_REPORT)
        reports.append((lease, reader.bytes(length)))
    answer = (answered, reader.bytes(size))
    reader.end()
    if any(before >= after for (before, _), (after, _) in zip(reports, reports[1:], strict=False)):
        raise WireError("its reports are not in order")
    numbers = dict(zip(Sync._fields[:_PLAIN], fields, strict=True))
    return Sync(**numbers, reports=tuple(reports), letter=letter, answer=answer)


def pack_reply(reply: SyncReply) -> bytes:
    """Return the body of an answer; a long text is cut off."""
    text = reply.text.encode("ascii", "backslashreplace")[:MOST_TEXT]
    letters = (reply.replied, reply.letter[0], len(reply.letter[1]))
    sizes = (len(reply.order), len(text), *letters)
    head = _REPLY.pack(reply.status, reply.clock, reply.taken, reply.counted, reply.lease, *sizes)
    return head + reply.order + text + reply.letter[1]


def unpack_reply(data: bytes) -> SyncReply:
    """Read the body of an answer; WireError where it is none."""
    reader = Reader(data)
    status, clock, taken, counted, lease, order, text, replied, letter, size = reader.take(_REPLY)
    reply = SyncReply(
        status=status,
        clock=clock,
        taken=taken,
        counted=counted,
        lease=lease,
        order=reader.bytes(order),
        text=reader.text(text),
        replied=replied,
        letter=(letter, reader.bytes(size)),
    )
    reader.end()
    if status not in (GOING, ENDED, REFUSED):
        raise WireError(f"unknown status {status}")
    return reply


def answer_parts(data: bytes) -> list[bytes]:
    """Return an answer of this coordinator in three parts: all before its order, the order, and the rest with the letter."""
    begin = ANSWER_HEAD + REPLY_BYTES
    end = begin + int(_REPLY.unpack_from(data, ANSWER_HEAD)[5])
    return [data[:begin], data[begin:end], data[end:]]


class Reader:
    """A position in bytes of somebody else; reading beyond their end is a WireError."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        """Return the fields of a structure."""
        return form.unpack(self.bytes(form.size))

    def bytes(self, size: int) -> bytes:
        """Return this many bytes."""
        piece = self._data[self._place : self._place + size]
        if len(piece) != size:
            raise WireError("it ends too early")
        self._place += size
        return piece

    def text(self, size: int) -> str:
        """Return a text of this many bytes, escaped for a terminal."""
        return shown(self.bytes(size).decode("utf-8", "replace"))

    def end(self) -> None:
        """Check that nothing is left."""
        if self._place != len(self._data):
            raise WireError("it has extra bytes")


def _packed(head: RequestHead) -> bytes:
    return _REQUEST.pack(
        REQUEST_MAGIC, head.study, head.agent, head.start, head.sequence, head.length, head.digest, head.signature
    )


def _signed_request(path: str, head: RequestHead) -> bytes:
    return b"fedbo request\nPOST %s\n" % path.encode() + _packed(head._replace(signature=b""))


def _signed_answer(request: bytes, length: int, digest: bytes) -> bytes:
    return b"fedbo answer\n" + ANSWER_MAGIC + request + _LENGTH.pack(length) + digest
