"""Records of agents that are made when they are first asked for, and that know which of them a snapshot need not write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

T = TypeVar("T")


class LazyRecords(dict[int, T]):
    """Records by agent; one that was never asked for is not there, so that an agent with nothing to do costs nothing.

    As a dictionary it has the records that were asked for since they were settled last; `settled` has the others.
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
        """Give all records there are, without asking for them."""
        return chain(self.values(), self.settled.values())

    def unsettle(self) -> None:
        """Take all records for asked for."""
        self.update(self.settled)
        self.settled.clear()

    def settle(self) -> None:
        """Note that all records have been written as they are."""
        self.settled.update(self)
        self.clear()
