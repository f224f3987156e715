"""Requests and reports as columns: what comes out is what went in."""

import pickle
from typing import Any

import numpy as np
import pytest

from fedbo.actors.columns import ByAgent, StepReports, joint_reports, joint_requests, rows_of, single_reports, single_requests
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound
from fedbo.settings.records import changed

SHARED = np.arange(6.0).reshape(2, 3)


def omega(number: int) -> dict[str, Any]:
    """Make a message of an agent's own."""
    return {"omega": np.arange(4.0) + number, "sender": np.array([number])}


ALIKE: dict[str, list[Any]] = {
    "alike": [omega(0), omega(1), omega(2)],
    "one for all": [omega(0)] * 3,
    "shared in part": [{"omega": SHARED, "weight": np.arange(3.0) + i} for i in range(3)],
}
UNLIKE: dict[str, list[Any]] = {
    "one is missing": [omega(0), None, omega(2)],
    "the first is missing": [None, omega(1), omega(2)],
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
        (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides) and np.array_equal(a, b)
        for a, b in ((one[name], other[name]) for name in one)
    )


def reports_of(payloads: list[Any]) -> list[StepReport]:
    return [StepReport(i, 3, 1, payload, 7, i, pulled=2 + i) for i, payload in enumerate(payloads)]


def requests_of(payloads: list[Any], letters: int) -> list[StepRequest]:
    """Make a request with so many letters of each payload, and one without any."""
    inboxes = [tuple(Inbound(-2, n, 1.5 + i, payload) for n in range(letters)) for i, payload in enumerate(payloads)]
    found = [StepRequest(i, 3, 7 + i, inbox, speaks=i > 0) for i, inbox in enumerate(inboxes)]
    return found if letters == 1 else [found[0], StepRequest(9, 3), *found[1:]]


def are_same_requests(found: list[StepRequest], expected: list[StepRequest]) -> bool:
    assert [changed(one, inbox=()) for one in found] == [changed(one, inbox=()) for one in expected]
    pairs = [(one.inbox, other.inbox) for one, other in zip(found, expected, strict=True)]
    assert all(len(one) == len(other) for one, other in pairs)
    letters = [pair for one, other in pairs for pair in zip(one, other, strict=True)]
    return all(one[:3] == other[:3] and same(one.payload, other.payload) for one, other in letters)


@pytest.mark.parametrize("kind", [*ALIKE, "none"])
def test_plain_reports_come_out_of_columns_as_they_went_in(kind: str) -> None:
    reports = reports_of(ALIKE.get(kind, [None] * 3))
    joint = joint_reports(reports)
    assert isinstance(joint, StepReports)
    found = single_reports(pickle.loads(pickle.dumps(joint)))
    assert [changed(one, payload=None) for one in found] == [changed(one, payload=None) for one in reports]
    assert all(same(one.payload, other.payload) for one, other in zip(found, reports, strict=True))
    (last,) = single_reports(rows_of(joint, np.array([2])))
    assert last.pulled == 4 and same(last.payload, reports[2].payload)


@pytest.mark.parametrize("kind", UNLIKE)
def test_messages_of_other_forms_are_no_columns(kind: str) -> None:
    reports = reports_of(UNLIKE[kind])
    assert joint_reports(reports) is reports
    assert joint_requests(requests_of(UNLIKE[kind], 1)) is None


def test_what_is_not_plain_is_no_column() -> None:
    assert joint_requests([StepRequest(0, 1), StepRequest(1, 1, restore="before")]) is None
    assert joint_requests([StepRequest(0, 1, priced=True)]) is None
    assert not isinstance(joint_reports([StepReport(0, 1, 1, None), StepReport(1, 1, 1, None, reached=True)]), StepReports)


@pytest.mark.parametrize("kind", ALIKE)
@pytest.mark.parametrize("letters", [0, 1, 2])
def test_plain_requests_come_out_of_columns_as_they_went_in(kind: str, letters: int) -> None:
    requests = requests_of(ALIKE[kind], letters)
    joint = joint_requests(requests)
    assert joint is not None
    assert are_same_requests(single_requests(pickle.loads(pickle.dumps(joint))), requests)
    for some in ([1, 0], [2], [0, 2, 1]):
        assert are_same_requests(single_requests(rows_of(joint, np.array(some))), [requests[place] for place in some])


def test_what_is_shared_is_sent_once() -> None:
    large = [{"omega": np.full(10_000, 1.0 * i)} for i in range(3)]
    sizes = [len(pickle.dumps(joint_requests(requests_of(some, 1)))) for some in (large, [large[0]] * 3)]
    assert sizes[1] < sizes[0] / 2


@pytest.mark.parametrize("plain", [True, False])
def test_what_waits_by_agent_is_the_newest_and_comes_in_any_order(plain: bool) -> None:
    waiting = ByAgent()
    first, second = (joint_reports(reports_of(ALIKE[kind])) for kind in ("alike", "one for all"))
    assert isinstance(first, StepReports) and isinstance(second, StepReports)
    waiting.put(first)
    second.agent, second.pulled = np.array([2, 5, 3]), np.array([7, 8, 9])
    waiting.put(second)
    third = StepReport(4, 3, 1, omega(4) if plain else None, pulled=11)
    waiting.put([third])
    assert sorted(waiting) == list(range(6)) and len(waiting) == 6
    assert waiting.have(np.array([7, 3, 4])).tolist() == [False, True, True]
    assert waiting.pop(5).pulled == 8 and 5 not in waiting
    waiting.discard(1)
    found = waiting.reports(np.array([4, 0, 3, 2]))
    assert isinstance(found, StepReports) == plain
    singles = single_reports(found) if isinstance(found, StepReports) else found
    assert [(one.agent, one.pulled) for one in singles] == [(4, 11), (0, 2), (3, 9), (2, 7)]
    assert all(one.payload is not None or not plain for one in singles) and len(waiting) == 0
