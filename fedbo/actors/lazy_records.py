"""Records of agents that are created on first access, and that track which of them a snapshot need not write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

T = TypeVar("T")


class LazyRecords(dict[int, T]):
    """Records by agent, created on first access, so that an agent with nothing to do costs nothing.

    As a dictionary it holds the records accessed since the last `settle`; `settled` holds the others.
    """

    def __init__(self, make: Callable[[int], T]) -> None:
        super().__init__()
        self._make = make
        self.settled: dict[int, T] = {}

    def __missing__(self, number: int) -> T:
        record = self.settled.pop(number, None)
        if record is None:
            record = self._make(number)
        self[number] = record
        return record

    def every(self) -> Iterator[T]:
        """Return all existing records, without marking them as accessed."""
        return chain(self.values(), self.settled.values())

    def unsettle(self) -> None:
        """Mark all records as accessed."""
        self.update(self.settled)
        self.settled.clear()

    def settle(self) -> None:
        """Mark all records as written."""
        self.settled.update(self)
        self.clear()
