"""The bytes that travel: what is written is read again, each byte is signed, and nothing else is accepted."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
from sync_study import TERMS

from fedbo.actors.task import EvaluationEnd, StepReport, StepRequest
from fedbo.algorithms.base import Field, Inbound
from fedbo.sites import orders, wire
from fedbo.sites.errors import SignatureError
from fedbo.sites.keys import PrivateKey
from fedbo.sites.release import SiteReport
from fedbo.sites.wire import RequestHead, Sync, SyncReply, WireError

KEY = PrivateKey.drawn()
HEAD = RequestHead(study=b"s" * 32, agent=3, start=b"starting", sequence=7, length=0, digest=b"", signature=b"")
SYNC = Sync(
    life=2, folder=b"f" * 16, answered=5, seen=9, confirmed=6, reported=8, chain=b"c" * 32, evaluating=9, knows_end=False,
    has_more=True, reports=((7, b"seven"), (8, b"")),
)  # fmt: skip
REPLY = SyncReply(status=wire.GOING, clock=12.5, taken=8, lease=10, order=b"an order", text="a reason")
REQUEST = StepRequest(
    agent=3,
    step=4,
    lease=10,
    inbox=(Inbound(-1, 4, 2.5, {"mean": np.array([1.0, -0.0, 1e-300])}), Inbound(2, 3, 2.0, {})),
    speaks=False,
    restore="checkpoint",
)
REPORT = SiteReport(
    agent=3,
    step=4,
    queries=2,
    payload={"mean": np.array([1.0, 2.0, 3.0]), "count": np.array(2**60)},
    lease=10,
    t_n=11,
    retried=(0, 1),
    failed=("first", "sécond"),
    pulled=13,
)


def _same(first: Any, second: Any) -> bool:
    """Return whether two values are equal in type and bits."""
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
    if isinstance(first, dict):
        return [*first] == [*second] and all(_same(first[name], second[name]) for name in first)
    if isinstance(first, Inbound):
        return first[:3] == second[:3] and _same(first.payload, second.payload)
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return type(first) is type(second) and first == second


def _fields(value: Any) -> dict[str, Any]:
    names = [*StepReport.__slots__, "released"] if isinstance(value, SiteReport) else value.__slots__  # type: ignore[attr-defined]
    return {name: getattr(value, name) for name in names}


def test_bodies_come_back_as_they_were() -> None:
    assert wire.unpack_sync(wire.pack_sync(SYNC)) == SYNC
    assert wire.unpack_reply(wire.pack_reply(REPLY)) == REPLY


def test_an_order_and_a_report_come_back_as_they_were() -> None:
    order = orders.decode_order(orders.encode_order(REQUEST, TERMS), TERMS)
    assert _same(_fields(order), _fields(REQUEST))
    assert not order.inbox[0].payload["mean"].flags.writeable
    report = orders.decode_report(3, 10, orders.encode_report(REPORT, TERMS), TERMS)
    assert _same(_fields(report), _fields(REPORT))


def test_an_order_has_at_most_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "MOST_LETTERS", 2)
    (letter, *_) = REQUEST.inbox
    full = StepRequest(0, 1, inbox=(letter, letter))
    assert len(orders.decode_order(orders.encode_order(full, TERMS), TERMS).inbox) == 2
    with pytest.raises(ValueError, match="3 messages in one order, but at most 2 are allowed"):
        orders.encode_order(StepRequest(0, 1, inbox=(letter, letter, letter)), TERMS)


def test_a_report_without_a_message_differs_from_an_empty_message() -> None:
    for payload in (None, {}):
        report = SiteReport(3, 4, 0, payload, lease=10)
        assert orders.decode_report(3, 10, orders.encode_report(report, TERMS), TERMS).payload == payload


def test_the_signature_covers_every_byte_of_a_request_and_its_path() -> None:
    data = wire.sign_request(KEY, wire.SYNC, HEAD, wire.pack_sync(SYNC))
    head = wire.read_head(data[: wire.REQUEST_HEAD])
    wire.verify_request(KEY.public, wire.SYNC, head)
    wire.check_body(head, data[wire.REQUEST_HEAD :])
    with pytest.raises(SignatureError):
        wire.verify_request(KEY.public, wire.HELLO, head)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises((WireError, SignatureError)):
            head = wire.read_head(bytes(changed[: wire.REQUEST_HEAD]))
            wire.verify_request(KEY.public, wire.SYNC, head)
            wire.check_body(head, bytes(changed[wire.REQUEST_HEAD :]))


def test_the_signature_covers_every_byte_of_an_answer_and_the_request() -> None:
    asked = b"r" * 64
    data = wire.sign_answer(KEY, asked, wire.pack_reply(REPLY))
    assert wire.unpack_reply(wire.answer_body(KEY.public, asked, data)) == REPLY
    with pytest.raises(SignatureError):
        wire.answer_body(KEY.public, b"q" * 64, data)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises((WireError, SignatureError)):
            wire.answer_body(KEY.public, asked, bytes(changed))
    with pytest.raises(WireError):
        wire.answer_body(KEY.public, asked, data + b"x")


READERS = {
    "sync": (wire.pack_sync(SYNC), wire.unpack_sync),
    "reply": (wire.pack_reply(REPLY), wire.unpack_reply),
    "order": (orders.encode_order(REQUEST, TERMS), lambda data: orders.decode_order(data, TERMS)),
    "report": (orders.encode_report(REPORT, TERMS), lambda data: orders.decode_report(3, 10, data, TERMS)),
}


@pytest.mark.parametrize("what", READERS)
def test_bytes_that_are_cut_off_or_too_long_are_refused(what: str) -> None:
    data, read = READERS[what]
    for size in range(len(data)):
        with pytest.raises(WireError):
            read(data[:size])
    with pytest.raises(WireError):
        read(data + b"\0")


@pytest.mark.parametrize("what", READERS)
def test_bytes_at_random_are_refused_or_read_and_raise_nothing_else(what: str) -> None:
    data, read = READERS[what]
    draws = random.Random(11)
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(draws.randint(1, 4)):
            changed[draws.randrange(len(changed))] = draws.randrange(256)
        try:
            read(bytes(changed))
        except WireError:
            continue
    for junk in (b"", pickle.dumps(REPORT), draws.randbytes(5000)):
        with pytest.raises(WireError):
            read(junk)


def test_the_longest_legal_report_is_not_longer_than_announced() -> None:
    terms = TERMS._replace(upload={"rows": Field((None, 3), longest=50)}, share="scores", most_rows=16)
    report = SiteReport(3, 4, 2, {"rows": np.ones((50, 3))}, lease=10, failed=("x" * 1000,) * 20)
    report.retried = (1,) * orders.MOST_RETRIED
    data = orders.encode_report(report, terms)
    sync = SYNC._replace(reports=((10, data),))
    assert len(wire.pack_sync(sync)) <= orders.most_request(terms)
    longer = SiteReport(3, 4, 2, {"rows": np.ones((51, 3))}, lease=10)
    with pytest.raises(WireError, match="does not match any length"):
        orders.decode_report(3, 10, orders.encode_report(longer, terms), terms)


def test_a_report_of_another_agent_or_order_is_refused() -> None:
    data = orders.encode_report(REPORT, TERMS)
    for agent, lease in ((2, 10), (3, 9)):
        with pytest.raises(WireError, match="another agent"):
            orders.decode_report(agent, lease, data, TERMS)


def test_an_order_of_virtual_time_does_not_travel() -> None:
    for words in ({"priced": True}, {"tries": (1.0,)}, {"costs": (1.0,)}, {"ended": (EvaluationEnd(0, 0, 0.0, 1.0),)}):
        with pytest.raises(ValueError, match="virtual time"):
            orders.encode_order(StepRequest(0, 1, **words), TERMS)  # type: ignore[arg-type]


def test_texts_of_a_report_cannot_control_a_terminal() -> None:
    report = SiteReport(3, 4, 1, None, lease=10, failed=("\x1b[2Jgone",))
    (line,) = orders.decode_report(3, 10, orders.encode_report(report, TERMS), TERMS).failed
    assert line == "\\u001b[2Jgone"
