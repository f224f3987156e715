"""Messages or answers on their way and in inboxes, in slots of common columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.actors.columns import Ints
from fedbo.algorithms.base import Declaration, Payload
from fedbo.fast import window_kernel as kernel

Columns = dict[str, npt.NDArray[Any]]
Payloads = Sequence[Payload | None]
OBJECTS = ""  # the only column where payloads are kept as they are


class PayloadSlots:
    """Slots of payloads: an array of each declared field, or one of objects for methods that read messages one by one.

    `slots` says what is in a slot, and `free` lists those that are free, of which a counter of the run, `way`, has the number.
    """

    def __init__(self, declared: Declaration | None, counters: Ints, way: int) -> None:
        self._counters, self._way = counters, way
        shapes: dict[str, tuple[Any, Any]] = {OBJECTS: ((), object)}
        if declared is not None:
            shapes = {name: (field.shape, field.dtype) for name, field in declared.items()}
        self.columns = {name: np.empty((0, *shape), dtype) for name, (shape, dtype) in shapes.items()}
        self.is_joint = declared is not None
        self.slots, self.free = np.zeros(0, kernel.SLOT), np.zeros(0, np.int64)

    def reserve(self, count: int) -> None:
        """Make sure that so many slots are free."""
        free, before = int(self._counters[self._way]), len(self.slots)
        if free >= count:
            return
        more = max(count, before // 2)
        self.slots = np.concatenate([self.slots, np.zeros(more, kernel.SLOT)])
        self.free = np.concatenate(
            [self.free[:free], np.arange(before + more - 1, before - 1, -1), np.zeros(before - free, int)]
        )
        for name, column in self.columns.items():
            empty = np.full(more, None) if name == OBJECTS else np.zeros((more, *column.shape[1:]), column.dtype)
            self.columns[name] = np.concatenate([column, empty])
        self._counters[self._way] += more

    def put(self, slots: Ints, payloads: Columns | Payloads) -> None:
        """Store payloads, as columns or one by one; a dummy message has none."""
        if self.is_joint:
            for name, column in self.columns.items():
                column[slots] = payloads[name] if isinstance(payloads, dict) else [one[name] for one in payloads if one]
            return
        for slot, payload in zip(slots.tolist(), payloads, strict=True):
            self.columns[OBJECTS][slot] = payload

    def take(self, slots: Ints) -> Columns:
        """Return copies of the rows of these slots."""
        return {name: column[slots] for name, column in self.columns.items()}

    def single(self, slot: int) -> Payload:
        """Return the payload in a slot."""
        if self.is_joint:
            return {name: column[slot].copy() for name, column in self.columns.items()}
        found: Payload = self.columns[OBJECTS][slot]
        return found

    def chain(self, last: int, count: int) -> list[int]:
        """Return the slots of `count` entries, of which each but the first has the one before it, in ascending order."""
        found = []
        for _ in range(count):
            found.append(last)
            last = self.slots["before"].item(last)
        return found[::-1]

    def enter(self, entries: Sequence[tuple[int, float, Payload]]) -> int:
        """Store numbers, times and payloads as a chain in free slots; return the last slot, -1 without one."""
        self.reserve(len(entries))
        last = -1
        for number, sent, payload in entries:
            self._counters[self._way] -= 1
            slot = self.free.item(int(self._counters[self._way]))
            self.slots[slot] = (last, number, 0, sent)
            self.put(np.array([slot]), [payload])
            last = slot
        return last

    def forget(self, first: int) -> None:
        """Drop the objects in the slots that have become free, which are those from place `first` of `free` on."""
        if not self.is_joint:
            self.columns[OBJECTS][self.free[first : int(self._counters[self._way])]] = None

    def discard(self, slots: Sequence[int]) -> None:
        """Free slots."""
        first = int(self._counters[self._way])
        self.free[first : first + len(slots)] = slots
        self._counters[self._way] += len(slots)
        self.forget(first)
