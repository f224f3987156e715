"""The interface of the core to the place that keeps the lines of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fedbo.coordinator.logged.columns import EventColumns
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.coordinator.privacy.ledger import LedgerEntry


class Log(Protocol):
    """A receiver of the lines of the event log and the entries of the privacy ledger."""

    def extend(self, records: Iterable[EventLine | EventColumns]) -> None:
        """Append lines in their order."""

    def enter(self, entries: Iterable[LedgerEntry]) -> None:
        """Append entries of the ledger."""
