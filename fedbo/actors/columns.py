"""Requests and reports of many agents as columns, in which they go from process to process in a third of the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound, Payload

Columns = list[Any]
_INBOX, _PAYLOAD = StepRequest._fields.index("inbox"), StepReport._fields.index("payload")


class _Stack(NamedTuple):
    """Messages of one kind: the arrays of each name, one after the other `(k, ...)`."""

    arrays: dict[str, npt.NDArray[Any]]


class _Letters(NamedTuple):
    """Inboxes of one message each: senders, steps, when they were sent, and the messages."""

    senders: tuple[int, ...]
    steps: tuple[int, ...]
    sent: tuple[float, ...]
    payloads: Any


def from_requests(requests: Iterable[StepRequest]) -> Columns:
    """Turn requests into columns."""
    columns: Columns = list(zip(*requests, strict=True))
    if columns and all(len(inbox) == 1 for inbox in columns[_INBOX]):
        senders, steps, sent, payloads = zip(*(inbox[0] for inbox in columns[_INBOX]), strict=True)
        columns[_INBOX] = _Letters(senders, steps, sent, _stacked(payloads))
    return columns


def to_requests(columns: Columns) -> list[StepRequest]:
    """Turn columns into the requests that they were made of."""
    if columns and isinstance(columns[_INBOX], _Letters):
        senders, steps, sent, payloads = columns[_INBOX]
        letters = zip(senders, steps, sent, _unstacked(payloads), strict=True)
        columns = [*columns[:_INBOX], [(Inbound(*letter),) for letter in letters], *columns[_INBOX + 1 :]]
    return [StepRequest(*values) for values in zip(*columns, strict=True)]


def from_reports(reports: Iterable[StepReport]) -> Columns:
    """Turn reports into columns."""
    columns: Columns = list(zip(*reports, strict=True))
    if columns:
        columns[_PAYLOAD] = _stacked(columns[_PAYLOAD])
    return columns


def to_reports(columns: Columns) -> list[StepReport]:
    """Turn columns into the reports that they were made of."""
    if columns:
        columns = [*columns[:_PAYLOAD], _unstacked(columns[_PAYLOAD]), *columns[_PAYLOAD + 1 :]]
    return [StepReport(*values) for values in zip(*columns, strict=True)]


def _stacked(payloads: Sequence[Payload | None]) -> Any:
    """Stack messages that are alike; what several receivers share is one array, and stays so."""
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
