"""The coordinator half of a method on the messages of a window: together where the method has that, else one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.actors.columns import Floats, Ints
from fedbo.algorithms.base import Inbound, JointHalf, Occasions, Payload
from fedbo.algorithms.messages import are_sound, checker, plain_fields, varies
from fedbo.algorithms.returned import pair, updated
from fedbo.coordinator.kernel.exchange import Rounds
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.state import CoreState, ProgressCounter
from fedbo.fast.payload_slots import OBJECTS, Columns


class Arrivals(NamedTuple):
    """Messages `(k,)` in order of arrival: senders, steps, times of sending and of arrival, and payloads in columns."""

    senders: Ints
    steps: Ints
    sent: Floats
    times: Floats
    payload: Columns


class Closings(NamedTuple):
    """Full buffers: how many messages were heard by then and answers given in all `(c,)`, and their `recipients (l,)`."""

    heard: Ints
    ends: Ints
    recipients: Ints


class Heard(NamedTuple):
    """What the coordinator half made of messages: its state, the number it took, and the answers to the first buffers.

    `dummies` is the number of dummy messages among those that it took.
    `unusual` is what it returned or raised with the last message it took, where that is not one answer to each recipient. If it
    took fewer messages than there are, and nothing is `unusual`, the next one is for the core.
    """

    server: Any
    taken: int
    answers: Columns | Sequence[Payload] = ()
    unusual: dict[int, Payload] | Exception | None = None
    dummies: int = 0


_NONE = np.empty(0, np.int64)


def is_joint(rules: Rules) -> bool:
    """Check whether a method processes messages together: they are of fixed length, and no function that it would use is older.

    A subclass that changes `receive` or `broadcast` alone is called one by one.
    """
    method = rules.algorithm
    if rules.receipt.aggregator is not None or not isinstance(method, JointHalf) or not method.is_joint:
        return False
    if varies(rules.upload) or varies(rules.download):
        return False
    return all(_defined(type(method), "answer_each") <= _defined(type(method), single) for single in ("receive", "broadcast"))


def _defined(kind: type, name: str) -> int:
    """Return the place of the first class in the order of resolution that defines a function."""
    return next(place for place, each in enumerate(kind.__mro__) if name in vars(each))


def note_each(progress: ProgressCounter, count: int, last: int, now: float) -> None:
    """Count events, of which number `last` was the last progress, at the time `now`; 0 for none."""
    if last:
        progress.last_event, progress.last_time, progress.restarts = progress.events + last, now, {}
    progress.events += count


def close_each(rounds: Rounds, now: float, count: int) -> None:
    """Answer so many buffers one after the other, the last one now."""
    rounds.buffer, rounds.messages, rounds.left, rounds.is_heard = [], 0, False, False
    rounds.number, rounds.opened = rounds.number + count, now


def hear(rounds: Rounds, senders: Sequence[int], counted: int) -> None:
    """Record messages that close no round, of which so many took effect, and the others are dummies in time."""
    rounds.messages += counted
    rounds.is_heard |= bool(senders)
    rounds.reported.update(senders)
    rounds.missing.difference_update(senders)


class CoordinatorHalf:
    """The coordinator half of a run's method."""

    def __init__(self, rules: Rules) -> None:
        self._method, self._streams, self._ones = rules.algorithm, rules.streams, np.ones(rules.problem.n_agents)
        self._aggregator = rules.receipt.aggregator
        self.is_joint = is_joint(rules)
        self._wrong, self._plain_download = checker(rules.download or {}), plain_fields(rules.download or {})

    def receive(self, server: Any, arrivals: Arrivals) -> Heard:
        """Receive messages that nothing answers yet."""
        if self.is_joint:
            return self._answer_together(server, arrivals, Closings(_NONE, _NONE, _NONE), 0)
        taken = 0
        for sender, step, sent, now, payload in _each(arrivals):
            try:
                server = updated(self._method, "receive", server, Inbound(sender, step, sent, payload), now)
            except Exception:  # noqa: BLE001 -- the core logs it
                break
            taken += 1
        return Heard(server, taken)

    def hold(self, state: CoreState, arrivals: Arrivals, asked: npt.NDArray[np.bool_]) -> Heard:
        """Pass private messages to the aggregator, which refuses those of agents that are not `asked`; dummies have no payload.

        All are of the open round, since windows leave late messages to the core.
        """
        taken, dummies, aggregator = 0, 0, self._aggregator
        assert aggregator is not None
        for (sender, _, _, _, payload), was_asked in zip(_each(arrivals), asked.tolist(), strict=True):
            if payload is not None and aggregator.accept(state.privacy, sender, state.rounds.number, payload, was_asked):
                break
            taken, dummies = taken + 1, dummies + (payload is None)
        return Heard(state.server, taken, dummies=dummies)

    def answer(self, server: Any, arrivals: Arrivals, closings: Closings, first: int) -> Heard:
        """Receive messages, and answer buffers as they are full, by answer number `first` and those that follow."""
        if self.is_joint:
            return self._answer_together(server, arrivals, closings, first)
        answers, closed, begin, method = list[Payload](), 0, 0, self._method
        heard, ends, readers = (one.tolist() for one in closings)
        for place, (sender, step, sent, now, payload) in enumerate(_each(arrivals), 1):
            try:
                server = updated(method, "receive", server, Inbound(sender, step, sent, payload), now)
            except Exception:  # noqa: BLE001 -- the core logs it
                return Heard(server, place - 1, answers)
            if closed == len(heard) or place < heard[closed]:
                continue
            recipients, streams = readers[begin : ends[closed]], self._streams.at(first + closed)
            try:
                payloads, server = pair(method, "broadcast", server, recipients, self._ones, streams)
            except Exception as error:  # noqa: BLE001 -- it ends the run, once what came before is noted
                return Heard(server, place, answers, error)
            found = list(payloads.values())
            if list(payloads) != recipients or self.sound(found) < len(found):
                return Heard(server, place, answers, payloads)
            answers, begin, closed = answers + found, ends[closed], closed + 1
        return Heard(server, len(arrivals.senders), answers)

    def _answer_together(self, server: Any, arrivals: Arrivals, closings: Closings, first: int) -> Heard:
        heard, ends, recipients = closings
        counts = np.diff(ends, prepend=0)
        occasions = Occasions(recipients, heard.repeat(counts), np.arange(first, first + len(ends)).repeat(counts))
        places, answers, server = self._answered(server, arrivals.senders, arrivals.payload, occasions)
        sound = self.sound(answers)
        if sound == len(recipients):
            return Heard(server, len(arrivals.senders), answers)
        lacking = int((np.append(places[:sound], -1) != np.arange(sound + 1)).argmax())  # the first recipient
        closed = int(np.searchsorted(ends, lacking, side="right"))
        begin, end = int(ends[closed] - counts[closed]), ends[closed]
        some = {int(recipients[at]): _row(answers, place) for place, at in enumerate(places.tolist()) if begin <= at < end}
        return Heard(server, int(heard[closed]), {name: array[:begin] for name, array in answers.items()}, some)

    def _answered(self, server: Any, senders: Ints, payload: Columns, occasions: Occasions) -> tuple[Ints, Columns, Any]:
        """Return the places of the recipients that are answered, the answers, and the next state."""
        known = (senders, payload, self._ones, occasions, self._streams)
        (places, answers), server = pair(self._method, "answer_each", server, *known)
        return places, answers, server

    def broadcast(self, server: Any, recipients: Ints, number: int, empty: Columns) -> tuple[Ints, Columns, Any]:
        """Answer the recipients once, after no messages, which are `empty` columns; return what `_answered` does."""
        occasion = Occasions(recipients, np.zeros_like(recipients), np.full_like(recipients, number))
        return self._answered(server, _NONE, empty, occasion)

    def sound(self, answers: Columns | Sequence[Payload]) -> int:
        """Return the number of answers before the first that is not as declared."""
        if not isinstance(answers, dict):
            wrong = {id(one): self._wrong(one) for one in {id(one): one for one in answers}.values()}
            return next((place for place, one in enumerate(answers) if wrong[id(one)]), len(answers))
        count = _length(answers)
        if are_sound(answers, self._plain_download):
            return count
        return next((place for place in range(count) if self._wrong(_row(answers, place))), count)


def _each(arrivals: Arrivals) -> Any:
    numbers = (one.tolist() for one in arrivals[:4])
    return zip(*numbers, arrivals.payload[OBJECTS].tolist(), strict=True)


def _length(answers: Columns) -> int:
    return len(next(iter(answers.values()))) if answers else 0


def _row(answers: Mapping[str, npt.NDArray[Any]], place: int) -> Payload:
    return {name: array[place].copy() for name, array in answers.items()}
