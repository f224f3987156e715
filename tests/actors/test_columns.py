"""Requests and reports as columns: what comes out is what went in."""

import pickle
from typing import Any

import numpy as np
import pytest

from fedbo.actors.columns import from_reports, from_requests, to_reports, to_requests
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound
from fedbo.settings.records import changed

SHARED = np.arange(6.0).reshape(2, 3)


def omega(number: int) -> dict[str, Any]:
    """Make a message of an agent's own."""
    return {"omega": np.arange(4.0) + number, "sender": np.array([number])}


PAYLOADS: dict[str, list[Any]] = {
    "alike": [omega(0), omega(1), omega(2)],
    "none": [None, None, None],
    "one is missing": [omega(0), None, omega(2)],
    "the first is missing": [None, omega(1), omega(2)],
    "shared": [{"omega": SHARED}] * 3,
    "of two shapes": [omega(0), {"omega": np.zeros(3), "sender": np.array([1])}, omega(2)],
    "of two types": [{"omega": np.zeros(3)}, {"omega": np.zeros(3, np.float32)}, {"omega": np.zeros(3)}],
    "of other names": [omega(0), {"omega": np.zeros(4)}, omega(2)],
    "numbers": [{"omega": np.array(1.0 + i)} for i in range(3)],
    "by columns": [{"omega": np.asfortranarray(SHARED + i)} for i in range(3)],
    "empty": [{}, {}, {}],
    "no arrays": [{"omega": [1.0]}, b"damaged", 3],
}


def same(one: Any, other: Any) -> bool:
    """Compare messages by type, layout and value."""
    if not isinstance(one, dict):
        return bool(one == other)
    assert one.keys() == other.keys()
    return all(
        type(a) is type(b)
        and (not isinstance(a, np.ndarray) or (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides))
        and np.array_equal(a, b)
        for a, b in ((one[name], other[name]) for name in one)
    )


@pytest.mark.parametrize("kind", PAYLOADS)
def test_reports_come_out_of_columns_as_they_went_in(kind: str) -> None:
    reports = [StepReport(i, 3, 1, payload, 7, i, pulled=2) for i, payload in enumerate(PAYLOADS[kind])]
    found = to_reports(pickle.loads(pickle.dumps(from_reports(reports))))
    assert [changed(one, payload=None) for one in found] == [changed(one, payload=None) for one in reports]
    assert all(same(one.payload, other.payload) for one, other in zip(found, reports, strict=True))


@pytest.mark.parametrize("kind", PAYLOADS)
@pytest.mark.parametrize("letters", [1, 2])
def test_requests_come_out_of_columns_as_they_went_in(kind: str, letters: int) -> None:
    inboxes = [tuple(Inbound(-2, 4, 1.5 + i, payload) for _ in range(letters)) for i, payload in enumerate(PAYLOADS[kind])]
    requests = [StepRequest(i, 3, 7, inbox, restore="before") for i, inbox in enumerate(inboxes)]
    requests += [] if letters == 1 else [StepRequest(9, 3)]
    found = to_requests(pickle.loads(pickle.dumps(from_requests(requests))))
    assert [changed(one, inbox=()) for one in found] == [changed(one, inbox=()) for one in requests]
    for one, other in zip(found, requests, strict=True):
        assert [letter[:3] for letter in one.inbox] == [letter[:3] for letter in other.inbox]
        assert all(same(a.payload, b.payload) for a, b in zip(one.inbox, other.inbox, strict=True))


def test_nothing_comes_out_as_nothing() -> None:
    assert to_reports(from_reports([])) == [] and to_requests(from_requests([])) == []


def test_what_is_shared_is_sent_once() -> None:
    reports = [StepReport(i, 3, 1, {"omega": np.zeros(10_000)}) for i in range(3)]
    shared = [changed(one, payload=reports[0].payload) for one in reports]
    assert len(pickle.dumps(from_reports(shared))) < len(pickle.dumps(from_reports(reports))) / 2
