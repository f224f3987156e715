"""Requests and reports of many agents as columns, which take a third of the time to send between processes.

The engine speaks of many steps at once in `StepRequests` and `StepReports`, where all of them are plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound, Payload

Columns = dict[str, Any]  # by field
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Letters:
    """One message for each of k requests: `senders (k,)`, their `steps (k,)`, the times `sent (k,)`, and `payload` by name.

    An array of `payload` is `(k, ...)`; its rows are read-only.
    """

    senders: Ints
    steps: Ints
    sent: npt.NDArray[np.float64]
    payload: dict[str, npt.NDArray[Any]]


@dataclass(slots=True)
class StepRequests:
    """Plain requests to k different agents: nothing but `agent`, `step`, `lease`, `speaks` `(k,)`, and an inbox.

    Every inbox is empty, or has exactly one of the `letters`.
    """

    agent: Ints
    step: Ints
    lease: Ints
    speaks: npt.NDArray[np.bool_]
    letters: Letters | None = None


@dataclass(slots=True)
class StepReports:
    """Plain reports of k different agents, where nothing was retried or failed, no target was reached and no time was
    counted.

    `agent`, `step`, `lease`, `queries`, `t_n` and `pulled` are `(k,)`. `payload` has an array `(k, ...)` for each name, or is
    None where no agent sends a message.
    """

    agent: Ints
    step: Ints
    lease: Ints
    queries: Ints
    t_n: Ints
    pulled: Ints
    payload: dict[str, npt.NDArray[Any]] | None = None


def single_requests(requests: StepRequests) -> list[StepRequest]:
    """Return plain requests one by one."""
    inboxes: Iterable[tuple[Inbound, ...]] = [()] * len(requests.agent)
    if (letters := requests.letters) is not None:
        payloads = _unstacked(_Stack(letters.payload))
        each = map(Inbound, letters.senders.tolist(), letters.steps.tolist(), letters.sent.tolist(), payloads)
        inboxes = [(letter,) for letter in each]
    numbers = (requests.agent.tolist(), requests.step.tolist(), requests.lease.tolist())
    return list(map(StepRequest, *numbers, inboxes, requests.speaks.tolist()))


def joint_reports(reports: list[StepReport]) -> StepReports | list[StepReport]:
    """Return reports as columns, or unchanged where one of them is not plain."""
    if not reports or any(
        one.retried or one.failed or one.failure is not None or one.again or one.reached or one.verdicts or one.spent
        for one in reports
    ):
        return reports
    payloads = None
    if any(one.payload is not None for one in reports):
        payloads = _stacked([one.payload for one in reports])
        if not isinstance(payloads, _Stack):
            return reports
    names = ("agent", "step", "lease", "queries", "t_n", "pulled")
    numbers = {name: np.array([getattr(one, name) for one in reports], np.int64) for name in names}
    return StepReports(**numbers, payload=None if payloads is None else payloads.arrays)


class _Stack(NamedTuple):
    """Messages with the same names and shapes: one array `(k, ...)` for each name, stacked."""

    arrays: dict[str, npt.NDArray[Any]]


class _Inboxes(NamedTuple):
    """Inboxes of exactly one message each: senders, steps, sending times and payloads."""

    senders: list[int]
    steps: list[int]
    sent: list[float]
    payloads: Any


def from_requests(requests: Sequence[StepRequest]) -> Columns:
    """Convert requests to columns."""
    columns = _columns(StepRequest, requests)
    if requests and all(len(inbox) == 1 for inbox in columns["inbox"]):
        letters = [inbox[0] for inbox in columns["inbox"]]
        columns["inbox"] = _Inboxes(
            senders=[letter.sender for letter in letters],
            steps=[letter.step for letter in letters],
            sent=[letter.sent for letter in letters],
            payloads=_stacked([letter.payload for letter in letters]),
        )
    return columns


def to_requests(columns: Columns) -> list[StepRequest]:
    """Convert columns back to requests."""
    letters = columns["inbox"]
    if isinstance(letters, _Inboxes):
        each = map(Inbound, letters.senders, letters.steps, letters.sent, _unstacked(letters.payloads))
        columns = {**columns, "inbox": [(letter,) for letter in each]}
    return list(map(StepRequest, *columns.values()))


def from_reports(reports: Sequence[StepReport]) -> Columns:
    """Convert reports to columns."""
    columns = _columns(StepReport, reports)
    if reports:
        columns["payload"] = _stacked(columns["payload"])
    return columns


def to_reports(columns: Columns) -> list[StepReport]:
    """Convert columns back to reports."""
    columns = {**columns, "payload": _unstacked(columns["payload"])}
    return list(map(StepReport, *columns.values()))


def _columns(kind: type, records: Sequence[Any]) -> Columns:
    """Return the values of each field, in the order of the class's constructor."""
    return {field.name: list(map(attrgetter(field.name), records)) for field in fields(kind)}


def _stacked(payloads: Sequence[Payload | None]) -> Any:
    """Stack messages of equal names, types and shapes; return others as they are.

    Arrays that receivers share are not stacked, so that they stay shared.
    """
    first: Any = payloads[0]
    if type(first) is not dict or not first or any(type(one) is not dict or one.keys() != first.keys() for one in payloads):
        return payloads
    arrays = {}
    for name in first:
        column: list[Any] = [one[name] for one in payloads if one is not None]
        if not all(type(array) is np.ndarray and array.ndim and array.flags.c_contiguous for array in column):
            return payloads  # whatever it is, the coordinator shall see it
        if len({(array.dtype, array.shape) for array in column}) > 1 or len(set(map(id, column))) < len(column):
            return payloads
        arrays[name] = np.concatenate(column).reshape(len(column), *column[0].shape)
    return _Stack(arrays)


def _unstacked(payloads: Any) -> Iterable[Any]:
    if not isinstance(payloads, _Stack):
        return tuple(payloads)
    names = list(payloads.arrays)
    return (dict(zip(names, rows, strict=True)) for rows in zip(*payloads.arrays.values(), strict=True))
