"""The bytes of a coordinator's order to a site and of the site's report: numbers, and arrays as the algorithm declares them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Declaration, Inbound, Payload
from fedbo.algorithms.messages import declared_size, decode, encode, longest
from fedbo.sites.release import SiteReport, largest, pack, unpack
from fedbo.sites.terms import SyncTerms
from fedbo.sites.wire import REPORT_BYTES, SYNC_BYTES, Reader, WireError

_ORDER = struct.Struct("<IIQ?BH")  # agent, step, lease, speaks, restore, messages
_LETTER = struct.Struct("<iidBI")  # sender, step, sent, kind of the payload, its bytes
_REPORT = struct.Struct("<IIIQQQBIHHI")  # `_NUMBERS`, then `ReportSizes`
_NUMBERS: Final = ("agent", "step", "queries", "lease", "t_n", "pulled")
_TEXT = struct.Struct("<H")
_RESTORE: Final = ("", "before", "checkpoint")
_NOTHING, _DUMMY, _ARRAYS, _MASKED = range(4)  # kinds of payloads; a masked one travels apart, and is zeros here
MOST_LETTERS = 2**12  # messages in one order
MOST_LINES, MOST_LINE = 8, 400  # texts of failed evaluations in a report, and bytes of one
MOST_RETRIED = 2**12


class ReportSizes(NamedTuple):
    """The sizes after the numbers of a report: the kind and bytes of its payload, and the amount of everything else.

    - `retried`: points that were evaluated again; `lines`: texts of failed evaluations; `released`: bytes of released rows.
    """

    kind: int
    payload: int
    retried: int
    lines: int
    released: int


def most_request(terms: SyncTerms) -> int:
    """Return the bytes of the longest legal body of a request: one report of the largest message, or several smaller ones."""
    texts = MOST_LINES * (_TEXT.size + MOST_LINE)
    report = _REPORT.size + _most(terms.upload) + 4 * MOST_RETRIED + texts + largest(terms.most_rows, terms.dim, terms.share)
    return SYNC_BYTES + REPORT_BYTES + report + terms.letter


def most_order(terms: SyncTerms) -> int:
    """Return the bytes of the longest legal order."""
    return _ORDER.size + MOST_LETTERS * (_LETTER.size + _most(terms.download))


def encode_order(request: StepRequest, terms: SyncTerms) -> bytes:
    """Return the bytes of an order; ValueError for one that only virtual time has."""
    if request.priced or any(each is not None for each in (request.tries, request.costs, request.ended)):
        raise ValueError("an order to a site has no durations, costs or ends, which are scheduled in virtual time only")
    if len(request.inbox) > MOST_LETTERS:
        raise ValueError(f"{len(request.inbox)} messages in one order, but at most {MOST_LETTERS} are allowed")
    restore = _RESTORE.index(request.restore)
    parts = [_ORDER.pack(request.agent, request.step, request.lease, request.speaks, restore, len(request.inbox))]
    for letter in request.inbox:
        kind, data = _packed(letter.payload, terms.download)
        parts += [_LETTER.pack(letter.sender, letter.step, letter.sent, kind, len(data)), data]
    return b"".join(parts)


def decode_order(data: bytes, terms: SyncTerms) -> StepRequest:
    """Read an order; WireError where the bytes are none."""
    reader = Reader(data)
    agent, step, lease, speaks, restore, count = reader.take(_ORDER)
    if restore >= len(_RESTORE) or count > MOST_LETTERS:
        raise WireError("an order has a number out of range")
    inbox = []
    for _ in range(count):
        sender, sent_step, sent, kind, length = reader.take(_LETTER)
        payload = _unpacked(kind, reader.bytes(length), terms.download)
        if payload is None:
            raise WireError("a message of an order has no payload")
        inbox.append(Inbound(sender, step=sent_step, sent=sent, payload=payload))
    reader.end()
    return StepRequest(agent=agent, step=step, lease=lease, inbox=tuple(inbox), speaks=speaks, restore=_RESTORE[restore])


def encode_report(report: StepReport, terms: SyncTerms) -> bytes:
    """Return the bytes of a report, with what its site releases. Longer texts, and further ones, are cut off."""
    if report.again or report.verdicts or report.failure is not None:
        raise ValueError("a report of a site has no verdicts, failures and evaluations to repeat: it carries those out itself")
    kind, payload = _packed(report.payload, terms.upload)
    if terms.letter and payload:  # a masked message travels in a letter, and never here
        kind, payload = _MASKED, b""
    released = pack(report.released, terms.dim, terms.share) if isinstance(report, SiteReport) else b""
    lines = [line.encode()[:MOST_LINE] for line in report.failed[:MOST_LINES]]
    lengths = {"payload": len(payload), "retried": len(report.retried), "lines": len(lines), "released": len(released)}
    sizes = ReportSizes(kind=kind, **lengths)
    head = _REPORT.pack(*(getattr(report, name) for name in _NUMBERS), *sizes)
    retried = struct.pack(f"<{len(report.retried)}I", *report.retried)
    texts = b"".join(_TEXT.pack(len(line)) + line for line in lines)
    return head + payload + retried + texts + released


def decode_report(agent: int, lease: int, data: bytes, terms: SyncTerms) -> SiteReport:
    """Read the report of an agent on the order of this lease; WireError where the bytes are none."""
    reader = Reader(data)
    fields = reader.take(_REPORT)
    numbers = dict(zip(_NUMBERS, fields[: len(_NUMBERS)], strict=True))
    sizes = ReportSizes(**dict(zip(ReportSizes._fields, fields[len(_NUMBERS) :], strict=True)))
    if (numbers["agent"], numbers["lease"]) != (agent, lease):
        raise WireError("a report is of another agent, or of another order than its number says")
    if sizes.retried > MOST_RETRIED or sizes.lines > MOST_LINES:
        raise WireError("a report lists too much")
    payload = _uploaded(sizes.kind, reader.bytes(sizes.payload), terms)
    retried = reader.take(struct.Struct(f"<{sizes.retried}I"))
    _check_counts(numbers, retried, terms)
    failed = tuple([reader.text(_length(reader)) for _ in range(sizes.lines)])
    released = reader.bytes(sizes.released)
    reader.end()
    try:
        unpacked = unpack(released, terms.dim, agent, terms.share)
    except ValueError as error:
        raise WireError(f"what it releases is invalid: {error}") from None
    if len(unpacked) > terms.most_rows:
        raise WireError(f"{len(unpacked)} rows, but at most {terms.most_rows} are allowed")
    for row in unpacked:
        _check_counts({"step": row.step, "t_n": row.t_n, "pulled": row.pulls}, (row.query,), terms)
    return SiteReport(**numbers, payload=payload, retried=retried, failed=failed, released=unpacked)


def _check_counts(numbers: Mapping[str, int], points: Iterable[int], terms: SyncTerms) -> None:
    """Check that numbers of a report, and of points in a step, are within the study's budget; WireError."""
    most, limits = terms.most_evaluations, {"step": terms.last_step, "queries": terms.most_points}
    limits |= {"t_n": most, "pulled": most}
    beyond = [f"{name} {value:,}" for name, value in numbers.items() if value > limits.get(name, value)]
    beyond += [f"point {point:,}" for point in points if point >= terms.most_points]
    if beyond:
        raise WireError(f"a report has a number beyond the budget of the study: {beyond[0]}")


def _uploaded(kind: int, data: bytes, terms: SyncTerms) -> Payload | None:
    """Read the message of a report; zeros in place of one that is masked. WireError where it is not as declared."""
    if kind != (_ARRAYS if terms.letter else _MASKED):
        hidden = kind == _MASKED and not data
        return _unpacked(_ARRAYS if hidden else kind, bytes(_most(terms.upload)) if hidden else data, terms.upload)
    raise WireError("a message is masked, or not, against the terms of the study")


def _length(reader: Reader) -> int:
    (length,) = reader.take(_TEXT)
    if length > MOST_LINE:
        raise WireError("a text of a report is too long")
    return int(length)


def _most(declaration: Declaration | None) -> int:
    """Return the bytes of the longest message."""
    return 0 if declaration is None else declared_size(declaration, longest(declaration))


def _packed(payload: Payload | None, declaration: Declaration | None) -> tuple[int, bytes]:
    """Return the kind and the bytes of a payload. An empty one says only that something was sent."""
    if payload is None:
        return _NOTHING, b""
    if not payload or declaration is None:
        return _DUMMY, b""
    return _ARRAYS, encode(payload, declaration)


def _unpacked(kind: int, data: bytes, declaration: Declaration | None) -> Payload | None:
    """Read a payload; WireError where it is not as declared. Its arrays are read-only, since several receivers share them."""
    if kind in (_NOTHING, _DUMMY) and not data:
        return None if kind == _NOTHING else {}
    if kind != _ARRAYS or declaration is None:
        raise WireError("a message is of an unknown kind, or none is declared")
    try:
        payload = decode(data, declaration)
    except ValueError as error:
        raise WireError(str(error)) from None
    for array in payload.values():
        array.flags.writeable = False
    return payload
