"""Requests and reports of many agents as columns, which take a third of the time to send between processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound, Payload

Columns = dict[str, Any]  # by field


class _Stack(NamedTuple):
    """Messages with the same names and shapes: one array `(k, ...)` for each name, stacked."""

    arrays: dict[str, npt.NDArray[Any]]


class _Letters(NamedTuple):
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
        columns["inbox"] = _Letters(
            senders=[letter.sender for letter in letters],
            steps=[letter.step for letter in letters],
            sent=[letter.sent for letter in letters],
            payloads=_stacked([letter.payload for letter in letters]),
        )
    return columns


def to_requests(columns: Columns) -> list[StepRequest]:
    """Convert columns back to requests."""
    letters = columns["inbox"]
    if isinstance(letters, _Letters):
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
    """Stack messages of equal names, types and shapes.

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
