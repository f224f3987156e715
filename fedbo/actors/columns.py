"""Requests and reports of many agents as columns, in which engine, hosts and channels pass on all that is plain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, compress, repeat
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound, Payload

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Payloads = dict[str, npt.NDArray[Any]]


@dataclass(slots=True)
class Letters:
    """The messages in the inboxes of k requests: `senders (l,)`, their `steps (l,)`, the times `sent (l,)`, and `payload`.

    `places (l,)` are the requests that they belong to, in ascending order; None: each request has exactly one. An array of
    `payload` is `(l, ...)`, or `(1, ...)` where all messages share it; its rows are read-only.
    """

    senders: Ints
    steps: Ints
    sent: Floats
    payload: Payloads
    places: Ints | None = None


@dataclass(slots=True)
class StepRequests:
    """Plain requests to k different agents: nothing but `agent`, `step`, `lease`, `speaks` `(k,)`, and an inbox.

    `ended (k,)` are the evaluations that ended, as in `StepRequest`, where these are scheduled one by one.
    """

    agent: Ints
    step: Ints
    lease: Ints
    speaks: npt.NDArray[np.bool_]
    letters: Letters | None = None
    ended: npt.NDArray[np.object_] | None = None


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
    payload: Payloads | None = None


Columns = TypeVar("Columns", StepRequests, StepReports)
_NUMBERS = {StepRequests: ("agent", "step", "lease"), StepReports: ("agent", "step", "lease", "queries", "t_n", "pulled")}
_USUAL: dict[type, Any] = {StepRequests: StepRequest(0, 0), StepReports: StepReport(0, 0, 0, None)}
_OWN = {"inbox", "speaks", "payload", "ended"}
_UNUSUAL: dict[Any, Any] = {
    kind: attrgetter(*(one.name for one in fields(usual) if one.name not in {*_NUMBERS[kind], *_OWN}))
    for kind, usual in _USUAL.items()
}
_PLAIN: dict[Any, Any] = {kind: _UNUSUAL[kind](usual) for kind, usual in _USUAL.items()}


def single_requests(requests: StepRequests) -> list[StepRequest]:
    """Return plain requests one by one."""
    inboxes: list[tuple[Inbound, ...]] = [()] * len(requests.agent)
    if (letters := requests.letters) is not None:
        count = len(letters.senders)
        payloads = _unstacked(letters.payload, count)
        each = map(Inbound, letters.senders.tolist(), letters.steps.tolist(), letters.sent.tolist(), payloads)
        for place, letter in zip(range(count) if letters.places is None else letters.places.tolist(), each, strict=True):
            inboxes[place] += (letter,)
    numbers = (requests.agent.tolist(), requests.step.tolist(), requests.lease.tolist())
    found = list(map(StepRequest, *numbers, inboxes, requests.speaks.tolist()))
    for request, ended in zip(found, () if requests.ended is None else requests.ended, strict=False):
        request.ended = ended
    return found


def joint_requests(requests: Sequence[StepRequest]) -> StepRequests | None:
    """Return requests as columns; None where one of them is not plain, or where messages differ in form."""
    if not _are_plain(StepRequests, requests):
        return None
    numbers = _numbers(StepRequests, requests)
    speaks = np.array([one.speaks for one in requests])
    counts = np.array([len(one.inbox) for one in requests])
    inbox = list(chain.from_iterable(one.inbox for one in requests))
    ended = None
    if any(one.ended is not None for one in requests):
        ended = np.fromiter((one.ended for one in requests), object, len(requests))
    if not inbox:
        return StepRequests(**numbers, speaks=speaks, ended=ended)
    payload = stacked([letter.payload for letter in inbox])
    if payload is None:
        return None
    places = None if (counts == 1).all() else np.repeat(np.arange(len(requests)), counts)
    senders, steps = (np.array([getattr(letter, name) for letter in inbox]) for name in ("sender", "step"))
    letters = Letters(senders, steps, np.array([letter.sent for letter in inbox]), payload, places)
    return StepRequests(**numbers, speaks=speaks, letters=letters, ended=ended)


def joint_and_single(requests: list[StepRequest]) -> tuple[StepRequests | None, list[StepRequest]]:
    """Return those requests that are plain as columns, and the others; all are others where messages differ in form."""
    plain = [_are_plain(StepRequests, [one]) for one in requests]
    joint = joint_requests(list(compress(requests, plain))) if any(plain) else None
    return joint, requests if joint is None else [one for one, is_plain in zip(requests, plain, strict=True) if not is_plain]


def single_reports(reports: StepReports) -> list[StepReport]:
    """Return plain reports one by one."""
    count = len(reports.agent)
    payloads = repeat(None, count) if reports.payload is None else _unstacked(reports.payload, count)
    agent, step, lease, queries, t_n, pulled = (getattr(reports, name).tolist() for name in _NUMBERS[StepReports])
    found = list(map(StepReport, agent, step, queries, payloads, lease, t_n))
    for report, times in zip(found, pulled, strict=True):
        report.pulled = times
    return found


def joint_reports(reports: list[StepReport]) -> StepReports | list[StepReport]:
    """Return reports as columns, or unchanged where one of them is not plain."""
    if not reports or not _are_plain(StepReports, reports):
        return reports
    payloads = None
    if any(one.payload is not None for one in reports):
        payloads = stacked([one.payload for one in reports], shared=False)
        if payloads is None:
            return reports
    return StepReports(**_numbers(StepReports, reports), payload=payloads)


def rows_of(columns: Columns, places: npt.NDArray[Any]) -> Columns:
    """Return some of the requests or reports, by number or mask."""
    some: dict[str, Any] = {name: getattr(columns, name)[places] for name in _NUMBERS[type(columns)]}
    if isinstance(columns, StepReports):
        some["payload"] = columns.payload and {name: array[places] for name, array in columns.payload.items()}
        return StepReports(**some)
    some["speaks"], letters = columns.speaks[places], columns.letters
    some["ended"] = None if columns.ended is None else columns.ended[places]
    if letters is not None and letters.places is None and len(some["agent"]):
        payload = {name: array if len(array) == 1 else array[places] for name, array in letters.payload.items()}
        letters = Letters(letters.senders[places], letters.steps[places], letters.sent[places], payload)
    elif letters is not None:
        count = len(columns.agent)
        chosen = np.arange(count)[places]
        own = np.arange(count) if letters.places is None else letters.places
        place = np.full(count, -1)
        place[chosen] = np.arange(len(chosen))
        kept = np.flatnonzero(place[own] >= 0)
        kept = kept[np.argsort(place[own[kept]], kind="stable")]
        payload = {name: array if len(array) == 1 else array[kept] for name, array in letters.payload.items()}
        at = None if letters.places is None else place[own[kept]]
        letters = Letters(letters.senders[kept], letters.steps[kept], letters.sent[kept], payload, at) if len(kept) else None
    return StepRequests(**some, letters=letters)


def stacked(payloads: Sequence[Any], shared: bool = True) -> Payloads | None:
    """Stack messages of equal names, types and shapes, to arrays `(k, ...)`; None where they differ.

    An array that is one object in all of them becomes `(1, ...)` where that is allowed, so that it stays `shared`.
    """
    first: Any = payloads[0]
    if type(first) is not dict or not first:
        return None
    if any(one is not first and (type(one) is not dict or one.keys() != first.keys()) for one in payloads):
        return None
    arrays = {}
    for name in first:
        column: list[Any] = [one[name] for one in payloads]
        if not all(type(array) is np.ndarray and array.ndim and array.flags.c_contiguous for array in column):
            return None  # whatever it is, the coordinator shall see it
        if len({(array.dtype, array.shape) for array in column}) > 1:
            return None
        if shared and len(set(map(id, column))) == 1:
            arrays[name] = column[0][None]
        else:
            arrays[name] = np.concatenate(column).reshape(len(column), *column[0].shape)
    return arrays


def _unstacked(arrays: Mapping[str, npt.NDArray[Any]], count: int) -> list[Payload]:
    """Return messages one by one."""
    if all(len(array) == 1 for array in arrays.values()):
        return [{name: array[0] for name, array in arrays.items()}] * count
    each = [repeat(array[0], count) if len(array) == 1 else array for array in arrays.values()]
    return [dict(zip(arrays, rows, strict=True)) for rows in zip(*each, strict=True)]


def _are_plain(kind: type, records: Iterable[Any]) -> bool:
    unusual, plain = _UNUSUAL[kind], _PLAIN[kind]
    return all(unusual(one) == plain for one in records)


def _numbers(kind: type, records: Sequence[Any]) -> dict[str, Any]:
    rows = np.array(list(map(attrgetter(*_NUMBERS[kind]), records)), np.int64).reshape(-1, len(_NUMBERS[kind]))
    return dict(zip(_NUMBERS[kind], np.ascontiguousarray(rows.T), strict=True))


class ByAgent:
    """Requests or reports that wait for something, by agent: single ones, or rows of columns. The newest of an agent counts."""

    def __init__(self) -> None:
        self._singles: dict[int, Any] = {}
        self._parts: dict[int, Any] = {}  # columns by the number of their arrival
        self._left: dict[int, int] = {}  # their rows that are still here
        self._part, self._row = np.full(0, -1), np.zeros(0, np.int64)  # of each agent
        self._rows = self._arrived = 0

    def __contains__(self, agent: int) -> bool:
        return agent in self._singles or (agent < len(self._part) and self._part.item(agent) >= 0)

    def __len__(self) -> int:
        return len(self._singles) + self._rows

    def __iter__(self) -> Iterator[int]:
        return chain(list(self._singles), np.flatnonzero(self._part >= 0).tolist() if self._rows else ())

    def put(self, given: StepRequests | StepReports | Iterable[Any]) -> None:
        """Store requests or reports; an agent that has one loses it."""
        if not isinstance(given, StepRequests | StepReports):
            for one in given:
                self.discard(one.agent)
                self._singles[one.agent] = one
            return
        agents, number = given.agent, self._arrived
        if not len(agents):
            return
        self.discard_each(agents)
        if (most := int(agents.max()) + 1) > len(self._part):
            more = max(most, 2 * len(self._part)) - len(self._part)
            self._part, self._row = np.append(self._part, np.full(more, -1)), np.append(self._row, np.zeros(more, np.int64))
        self._part[agents], self._row[agents] = number, np.arange(len(agents))
        self._parts[number], self._left[number] = given, len(agents)
        self._rows, self._arrived = self._rows + len(agents), number + 1

    def discard(self, agent: int) -> None:
        """Forget what an agent has, if it has anything."""
        if self._singles.pop(agent, None) is None and self._rows and agent in self:
            self._forget(np.array([agent]))

    def discard_each(self, agents: Ints) -> None:
        """Forget what these agents have."""
        for agent in agents.tolist() if self._singles else ():
            self._singles.pop(agent, None)
        if self._rows:
            self._forget(agents[self.have_rows(agents)])

    def have(self, agents: Ints) -> npt.NDArray[np.bool_]:
        """Return which of these agents have something."""
        found = self.have_rows(agents)
        return found | np.array([agent in self._singles for agent in agents.tolist()], bool) if self._singles else found

    def have_rows(self, agents: Ints) -> npt.NDArray[np.bool_]:
        """Return which of these agents have a row of columns."""
        if len(agents) and int(agents.max()) < len(self._part):
            return self._part[agents] >= 0
        return np.array([0 <= agent < len(self._part) and self._part.item(agent) >= 0 for agent in agents.tolist()], bool)

    def _forget(self, agents: Ints, parts: tuple[list[int], list[int]] | None = None) -> None:
        """Forget the rows of agents that have some, by `parts` if their numbers and counts are known."""
        for number, count in zip(*(parts or _counted(self._part[agents])), strict=True):
            self._left[number] -= count
            if not self._left[number]:
                del self._left[number], self._parts[number]
        self._part[agents] = -1
        self._rows -= len(agents)

    def pop(self, agent: int) -> Any:
        """Remove and return the single request or report of an agent."""
        if agent in self._singles:
            return self._singles.pop(agent)
        number = self._part.item(agent)
        columns = self._parts[number]
        here = self._part[columns.agent] == number
        singles: list[Any] = single_requests(columns) if isinstance(columns, StepRequests) else single_reports(columns)
        for one in compress(singles, here):  # its neighbours are asked for next
            self._singles[one.agent] = one
        self._forget(columns.agent[here])
        return self._singles.pop(agent)

    def take(self, agents: Sequence[int] | Ints) -> list[Any]:
        """Remove and return what these agents have, as a list of columns and of lists of single ones."""
        numbers, singles = np.asarray(agents, np.int64), list[Any]()
        if self._singles:
            singles = [self._singles.pop(agent) for agent in numbers.tolist() if agent in self._singles]
            numbers = numbers[self.have_rows(numbers)] if singles else numbers
        parts, _ = self.take_rows(numbers) if len(numbers) else ([], None)
        if len(parts) > 1 and isinstance(parts[0], StepRequests):
            parts = joined_requests(parts)
        return [singles, *parts] if singles else parts

    def take_rows(self, agents: Ints) -> tuple[list[Any], Ints | None]:
        """Remove and return the rows of agents by part, and the places of the agents among them; None for the same order."""
        part, row = self._part[agents], self._row[agents]
        order, (numbers, counts) = None, _counted(part)
        if len(numbers) > 1 and (part[1:] < part[:-1]).any():
            order = np.argsort(part, kind="stable")
            row = row[order]
        found, first = [], 0
        for number, count in zip(numbers, counts, strict=True):
            columns, rows = self._parts[number], row[first : first + count]
            whole = count == len(columns.agent) and bool((rows == np.arange(count)).all())
            found.append(columns if whole else rows_of(columns, rows))
            first += count
        self._forget(agents, (numbers, counts))
        return found, None if order is None else np.argsort(order)

    def reports(self, agents: Ints) -> StepReports | list[StepReport]:
        """Remove and return the reports of these agents in their order, as columns if all are plain."""
        singles = [self._singles.pop(agent) for agent in agents.tolist() if agent in self._singles] if self._singles else []
        parts, order = self.take_rows(agents[self.have_rows(agents)] if singles else agents)
        parts += [joint_reports(singles)] if singles else []
        joint = parts[0] if len(parts) == 1 and isinstance(parts[0], StepReports) else _joined(parts)
        if joint is not None and singles:
            order = np.argsort(joint.agent)
            order = order[np.searchsorted(joint.agent[order], agents)]
        if joint is not None:
            return joint if order is None else rows_of(joint, order)
        each = chain.from_iterable(single_reports(part) if isinstance(part, StepReports) else part for part in parts)
        found = {report.agent: report for report in each}
        return [found[agent] for agent in agents.tolist()]


def _counted(numbers: Ints) -> tuple[list[int], list[int]]:
    """Return the different numbers, ascending, and how often each occurs."""
    if not len(numbers):
        return [], []
    if (numbers == numbers[0]).all():
        return [numbers.item(0)], [len(numbers)]
    found, counts = np.unique(numbers, return_counts=True)
    return found.tolist(), counts.tolist()


def joined_requests(parts: Sequence[StepRequests]) -> list[StepRequests]:
    """Return requests to different agents in one set of columns, unless messages differ in form or are shared."""
    first, counts = np.cumsum([0, *(len(part.agent) for part in parts)]), []
    letters, at = list[Letters](), list[Any]()
    for part, start in zip(parts, first.tolist(), strict=False):
        own = part.letters
        counts.append(own is not None and own.places is None)
        if own is not None:
            letters.append(own)
            at.append(start + (np.arange(len(part.agent)) if own.places is None else own.places))
    forms = {tuple((name, array.dtype, array.shape[1:]) for name, array in own.payload.items()) for own in letters}
    shared = any(len(array) < len(own.senders) for own in letters for array in own.payload.values())
    if len(forms) > 1 or shared:
        return list(parts)
    joint = None
    if letters:
        senders, steps, sent = (
            np.concatenate([getattr(own, name) for own in letters]) for name in ("senders", "steps", "sent")
        )
        payload = {name: np.concatenate([own.payload[name] for own in letters]) for name in letters[0].payload}
        joint = Letters(senders, steps, sent, payload, None if all(counts) else np.concatenate(at))
    numbers = {name: np.concatenate([getattr(part, name) for part in parts]) for name in (*_NUMBERS[StepRequests], "speaks")}
    ended = None
    if any(part.ended is not None for part in parts):
        each = [np.full(len(part.agent), None) if part.ended is None else part.ended for part in parts]
        ended = np.concatenate(each)
    return [StepRequests(**numbers, letters=joint, ended=ended)]


def _joined(parts: Sequence[Any]) -> StepReports | None:
    """Return reports in one set of columns; None where some are not plain, or have other messages than others."""
    if not all(isinstance(part, StepReports) for part in parts):
        return None
    forms = {tuple((name, array.dtype, array.shape[1:]) for name, array in (part.payload or {}).items()) for part in parts}
    if len(forms) > 1:
        return None
    numbers = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _NUMBERS[StepReports]}
    payload = parts[0].payload
    if payload is not None:
        payload = {name: np.concatenate([part.payload[name] for part in parts]) for name in payload}
    return StepReports(**numbers, payload=payload)
